"""`envaudit store verify` and `envaudit store prune`."""

from __future__ import annotations

import argparse
import os

from envaudit.cli.loading import add_store_option, open_store
from envaudit.cli.stdout import write
from envaudit.errors import EXIT_PASS, InputError, UsageError
from envaudit.report.screen import printable


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `envaudit store`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    verify = actions.add_parser("verify", help="recompute every digest, name what is damaged")
    prune = actions.add_parser("prune", help="remove old snapshots that no tag needs")
    prune.add_argument("--keep", type=int, required=True, metavar="N", help="newest snapshots kept per node")
    for action in (verify, prune):
        add_store_option(action)


def execute(options: argparse.Namespace) -> int:
    """Verify (4 when something is damaged) or prune.

    Raises:
        UsageError: there is no store at all, as behind a mistyped `--store`.
    """
    store = open_store(options)
    if not os.path.lexists(store.path):
        raise UsageError(
            "there is no store",
            where=store.path,
            next_step="Name one with --store; 'envaudit snapshot' makes one.",
        )
    if options.action == "prune":
        removed = store.prune(options.keep)
        for name in removed:
            write(f"removed {printable(name)}\n")
        write(f"{len(removed)} removed, {len(store.entries())} kept\n")
        return EXIT_PASS
    problems = store.verify()
    for problem in problems:
        write(f"{printable(problem.path)}: {printable(problem.text)}\n")
    whole = len(store.entries())
    write(f"{printable(store.path)}: {whole} snapshots read, {len(problems)} problems\n")
    return InputError.exit_code if problems else EXIT_PASS
