"""The policy that a run is judged by: of the configuration, or compiled into the one-file form.

Apart from the judging itself, for a prolog has no time to import what reports are made of.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Any, Dict

from envaudit.errors import UsageError
from envaudit.rules.policy import Policy


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
