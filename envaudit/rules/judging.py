"""All rules over one run's evidence."""

from __future__ import annotations

from typing import Tuple

from envaudit.model.finding import Finding
from envaudit.rules.registry import Evidence, Policy, Rule, all_rules

_DEFAULT = Policy()


def judge(evidence: Evidence, policy: Policy = _DEFAULT) -> Tuple[Finding, ...]:
    """The findings of every rule that has what it needs, worst first.

    A rule whose sections no node has stays silent; that they are not there is for EA902 to say.
    """
    findings = [
        finding
        for rule in all_rules()
        if _has_what_it_needs(rule, evidence)
        for finding in rule.findings(evidence, policy)
    ]
    return tuple(sorted(findings, key=lambda finding: finding.rank))


def _has_what_it_needs(rule: Rule, evidence: Evidence) -> bool:
    if not rule.needs:
        return True
    return any(
        all(
            need in fingerprint.sections and fingerprint.sections[need].status in ("ok", "partial")
            for need in rule.needs
        )
        for fingerprint in evidence.fingerprints
    )
