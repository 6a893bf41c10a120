"""`envaudit store verify` and `envaudit store prune`."""

from __future__ import annotations

import argparse
import os
import time

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
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    if options.action == "prune":
        removed = store.prune(options.keep, now)
        for name in removed:
            write(f"removed {printable(name)}\n")
        write(f"{len(removed)} removed, {len(store.entries())} kept\n")
        return EXIT_PASS
    problems = store.verify()
    for problem in problems:
        write(f"{printable(problem.path)}: {printable(problem.text)}\n")
    entries = store.entries()
    for entry in entries:
        if entry.captured_at > now:
            # No damage: this machine's clock may be the one that is wrong.
            write(f"{entry.name}: it is {now} here; this is the latest only of nodes without another\n")
    read, wrong = _count(len(entries), "snapshot"), _count(len(problems), "problem")
    write(f"{printable(store.path)}: {read} read, {wrong}\n")
    return InputError.exit_code if problems else EXIT_PASS


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
