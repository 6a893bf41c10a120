"""From evidence to findings and a verdict, under the policy of the configuration."""

from __future__ import annotations

import argparse
from typing import Tuple

from envaudit.model import Finding, Verdict
from envaudit.rules import Evidence, Policy, judge


def judged(evidence: Evidence, options: argparse.Namespace) -> Tuple[Tuple[Finding, ...], Verdict]:
    """Findings, worst first, and the verdict over them."""
    policy = _policy(options)
    findings = judge(evidence, policy)
    return findings, Verdict.of(findings, policy.fail_on)


def _policy(options: argparse.Namespace) -> Policy:
    fail_on = getattr(options, "fail_on", None)
    try:
        from envaudit.cli import configuration
    except ImportError:  # the one-file form reads no TOML
        return Policy(fail_on=fail_on or Policy.fail_on)
    gate = configuration.of(options).gate
    return Policy(
        fail_on=fail_on or gate.fail_on, require=Policy.require if gate.require is None else gate.require
    )
