"""All rules over one run's evidence."""

from __future__ import annotations

from dataclasses import replace
from typing import List, NamedTuple, Optional, Sequence, Tuple

from envaudit.model.finding import Finding
from envaudit.rules import claiming, waivers, yielding
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Evidence, Rule, all_rules
from envaudit.rules.symptoms import without_symptoms
from envaudit.rules.waivers import Waived

_DEFAULT = Policy()


class Judgement(NamedTuple):
    """What the rules say, worst first, and what waivers took out of it."""

    findings: Tuple[Finding, ...]
    waived: Tuple[Waived, ...]


def judge(
    evidence: Evidence, policy: Policy = _DEFAULT, *, rules: Optional[Sequence[Rule]] = None
) -> Tuple[Finding, ...]:
    """The findings of every rule that has what it needs, worst first, without what is waived.

    A rule whose sections no node has stays silent; that they are not there is for EA902 to say.

    Args:
        evidence: what is judged.
        policy: what it is judged under.
        rules: these alone; None for all.
    """
    return judgement(evidence, policy, rules=rules).findings


def judgement(
    evidence: Evidence, policy: Policy = _DEFAULT, *, rules: Optional[Sequence[Rule]] = None
) -> Judgement:
    """The same, with what was waived."""
    rules = all_rules() if rules is None else rules
    dealt = claiming.deal(evidence, rules, policy)
    titles = {rule.id: rule.title for rule in rules}
    claims, taken = yielding.yield_to_lock(dealt, evidence.drifts, policy, titles)
    evidence = replace(evidence, claims=claims, taken_by_lock=taken)
    found = _findings(rules, evidence, policy)
    kept, waived = waivers.apply(found, policy)
    kept = without_symptoms(kept)
    judged = [*(each.node for each in evidence.fingerprints), *evidence.missing]
    idle = waivers.unused(policy, waived, judged)
    if idle:
        about = [rule for rule in rules if rule.id == "EA911"]
        kept += _findings(about, replace(evidence, unused_waivers=idle), policy)
    return Judgement(tuple(sorted(kept, key=lambda finding: finding.rank)), tuple(waived))


def _findings(rules: Sequence[Rule], evidence: Evidence, policy: Policy) -> List[Finding]:
    return [
        finding
        for rule in rules
        if _has_what_it_needs(rule, evidence)
        for finding in rule.findings(evidence, policy)
    ]


def _has_what_it_needs(rule: Rule, evidence: Evidence) -> bool:
    if not rule.needs:
        return True
    if not any(map(evidence.covers, rule.needs)):
        return False  # the user asked for something else
    return any(
        all(
            need in fingerprint.sections and fingerprint.sections[need].status in ("ok", "partial")
            for need in rule.needs
        )
        for fingerprint in evidence.fingerprints
    )
