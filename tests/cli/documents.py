"""The generated parts of the documentation: every option of every command, the exit codes."""

from __future__ import annotations

import argparse

from envaudit.cli.main import COMMANDS, parser_of
from envaudit.errors import exit_code_table


def options_document() -> str:
    """docs/cli.md: the options of every command.

    Made from the parsers rather than from the text of `--help`, which each Python lays out anew.
    """
    parts = ["# Commands and options\n", "Generated from the parsers by `nox -s goldens`.\n"]
    for name, text in COMMANDS.items():
        parts.append(f"## envaudit {name}\n\n{text}.\n")
        parts += options_of(parser_of(name))
    return "\n".join(parts)


def options_of(parser: argparse.ArgumentParser) -> list[str]:
    """One table a group of options; sub-commands follow."""
    parts = []
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if action.dest != "help"]
        branches = [action for action in actions if isinstance(action, argparse._SubParsersAction)]
        rows = [f"| {spelled(action)} | {action.help} |" for action in actions if action not in branches]
        if rows:
            title = f"{group.title}\n\n" if group.title not in ("options", "positional arguments") else ""
            parts.append(title + "\n".join(["| option | meaning |", "|---|---|", *rows]) + "\n")
        for branch in branches:
            for name, inner in branch.choices.items():
                parts.append(f"### {parser.prog} {name}\n")
                parts += options_of(inner)
    return parts


def spelled(action: argparse.Action) -> str:
    """`-o`, `--output FILE`; choices are spelled out."""
    value = ""
    if action.choices:
        value = " " + " \\| ".join(map(str, action.choices))
    elif action.nargs != 0:
        value = f" {action.metavar or action.dest.upper()}"
    names = ", ".join(f"`{name}`" for name in action.option_strings)
    return f"{names}{value}" if names else f"`{action.metavar or action.dest}`"


def exit_codes_table() -> str:
    """The README's table of exit codes."""
    rows = [f"| {code} | {meaning} |" for code, meaning in exit_code_table().items()]
    return "\n".join(["| code | meaning |", "|---|---|", *rows])
