"""From evidence to findings and a verdict, under the policy of the configuration."""

from __future__ import annotations

import argparse
import time
from typing import Any, Dict, List, Sequence, Tuple

from envaudit.model import Finding, Verdict
from envaudit.model.nodeset import fold
from envaudit.report import Stage
from envaudit.rules import Evidence, Judgement, Policy, judgement
from envaudit.rules.unexamined import unexamined
from envaudit.rules.waivers import Waived


def judged(evidence: Evidence, options: argparse.Namespace) -> Tuple[Tuple[Finding, ...], Verdict]:
    """Findings, worst first, and the verdict over them."""
    policy = policy_of(options)
    found = judgement(evidence, policy)
    return found.findings, Verdict.of(found.findings, policy.fail_on)


def judged_whole(evidence: Evidence, options: argparse.Namespace, *, full: bool) -> Tuple[Judgement, Policy]:
    """Findings with what was waived, and the policy they were judged under.

    `full` where the run looks at all that a waiver could match.
    """
    policy = policy_of(options, full=full)
    return judgement(evidence, policy), policy


def policy_of(options: argparse.Namespace, *, full: bool = False) -> Policy:
    """What the configuration and the options say of this run; read once a command."""
    fail_on = getattr(options, "fail_on", None)
    today = time.strftime("%Y-%m-%d", time.gmtime())
    try:
        from envaudit.cli import configuration
    except ImportError:  # the one-file form reads no TOML
        return Policy(fail_on=fail_on or Policy.fail_on, today=today, full=full)
    settings = configuration.of(options)
    chosen: Dict[str, Any] = {"fail_on": fail_on or settings.gate.fail_on, "full": full}
    if settings.gate.require is not None:
        chosen["require"] = settings.gate.require
    if not settings.policy:
        return Policy(today=today, **chosen)
    from envaudit.cli import policyfile

    return policyfile.policy_of(settings.policy, today=today, **chosen)


def waived_stages(waived: Sequence[Waived]) -> Tuple[Stage, ...]:
    """A line for each waiver that took something out of the run: it is never silent."""
    taken: Dict[int, List[Waived]] = {}
    for each in waived:
        taken.setdefault(id(each.waiver), []).append(each)
    stages = []
    for of_one in taken.values():
        waiver = of_one[0].waiver
        nodes = {node for each in of_one for node in each.finding.nodes}
        where = f" on {fold(nodes)}" if nodes else ""
        stages.append(
            Stage("waived", f"{waiver.rule}{where} until {waiver.expires}: {waiver.reason} ({waiver.owner})")
        )
    return tuple(stages)


def unexamined_stages(evidence: Evidence, policy: Policy) -> Tuple[Stage, ...]:
    """One line for all that rules would have looked at and could not, mostly without root."""
    told = "; ".join(each.words for each in unexamined(evidence, policy))
    return (Stage("unexamined", told),) if told else ()
