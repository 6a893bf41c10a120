"""The policy that a run is judged by: of the configuration, or compiled into the one-file form.

Apart from the judging itself, for a prolog has no time to import what reports are made of.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Any, Dict, Sequence, Tuple

from envaudit.errors import UsageError
from envaudit.rules.policy import Policy


def policy_of(options: argparse.Namespace, *, full: bool = False) -> Policy:
    """What the configuration and the options say of this run; read once a command.

    Raises:
        UsageError: an option that this form has not, or a section that there is not.
    """
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
    asked = _required(options)
    held = settings.gate.require
    chosen["require"] = _all_of(Policy.require if held is None else held, asked)
    chosen["named"] = _all_of(held or (), asked)
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
        require=_all_of(policy.require, _required(options)),
        named=_all_of(policy.named, _required(options)),
        today=today,
        full=full,
    )


def _required(options: argparse.Namespace) -> Sequence[str]:
    """What `--require` names, where the command has it."""
    names: Sequence[str] = getattr(options, "require", None) or ()
    if names:
        from envaudit.model.codec import SECTION_SCHEMAS

        unknown = next((name for name in names if name not in SECTION_SCHEMAS), None)
        if unknown is not None:
            raise UsageError(
                f"no section is called '{unknown}'",
                where="--require",
                next_step=f"Sections: {', '.join(SECTION_SCHEMAS)}.",
            )
    return names


def _all_of(one: Sequence[str], other: Sequence[str]) -> Tuple[str, ...]:
    return tuple(dict.fromkeys((*one, *other)))
