"""`envaudit baseline accept`: make what nodes are now their baseline, after a look at what changes."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from typing import Dict

from envaudit._version import __version__
from envaudit.cli import references
from envaudit.cli.judging import judged
from envaudit.cli.loading import add_store_option, open_store
from envaudit.cli.output import add_output_options, check_output_options, emit
from envaudit.cli.selection import add_config_option
from envaudit.diff import compare_to_reference
from envaudit.errors import EXIT_PASS, UsageError
from envaudit.model import Fingerprint
from envaudit.model.nodeset import fold
from envaudit.report import Report, Stage
from envaudit.report.screen import printable
from envaudit.rules import Evidence
from envaudit.store.tags import check_tag

DEFAULT_TAG = "good"


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `envaudit baseline`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    accept = actions.add_parser("accept", help="move a tag to what nodes were in a stored snapshot")
    accept.add_argument(
        "--from",
        dest="source",
        required=True,
        metavar="REF",
        help="stored nodes, node01@latest or node[01-16]@2026-11-30",
    )
    accept.add_argument("--tag", default=DEFAULT_TAG, help="the baseline's tag; default: good")
    accept.add_argument("--yes", action="store_true", help="accept without being asked")
    add_store_option(accept)
    add_config_option(accept)
    add_output_options(accept)


def execute(options: argparse.Namespace) -> int:
    """Show what would change, and move the tag once that is accepted.

    Raises:
        UsageError: the reference is no stored one.
    """
    began = time.monotonic()
    check_output_options(options)
    check_tag(options.tag)
    reference = references.parse(options.source)
    if reference.when is None:
        raise UsageError(
            f"'{options.source}' names no stored snapshot",
            where="--from",
            next_step="Take one with 'envaudit snapshot', then name it: node01@latest.",
        )
    store = open_store(options)
    places = store.locate(reference.nodes, reference.when)
    now = store.resolve_many(reference.nodes, reference.when)
    before = _tagged(options, now)
    drifts = compare_to_reference(
        before, {node: now[node] for node in before}, basis="baseline", suffix=f"@{options.tag}"
    )
    labelled = tuple(replace(each, node=f"{node}@{options.tag}") for node, each in before.items())
    evidence = Evidence(tuple(now.values()), drifts=drifts, references=labelled, comparing=bool(before))
    findings, verdict, rests_on, aside = judged(evidence, options)
    first = len(now) - len(before)
    review = f"{counted(len(drifts), 'difference')} from before" if before else "no baseline before"
    if before and first:
        review += f", {counted(first, 'node')} had none"
    report = Report(
        command="baseline",
        tool=__version__,
        verdict=verdict,
        findings=findings,
        drifts=drifts,
        nodes=tuple(now),
        reference=f"{node_set(options.source)}@{options.tag}" if before else "",
        comparing=bool(before),
        stages=(*rests_on, Stage(options.tag, review)),
        set_aside=aside,
        elapsed_s=time.monotonic() - began,
        verbose=options.verbose,
    )
    emit(report, options)
    if not (options.yes or _asks_yes()):
        raise UsageError(
            "nothing is accepted", next_step="Give --yes once the changes are what you mean them to be."
        )
    # Each file is read whole before it is tagged: once for all of its nodes.
    for name in sorted(set(places.values())):
        store.tag_nodes(options.tag, [node for node in places if places[node] == name], name)
    sys.stderr.write(f"{printable(fold(now))}@{options.tag} is what {printable(options.source)} was\n")
    return EXIT_PASS


def counted(number: int, noun: str) -> str:
    """`1 node`, `3 nodes`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def node_set(text: str) -> str:
    """The node set of a stored reference as it was typed."""
    return text.rpartition("@")[0]


def _tagged(options: argparse.Namespace, now: Dict[str, Fingerprint]) -> Dict[str, Fingerprint]:
    """The present baseline of those nodes that have one."""
    store = open_store(options)
    held = store.tags().get(options.tag, {})
    nodes = [node for node in now if node in held]
    return store.resolve_many(nodes, options.tag) if nodes else {}


def _asks_yes() -> bool:
    """Ask on a terminal; anywhere else nothing is accepted without `--yes`."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    sys.stderr.write("Accept this as the baseline? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
