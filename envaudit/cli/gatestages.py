"""The stages of a gate: each looks at one thing, says what it saw in a line, and judges nothing."""

from __future__ import annotations

import argparse
import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from envaudit._version import __version__
from envaudit.cli import asking, configuration
from envaudit.cli.baselines import compare_with, is_tag
from envaudit.cli.check import run_on
from envaudit.cli.checkoptions import COLLECTIVES, CheckAsk, asked_by
from envaudit.cli.checkwords import outcome_words
from envaudit.cli.clock import clock_words, clocks_of
from envaudit.cli.comparing import Comparison, all_with_all
from envaudit.cli.foreign import ForeignFile, check_is_lock, read_lock_report
from envaudit.cli.loading import Loaded, load, open_store
from envaudit.cli.locks import categories_of, platform_here
from envaudit.cli.meetingplan import Arranged, arranged, arranged_here
from envaudit.cli.policyof import policy_of
from envaudit.cli.references import Reference
from envaudit.cli.selection import selected_nodes
from envaudit.cli.thisnode import this_node
from envaudit.cli.verify import INTEGRITY, HeldToLock, examined, held_to_lock
from envaudit.diff import PathFilter
from envaudit.errors import UsageError
from envaudit.model import Fingerprint, Missing, Section, Snapshot
from envaudit.model.checked import checked_devices
from envaudit.model.collective import collective_runs
from envaudit.model.nodeset import fold
from envaudit.report import Clock

_SECTION_SCHEMA = 1


class Locked(NamedTuple):
    """A lock that was read.

    Attributes:
        file: to hold nodes against.
        freshness: what has changed since it was made; None for a kind that does not record that.
        platform: of a node whose machine is not known.
    """

    file: ForeignFile
    freshness: Fingerprint | None
    platform: str

    @property
    def words(self) -> str:
        """`conda-lock.yml is fresh`."""
        if self.freshness is None:
            return f"{self.file.path}: {self.file.kind.KIND} does not record what it was made from"
        changes = self.freshness.sections["freshness"].facts["changes"]
        return f"{self.file.path} is {'stale' if changes else 'fresh'}"


def read_lock(options: argparse.Namespace, now: str) -> Locked:
    """The lock, and whether it is fresh, as `envaudit lock --check` tells.

    Raises:
        InputError: it, or a source that it was made from, cannot be read.
        UsageError: it is no lock.
    """
    file = read_lock_report(options.lock, categories_of(options))
    platform = platform_here(options)
    check_is_lock(file)
    if file.kind.KIND != "conda-lock.yml":
        return Locked(file, None, platform)
    from envaudit.cli.lock import freshness_of

    section = freshness_of(options.lock, configuration.of(options).lock)
    return Locked(file, Fingerprint("", "lock", now, __version__, {section.name: section}), platform)


def read_nodes(options: argparse.Namespace) -> tuple[tuple[str, ...], Snapshot]:
    """The nodes that were named, none for this machine, and what they are.

    Raises:
        UsageError: nodes that are not stored, or none named where they have to be.
    """
    nodes = selected_nodes(options, configuration.of(options))
    if not options.stored:
        return nodes, asking.ask(nodes, options)
    named = nodes or (this_node(),)
    (stored,) = load([Reference(fold(named), nodes=named, when="latest")], options)
    return named, Snapshot(tuple(stored.fingerprints.values()), stored.missing)


def nodes_words(snapshot: Snapshot, *, stored: bool) -> str:
    """`3 of 4 answered; node02 unreachable: no route to host`."""
    count = len(snapshot.fingerprints)
    if stored:
        times = sorted(each.captured_at for each in snapshot.fingerprints)
        span = times[0] if times[0] == times[-1] else f"{times[0]} to {times[-1]}"
        return f"{count} as stored, of {span}"
    gone = [f"{node} {why.kind}" for node, why in snapshot.missing.items()]
    more = f"; {', '.join(gone[:3])}" if gone else ""
    more += f" and {len(gone) - 3} more" if len(gone) > 3 else ""
    return f"{count} of {count + len(gone)} answered{more}"


def hold_to_lock(locked: Locked, snapshot: Snapshot, options: argparse.Namespace) -> HeldToLock:
    """The nodes against the lock, as `envaudit verify` does it."""
    held = held_to_lock(locked.file, snapshot.fingerprints, options, locked.platform)
    looked = "; ".join(f"files {stage.text}" for stage in examined(snapshot.fingerprints))
    return held._replace(text=f"{held.text}; {looked}" if looked else held.text)


class Compared(NamedTuple):
    """Nodes against each other or a baseline; `without_baseline` are those that lack the tag."""

    comparison: Comparison
    without_baseline: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """`3 facts differ, against good`."""
        count = sum(drift.kind != "unknown" for drift in self.comparison.drifts)
        facts = (
            "no fact differs" if not count else f"{count} {'fact differs' if count == 1 else 'facts differ'}"
        )
        against = self.comparison.description
        without = f"; without: {fold(self.without_baseline)}" if self.without_baseline else ""
        return facts + (f" from {against}" if against else "") + without


def compare(snapshot: Snapshot, options: argparse.Namespace) -> Compared:
    """Against `--baseline`, else each role within itself.

    A node that lacks the tag is held against nothing, and named: it is never compared with the others
    instead.

    Raises:
        UsageError: a tag that no node has, or a reference that cannot be used.
    """
    nodes = tuple(map(_without_files, snapshot.fingerprints))
    if options.baseline is None or options.baseline == "majority":
        drifts = all_with_all(nodes, PathFilter(), policy_of(options))
        return Compared(Comparison(nodes, snapshot.missing, drifts))
    without: tuple[str, ...] = ()
    if is_tag(options.baseline):
        tagged = open_store(options).nodes_with(options.baseline)
        without = tuple(each.node for each in nodes if each.node not in tagged)
    held = tuple(each for each in nodes if each.node not in without)
    # Of a tag that no node has, the store says which there are.
    side = held or nodes
    loaded = Loaded(
        Reference("", nodes=tuple(each.node for each in side)), {each.node: each for each in side}, {}
    )
    found = compare_with([loaded], options, PathFilter())
    return Compared(replace(found, current=nodes, missing={**snapshot.missing, **found.missing}), without)


def _without_files(fingerprint: Fingerprint) -> Fingerprint:
    """Installed files are held against what was recorded of them, not once more against another node's."""
    sections = {name: each for name, each in fingerprint.sections.items() if name != INTEGRITY}
    return replace(fingerprint, sections=sections)


def clock_stage(snapshot: Snapshot) -> tuple[tuple[Clock, ...], str, str]:
    """The clocks of this run, what their offsets are relative to, and both in words."""
    clocks, basis = clocks_of(snapshot.fingerprints, ())
    return clocks, basis, clock_words(clocks, basis, ())


def asked_of(options: argparse.Namespace) -> CheckAsk | None:
    """What is run on the nodes; None for nothing.

    Raises:
        UsageError: options that contradict each other.
    """
    ask = asked_by(options)
    return ask if ask.sections and not options.no_check and not options.stored else None


def run_checks(
    ask: CheckAsk, named: Sequence[str], snapshot: Snapshot, options: argparse.Namespace
) -> tuple[Snapshot, str]:
    """The nodes that answered, each with what was run on it; and that in words.

    A node that is lost meanwhile keeps what it said before, and has a section that could not be read.
    """
    asked = copy.copy(options)
    asked.integrity = asked.integrity_cache = None
    nodes = tuple(each.node for each in snapshot.fingerprints)
    ask, arrangement, why_not = _arranged(ask, nodes if named else (), snapshot, options)
    found = run_on(asked, ask, nodes if named else (), arrangement)
    fingerprints = snapshot.fingerprints
    for name in ask.sections:
        fingerprints = tuple(_with(each, found, name) for each in fingerprints)
    if why_not:
        gap = Section(COLLECTIVES, _SECTION_SCHEMA, "error", {}, {}, (why_not,))
        fingerprints = tuple(_having(each, gap) for each in fingerprints)
    runs = collective_runs(fingerprints)
    words = outcome_words(checked_devices(fingerprints), runs[0] if runs else None)
    return Snapshot(fingerprints, snapshot.missing), words


def _arranged(
    ask: CheckAsk, nodes: Sequence[str], snapshot: Snapshot, options: argparse.Namespace
) -> tuple[CheckAsk, Arranged, str]:
    """Where the nodes meet; where they cannot, the rest is run all the same, and why stands in the last."""
    if not ask.meets:
        return ask, Arranged({}, {}), ""
    if len(nodes) < 2:
        return ask, arranged_here(ask, nodes[0] if nodes else this_node()), ""
    try:
        return ask, arranged(ask, snapshot.fingerprints, options), ""
    except UsageError as error:
        return ask._replace(collectives=False, mtu=False), Arranged({}, {}), str(error)


def _with(fingerprint: Fingerprint, found: Snapshot, name: str) -> Fingerprint:
    now = found.by_node.get(fingerprint.node)
    section = now.sections.get(name) if now is not None else None
    if section is None:
        gone = found.missing.get(fingerprint.node, Missing("crashed", "no answer"))
        why = f"{gone.kind}: {gone.why}" if gone.why else gone.kind
        section = Section(name, _SECTION_SCHEMA, "error", {}, {}, (why,))
    return _having(fingerprint, section)


def _having(fingerprint: Fingerprint, section: Section) -> Fingerprint:
    return replace(fingerprint, sections={**fingerprint.sections, section.name: section})
