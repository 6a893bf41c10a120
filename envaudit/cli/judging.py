"""From evidence to findings and a verdict, under the policy of the configuration."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Dict, List, NamedTuple, Sequence, Tuple

from envaudit.cli.policyof import policy_of
from envaudit.model import Finding, Fingerprint, Verdict
from envaudit.model.checked import checked_devices
from envaudit.model.collective import DONE, collective_runs
from envaudit.model.nodeset import fold
from envaudit.report import SetAside, Stage
from envaudit.report.summary import switched_off
from envaudit.rules import Evidence, Judgement, Policy, judgement
from envaudit.rules.policy import Waiver
from envaudit.rules.unexamined import unexamined
from envaudit.rules.waivers import Waived


class Judged(NamedTuple):
    """What the rules say of a run, and what it rests on.

    Attributes:
        findings: worst first, without what is waived.
        verdict: over them.
        stages: a line for each file of policy that changed something, and for each waiver that was used.
        set_aside: the findings that a waiver or the policy has taken out.
    """

    findings: Tuple[Finding, ...]
    verdict: Verdict
    stages: Tuple[Stage, ...]
    set_aside: Tuple[SetAside, ...]


def judged(evidence: Evidence, options: argparse.Namespace, *, full: bool = False) -> Judged:
    """Judge under the policy of the configuration; nothing that it takes out goes untold.

    `full` where the run looks at all that a waiver could match.
    """
    policy = policy_of(options, full=full)
    found = judgement(evidence, policy)
    hidden = _hidden(evidence, found, policy)
    stages = _waived_stages(found.waived)
    if evidence.comparing or _is_moved(evidence, found, policy):
        stages = (*_policy_stages(options), *stages)
    if hidden:
        names = " ".join(dict.fromkeys(each.rule for each in hidden))
        stages += (Stage("hidden", f"{switched_off(len(hidden))} by the policy: {names}"),)
    set_aside = (
        *(SetAside(each.finding, "waiver", _waiver_words(each.waiver)) for each in found.waived),
        *(SetAside(each, "policy", "switched off by the policy") for each in hidden),
    )
    return Judged(found.findings, Verdict.of(found.findings, policy.fail_on), stages, set_aside)


def _hidden(evidence: Evidence, found: Judgement, policy: Policy) -> Tuple[Finding, ...]:
    """What would be told if neither a rule nor a path were off; judged again, where one is."""
    levels = {rule: level for rule, level in policy.levels.items() if level != "off"}
    paths = tuple((pattern, level) for pattern, level in policy.paths if level != "off")
    if (len(levels), len(paths)) == (len(policy.levels), len(policy.paths)):
        return ()
    whole = judgement(evidence, replace(policy, levels=levels, paths=paths, full=False))
    told = (*found.findings, *(waived.finding for waived in found.waived))
    keys = {_key(each) for each in told}
    differences = {id(drift) for each in told for drift in (*each.drifts, *each.following)}
    hidden = []
    for each in whole.findings:
        left = tuple(drift for drift in each.drifts if id(drift) not in differences)
        if not each.drifts:
            hidden += [] if _key(each) in keys else [each]
        elif len(left) == len(each.drifts):
            hidden.append(each)
        elif left:  # the rest of what one finding would have told is told
            hidden.append(replace(each, message=f"{each.message}, {len(left)} of them", drifts=left))
    return tuple(hidden)


def _is_moved(evidence: Evidence, found: Judgement, policy: Policy) -> bool:
    """Whether a run over single nodes or files ends otherwise than without any policy."""
    if policy == Policy(today=policy.today, full=policy.full):
        return False
    usual = judgement(evidence, Policy()).findings
    return policy.fail_on != Policy.fail_on or usual != found.findings


def _key(finding: Finding) -> Tuple[str, Tuple[str, ...], str]:
    return finding.rule, finding.nodes, finding.path


def _policy_stages(options: argparse.Namespace) -> Tuple[Stage, ...]:
    settings = getattr(options, "configuration", None)
    if settings is None:
        from envaudit.cli import compiled

        held = compiled.policy()
        return tuple(Stage("policy", line) for line in held.lines) if held is not None else ()
    if not settings.policy:
        return ()
    from envaudit.cli.policywords import policy_lines

    return tuple(Stage("policy", line) for line in policy_lines(settings.policy))


def _waived_stages(waived: Sequence[Waived]) -> Tuple[Stage, ...]:
    """A line for each waiver that took something out of the run: it is never silent."""
    taken: Dict[int, List[Waived]] = {}
    for each in waived:
        taken.setdefault(id(each.waiver), []).append(each)
    stages = []
    for of_one in taken.values():
        waiver = of_one[0].waiver
        nodes = {node for each in of_one for node in each.finding.nodes}
        where = f" on {fold(nodes)}" if nodes else ""
        stages.append(Stage("waived", f"{waiver.rule}{where} {_waiver_words(waiver)}"))
    return tuple(stages)


def _waiver_words(waiver: Waiver) -> str:
    return f"until {waiver.expires}: {waiver.reason} ({waiver.owner})"


def passed_words(evidence: Evidence, found: Judged, *, locked: bool, like: str = "") -> str:
    """What a gate that passes says it has seen: `3 of 4 nodes, as locked, alike, numbers right`.

    No more than that: one node is like nobody, what a waiver or the policy took out is still there, and
    numbers of which none was tried are none.

    Args:
        evidence: of the run.
        found: what the rules say of it.
        locked: whether the nodes were held to a lock.
        like: the baseline that they were held to; empty for none.
    """
    nodes = [each for each in evidence.fingerprints if each.node]
    gone = len(evidence.missing)
    parts = [f"{len(nodes)} of {_count(len(nodes) + gone, 'node')}" if gone else _count(len(nodes), "node")]
    parts += ["as locked"] if locked else []
    findings = (*found.findings, *(each.finding for each in found.set_aside))
    drifts = [drift for each in findings for drift in each.drifts or each.following]
    told = {id(drift) for drift in drifts if drift.kind != "unknown"}
    apart = f" but for {_count(len(told), 'difference')}" if told else ""
    if like:
        parts.append(f"like {like}{apart}")
    elif evidence.comparing and len(nodes) > 1:
        parts.append(f"alike{apart}")
    elif apart:
        parts[-1] += apart
    parts += _tried_words(nodes)
    for severity, noun in (("warning", "warning"), ("info", "remark")):
        count = sum(finding.severity == severity for finding in found.findings)
        parts += [_count(count, noun)] if count else []
    return ", ".join(parts)


def _tried_words(nodes: Sequence[Fingerprint]) -> List[str]:
    """What was run on the nodes, as far as anything was."""
    words = []
    statuses = {case.status for device in checked_devices(nodes) for case in device.cases.values()}
    if statuses - {"not_run"}:
        words.append("numbers right" if statuses <= {"ok", "not_run"} else "not all numbers right")
    for run in collective_runs(nodes):
        statuses = {case.status for case in run.cases.values()}
        if run.ended.kind == DONE and statuses - {"not_run"}:
            right = "right" if statuses <= {"ok", "not_run"} else "not all right"
            words.append(f"collectives of {run.world} ranks {right}")
    return words or ["no numbers checked"]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def unexamined_stages(evidence: Evidence, policy: Policy) -> Tuple[Stage, ...]:
    """One line for all that rules would have looked at and could not, mostly without root."""
    told = "; ".join(each.words for each in unexamined(evidence, policy))
    return (Stage("unexamined", told),) if told else ()
