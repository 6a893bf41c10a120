"""Findings that only say what another finding of the same node must lead to: one cause is one finding.

torch cannot use the GPUs of a node whose driver is too old for it, and no kernel is run on a GPU on which
somebody works. A node whose glibc is too old for its torch also has another glibc than the others. What
follows from a difference has its own way (`claiming`, `yielding`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, NamedTuple, Sequence, Set, Tuple

from envaudit.model.finding import SEVERITIES, Finding
from envaudit.rules.yielding import differs_by


class _Symptom(NamedTuple):
    """A rule that says no more than its causes, where its message or evidence has certain words."""

    rule: str
    causes: Tuple[str, ...]
    words: str = ""


_NO_DRIVER = ("EA310", "EA311", "EA326", "EA327", "EA330", "EA334", "EA335", "EA340")
_SYMPTOMS = (
    _Symptom("EA503", _NO_DRIVER),
    _Symptom("EA609", _NO_DRIVER, "cannot use"),
    # As checks/section.py and the ranks' supervisor word it.
    _Symptom("EA504", ("EA320",), "the GPU is busy"),
    _Symptom("EA609", ("EA320",), "the GPU is busy"),
)


# A rule of single nodes, the rule that would say no more than that these nodes differ, and in what.
_DIFFERENCES = (
    ("EA241", "EA299", "host/glibc"),
    ("EA247", "EA299", "packages/duplicates"),
    ("EA247", "EA299", "conda/duplicates"),
    ("EA248", "EA299", "packages/duplicates"),
    ("EA326", "EA328", "gpu"),
)


def without_symptoms(findings: Sequence[Finding]) -> List[Finding]:
    """The findings but for nodes of which an error names the cause.

    Only an error counts as one, so that missing evidence goes with nothing that lets a run pass; what is
    waived or softened is no cause any more.
    """
    at_fault: Dict[str, Set[str]] = {}
    for finding in findings:
        if finding.severity == "error":
            at_fault.setdefault(finding.rule, set()).update(finding.nodes)
    left: List[Finding] = []
    for finding in _with_differences(findings):
        told: Set[str] = set()
        for symptom in _SYMPTOMS:
            if symptom.rule == finding.rule and _says(finding, symptom.words):
                told.update(*(at_fault.get(cause, set()) for cause in symptom.causes))
        nodes = tuple(node for node in finding.nodes if node not in told)
        if nodes or not finding.nodes:
            left.append(finding if nodes == finding.nodes else replace(finding, nodes=nodes))
    return left


def _with_differences(findings: Sequence[Finding]) -> List[Finding]:
    """What is wrong with nodes, with the differences that they make: these are no findings beside it.

    Only what is as severe takes one along: a difference is told where a policy has made less of its cause.
    """
    left = list(findings)
    for rule, symptom, path in _DIFFERENCES:
        for finding in [one for one in left if one.rule == symptom and f"{one.path}/".startswith(f"{path}/")]:
            worst = SEVERITIES.index(finding.severity)
            causes = [one for one in left if one.rule == rule and SEVERITIES.index(one.severity) <= worst]
            nodes = {node for cause in causes for node in cause.nodes}
            if causes and all(differs_by(drift, nodes) for drift in finding.drifts):
                left.remove(finding)
                lead = left.index(causes[0])
                left[lead] = replace(causes[0], following=(*causes[0].following, *finding.drifts))
    return left


def _says(finding: Finding, words: str) -> bool:
    return any(words in text for text in (finding.message, *finding.evidence))
