"""`envaudit log`: what changed on a node and when, and the last good run before it."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Dict, List, Optional, Tuple

from envaudit._version import __version__
from envaudit.cli import launched, references
from envaudit.cli.loading import add_store_option, open_store
from envaudit.cli.output import add_output_options, check_output_options, emit
from envaudit.diff import compare_to_reference
from envaudit.errors import UsageError
from envaudit.model import Drift, Fingerprint, Verdict
from envaudit.report import Moment, Report
from envaudit.store import Store

GOOD = "good"
# Of so many snapshots it is read what ran before them: that costs 3 ms each.
_RUNS_READ = 100


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
    """The history of a node: what each snapshot changed, what ran before it, and the last good run.

    Of the newest snapshots all are read, for what ran stands among their notes; of older ones those alone
    whose digest differs from the one before.
    """
    timeline: List[Moment] = []
    before: Optional[Tuple[str, str]] = None
    history = store.history(node)
    held = _Held(store, node)
    last_good = ""
    for place, entry in enumerate(history):
        digest = entry.nodes[node]
        drifts: Tuple[Drift, ...] = ()
        if before is not None and before[1] != digest:
            drifts = _changes(held.of(before[0]), held.of(entry.name))
        is_new = place >= len(history) - _RUNS_READ
        record = launched.launch_of(held.of(entry.name)) if is_new or drifts else None
        run = launched.words_of(record) if record is not None else ""
        moment = Moment(node, entry.captured_at, entry.tags_of(node), drifts, first=before is None, run=run)
        changed = any(drift.kind != "unknown" for drift in drifts)
        failed = record is not None and not launched.succeeded(record)
        timeline.append(replace(moment, last_good=last_good) if changed or failed else moment)
        if launched.succeeded(record) or (record is None and GOOD in moment.tags):
            last_good = f"{entry.captured_at} {run}".rstrip()
        before = (entry.name, digest)
    return timeline


class _Held:
    """A node's snapshots; the last two are kept, for each is compared with the one before."""

    def __init__(self, store: Store, node: str) -> None:
        self._store = store
        self._node = node
        self._read: Dict[str, Fingerprint] = {}

    def of(self, name: str) -> Fingerprint:
        """What one snapshot holds of the node."""
        if name not in self._read:
            while len(self._read) > 1:
                del self._read[next(iter(self._read))]
            self._read[name] = self._store.load(name).by_node[self._node]
        return self._read[name]


def _changes(before: Fingerprint, now: Fingerprint) -> Tuple[Drift, ...]:
    return compare_to_reference({now.node: before}, {now.node: now}, basis="baseline", suffix="@before")


def _outcome(timeline: List[Moment]) -> str:
    changes = sum(any(drift.kind != "unknown" for drift in moment.drifts) for moment in timeline)
    plural = "" if len(timeline) == 1 else "s"
    return f"{len(timeline)} snapshot{plural}, {changes} with changes"
