"""`envaudit log`: what changed on a node, and when."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import List, Optional, Tuple

from envaudit._version import __version__
from envaudit.cli import references
from envaudit.cli.loading import add_store_option, open_store
from envaudit.cli.output import add_output_options, check_output_options, emit
from envaudit.diff import compare_to_reference
from envaudit.errors import UsageError
from envaudit.model import Drift, Fingerprint, Verdict
from envaudit.report import Moment, Report
from envaudit.store import Store


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `envaudit log`."""
    parser.add_argument("node", metavar="NODE", help="one node of the store")
    add_store_option(parser)
    add_output_options(parser)


def execute(options: argparse.Namespace) -> int:
    """Print the node's snapshots, oldest first, each with what it changed."""
    began = time.monotonic()
    check_output_options(options)
    nodes = references.expand(options.node)
    if len(nodes) != 1:
        raise UsageError("the log is one node's", where=options.node, next_step="Name a single node.")
    timeline = moments(open_store(options), nodes[0])
    report = Report(
        command="log",
        tool=__version__,
        verdict=Verdict(failed=False, incomplete=False),
        nodes=nodes,
        comparing=False,
        outcome=_outcome(timeline),
        elapsed_s=time.monotonic() - began,
        verbose=options.verbose,
        timeline=tuple(timeline),
    )
    emit(report, options)
    return 0


def moments(store: Store, node: str) -> List[Moment]:
    """The history of a node; a snapshot is read only where the digest differs from the one before."""
    timeline: List[Moment] = []
    before: Optional[Tuple[str, str]] = None
    for entry in store.history(node):
        digest = entry.nodes[node]
        drifts: Tuple[Drift, ...] = ()
        if before is not None and before[1] != digest:
            drifts = _changes(_held(store, before[0], node), _held(store, entry.name, node))
        timeline.append(Moment(node, entry.captured_at, entry.tags_of(node), drifts, first=before is None))
        before = (entry.name, digest)
    return timeline


def _changes(before: Fingerprint, now: Fingerprint) -> Tuple[Drift, ...]:
    return compare_to_reference({now.node: before}, {now.node: now}, basis="baseline", suffix="@before")


def _held(store: Store, name: str, node: str) -> Fingerprint:
    return replace(store.load(name).by_node[node], node=node)


def _outcome(timeline: List[Moment]) -> str:
    changes = sum(any(drift.kind != "unknown" for drift in moment.drifts) for moment in timeline)
    plural = "" if len(timeline) == 1 else "s"
    return f"{len(timeline)} snapshot{plural}, {changes} with changes"
