"""What a run came to for readers that count: one outcome for each rule and node, good ones as well.

A reader of JUnit, SARIF or metrics takes what is not there for well. So a node that gave no evidence,
and a run that looked at nothing, are outcomes of their own, whether or not a finding says so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, Iterator, List, NamedTuple, Tuple

from envaudit.model.finding import Finding, Verdict
from envaudit.report import Report, RuleText, SetAside
from envaudit.report.places import place_of

# Worst first. `gap` is evidence that is missing; `remark` is a finding that does not fail the run; `aside`
# is what was taken out by somebody who may, a node that may be missing among it.
STATES = ("failed", "gap", "remark", "aside", "passed")

# The rule that speaks of missing evidence.
NO_EVIDENCE = "EA901"
# What an outcome without a finding is called.
CLEAN = "no findings"
# Where a finding is that is neither about a node nor about a file.
RUN = "run"


class Outcome(NamedTuple):
    """What one rule came to at one place.

    Attributes:
        place: a node, a file, or `RUN`.
        rule: its id; empty where nothing was found at that place.
        state: one of `STATES`, the worst of its findings.
        findings: worst first.
        aside: what is set aside of that rule at that place.
    """

    place: str
    rule: str
    state: str
    findings: Tuple[Finding, ...] = ()
    aside: Tuple[SetAside, ...] = ()


def outcomes(report: Report) -> List[Outcome]:
    """All outcomes: those of the findings in their order, what is set aside, then what is well."""
    found: Dict[Tuple[str, str], List[Finding]] = {}
    aside: Dict[Tuple[str, str], List[SetAside]] = {}
    for finding in all_findings(report):
        for place in _places(finding, report):
            found.setdefault((place, finding.rule), []).append(finding)
    for each in report.set_aside:
        for place in _places(each.finding, report):
            aside.setdefault((place, each.finding.rule), []).append(each)
    told = []
    for key in dict.fromkeys((*found, *aside)):
        findings, set_aside = tuple(found.get(key, ())), tuple(aside.get(key, ()))
        state = min((state_of(each, report) for each in findings), key=STATES.index, default="aside")
        told.append(Outcome(*key, state, findings, set_aside))
    spoken_of = {outcome.place for outcome in told if outcome.findings}
    return [*told, *(Outcome(place, "", "passed") for place in examined(report) if place not in spoken_of)]


def state_of(finding: Finding, report: Report) -> str:
    """What a finding does to the run: one of `STATES`."""
    if report.verdict.fails(finding):
        return "failed"
    if finding.severity == "incomplete":
        return "gap"
    # A node that may be missing has not passed.
    return "aside" if finding.rule == NO_EVIDENCE else "remark"


def examined(report: Report) -> Tuple[str, ...]:
    """The nodes that answered, or the files that were read."""
    return report.nodes or tuple(path for path in report.about.split(", ") if path)


def all_findings(report: Report) -> Tuple[Finding, ...]:
    """The report's findings, and one for each gap that none of them names."""
    return (*report.findings, *_unspoken_gaps(report))


def verdict_of(report: Report) -> Verdict:
    """The report's verdict, with the gaps that none of its findings names."""
    gaps = any(finding.severity == "incomplete" for finding in all_findings(report))
    return replace(report.verdict, incomplete=report.verdict.incomplete or gaps)


def severity_level(finding: Finding, report: Report) -> str:
    """The severity for readers that know three: `error`, `warning`, `note`.

    Whatever fails the run or leaves it incomplete is an error to them.
    """
    if state_of(finding, report) in ("failed", "gap"):
        return "error"
    return "warning" if finding.severity == "warning" else "note"


def rule_text(rule_id: str, report: Report) -> RuleText:
    """The register's words for a rule; of a rule that the report has no words for, the id alone."""
    return report.rules.get(rule_id) or RuleText(rule_id, "error", rule_id)


def _unspoken_gaps(report: Report) -> Iterator[Finding]:
    # That a node may be missing is said by the same rule, as a remark.
    speaking = [each for each in report.findings if each.severity == "incomplete" or each.rule == NO_EVIDENCE]
    named = {node for finding in speaking for node in finding.nodes}
    unnamed = [node for node in report.missing if node not in named]
    for node in unnamed:
        gone = report.missing[node]
        evidence = (f"{gone.kind}: {gone.why}" if gone.why else gone.kind,)
        yield Finding(
            NO_EVIDENCE, "incomplete", "no evidence", (node,), evidence=evidence, hint=gone.next_step
        )
    is_silent = not unnamed and all(state_of(each, report) in ("remark", "aside") for each in report.findings)
    if is_silent and not examined(report):
        yield Finding(NO_EVIDENCE, "incomplete", "nothing was examined")


def _places(finding: Finding, report: Report) -> Tuple[str, ...]:
    if finding.nodes:
        return finding.nodes
    place = place_of(finding)
    return (place.path if place else report.about or RUN,)
