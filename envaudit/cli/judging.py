"""From evidence to findings and a verdict, under the policy of the configuration."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from envaudit.errors import UsageError
from envaudit.model import Finding, Verdict
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
    told = {_key(each) for each in (*found.findings, *(waived.finding for waived in found.waived))}
    return tuple(each for each in whole.findings if _key(each) not in told)


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


def policy_of(options: argparse.Namespace, *, full: bool = False) -> Policy:
    """What the configuration and the options say of this run; read once a command."""
    fail_on = getattr(options, "fail_on", None)
    today = time.strftime("%Y-%m-%d", time.gmtime())
    try:
        from envaudit.cli import configuration
    except ImportError:  # the one-file form reads no TOML
        if getattr(options, "config", None):
            raise UsageError(
                "this one-file form reads no configuration",
                where=f"--config {options.config}",
                next_step="Leave it out, or install the package: pip install envaudit.",
            ) from None
        if getattr(options, "policy", None):
            raise UsageError(
                "this one-file form reads no TOML",
                where=f"--policy {options.policy}",
                next_step="Compile it in: envaudit bundle --policy FILE -o envaudit.pyz.",
            ) from None
        return _compiled_policy(options, today=today, full=full)
    settings = configuration.of(options)
    chosen: Dict[str, Any] = {"fail_on": fail_on or settings.gate.fail_on, "full": full}
    require = Policy.require if settings.gate.require is None else settings.gate.require
    chosen["require"] = tuple(dict.fromkeys((*require, *(getattr(options, "require", None) or ()))))
    if not settings.policy:
        return Policy(today=today, **chosen)
    from envaudit.cli import policyfile

    return policyfile.policy_of(settings.policy, today=today, **chosen)


def _compiled_policy(options: argparse.Namespace, *, today: str, full: bool) -> Policy:
    """What was compiled into the one-file form."""
    from envaudit.cli import compiled

    held = compiled.policy()
    policy = Policy() if held is None else held.policy
    return replace(
        policy,
        fail_on=getattr(options, "fail_on", None) or policy.fail_on,
        require=tuple(dict.fromkeys((*policy.require, *(getattr(options, "require", None) or ())))),
        today=today,
        full=full,
    )


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


def unexamined_stages(evidence: Evidence, policy: Policy) -> Tuple[Stage, ...]:
    """One line for all that rules would have looked at and could not, mostly without root."""
    told = "; ".join(each.words for each in unexamined(evidence, policy))
    return (Stage("unexamined", told),) if told else ()
