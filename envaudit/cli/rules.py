"""`envaudit rules`: every rule, at the severity that the policy at hand gives it."""

from __future__ import annotations

import argparse

from envaudit.cli.policyof import policy_of
from envaudit.cli.selection import add_config_option
from envaudit.cli.stdout import write
from envaudit.errors import EXIT_PASS
from envaudit.rules import all_rules


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `envaudit rules`."""
    add_config_option(parser)


def execute(options: argparse.Namespace) -> int:
    """A line a rule: id, severity, scope, title; what the policy has changed says its default."""
    policy = policy_of(options)
    lines = []
    for rule in all_rules():
        level = policy.level_of(rule.id, rule.severity)
        own = "" if level == rule.severity else f"   (by default {rule.severity})"
        lines.append(f"{rule.id}  {level:<10}  {rule.scope:<5}  {rule.title}{own}\n")
    write("".join(lines))
    return EXIT_PASS
