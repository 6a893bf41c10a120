"""`envaudit explain EA214`: what a rule means, why it matters, how to fix it, how to change it."""

from __future__ import annotations

import argparse
import difflib
import textwrap
from typing import Iterator

from envaudit.cli.policyof import policy_of
from envaudit.cli.selection import add_config_option
from envaudit.cli.stdout import write
from envaudit.errors import EXIT_PASS, UsageError
from envaudit.rules import Policy, Rule, all_rules

_COLUMNS = 90


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `envaudit explain`."""
    parser.add_argument("rules", nargs="+", metavar="ID", help="a rule's id, EA214")
    add_config_option(parser)


def execute(options: argparse.Namespace) -> int:
    """Explain each rule that is named.

    Raises:
        UsageError: no rule has this id.
    """
    known = {rule.id: rule for rule in all_rules()}
    for name in options.rules:
        if name.upper() not in known:
            near = difflib.get_close_matches(name.upper(), known, n=3)
            advice = f"Did you mean {' or '.join(near)}? " if near else ""
            raise UsageError(f"no rule is called '{name}'", next_step=f"{advice}'envaudit rules' lists them.")
    policy = policy_of(options)
    texts = ["\n".join(_explained(known[name.upper()], policy)) + "\n" for name in options.rules]
    write("\n".join(texts))
    return EXIT_PASS


def _explained(rule: Rule, policy: Policy) -> Iterator[str]:
    level = policy.level_of(rule.id, rule.severity)
    changed = "" if level == rule.severity else f" (by default {rule.severity})"
    judged = "across nodes" if rule.scope == "cross" else "on each node"
    yield f"{rule.id}  {rule.title}"
    yield f"severity {level}{changed}, judged {judged}"
    yield ""
    yield from _paragraph("Why", rule.why)
    if rule.case:
        yield from _paragraph("Seen", rule.case)
    if rule.how_to_fix:
        yield from _paragraph("Fix", rule.how_to_fix)
    if rule.claims is not None:
        yield from _paragraph("Facts", f"{', '.join(rule.claims.of)}; compared {rule.claims.compared}")
        if rule.claims.follows:
            yield from _paragraph("Takes along", ", ".join(rule.claims.follows))
    elif rule.needs:
        yield from _paragraph("Reads", ", ".join(rule.needs))
    yield ""
    if rule.severity == "incomplete":
        yield "No policy and no waiver changes it: missing evidence is never a pass."
        return
    yield "To change it, in envaudit.toml:"
    yield ""
    yield f"    [rules.{rule.id}]"
    yield '    severity = "warning"    # error, warning, info or off'
    own = policy.thresholds.get(rule.id, {})
    for name, number in rule.thresholds.items():
        value = own.get(name, number.value)
        source = f"; {number.source}" if number.source else ""
        yield f"    {name.replace('_', '-')} = {value:g}    # {number.unit} {number.meaning}{source}"
    yield ""
    yield "To accept it for a time on some nodes:"
    yield ""
    yield f'    envaudit waive {rule.id} --nodes NODESET --until YYYY-MM-DD --reason "..."'


def _paragraph(head: str, text: str) -> Iterator[str]:
    indent = " " * 13
    yield from textwrap.wrap(
        text,
        _COLUMNS,
        initial_indent=f"{head:<13}",
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
