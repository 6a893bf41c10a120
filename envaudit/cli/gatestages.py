"""The stages of a gate: each looks at one thing, says what it saw in a line, and judges nothing."""

from __future__ import annotations

import argparse
import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from envaudit._version import __version__
from envaudit.checks.plan import PARTS, Plan, options_of
from envaudit.cli import asking, configuration
from envaudit.cli.baselines import compare_with, is_tag
from envaudit.cli.check import checked_words
from envaudit.cli.clock import clock_words, clocks_of
from envaudit.cli.comparing import Comparison, all_with_all
from envaudit.cli.judging import policy_of
from envaudit.cli.loading import Loaded, load, open_store
from envaudit.cli.locks import categories_of, platform_here
from envaudit.cli.references import Reference
from envaudit.cli.reports import ForeignFile, check_is_lock, read_lock_report
from envaudit.cli.selection import selected_nodes, this_node
from envaudit.cli.verify import HeldToLock, examined, held_to_lock
from envaudit.diff import PathFilter
from envaudit.model import Fingerprint, Missing, Section, Snapshot
from envaudit.model.checked import SECTION as CHECKS
from envaudit.model.checked import checked_devices
from envaudit.model.nodeset import fold
from envaudit.report import Clock

# Beyond the budget: the way to the node, the interpreter's start, and the answer's way back.
_AROUND_S = 30
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
    nodes = snapshot.fingerprints
    if options.baseline is None or options.baseline == "majority":
        drifts = all_with_all(nodes, PathFilter(), policy_of(options))
        return Compared(Comparison(nodes, snapshot.missing, drifts))
    without: tuple[str, ...] = ()
    if is_tag(options.baseline):
        tagged = open_store(options).tags().get(options.baseline, {})
        without = tuple(each.node for each in nodes if each.node not in tagged)
    held = tuple(each for each in nodes if each.node not in without)
    # Of a tag that no node has, the store says which there are.
    side = held or nodes
    loaded = Loaded(
        Reference("", nodes=tuple(each.node for each in side)), {each.node: each for each in side}, {}
    )
    found = compare_with([loaded], options, PathFilter())
    return Compared(replace(found, current=nodes, missing={**snapshot.missing, **found.missing}), without)


def clock_stage(snapshot: Snapshot) -> tuple[tuple[Clock, ...], str, str]:
    """The clocks of this run, what their offsets are relative to, and both in words."""
    clocks, basis = clocks_of(snapshot.fingerprints, ())
    return clocks, basis, clock_words(clocks, basis, ())


def plan_of(options: argparse.Namespace) -> Plan | None:
    """The kernels that are run; None for none."""
    parts = tuple(part for part in options.only or PARTS if part in PARTS)
    if options.no_check or options.stored or not parts:
        return None
    return Plan(parts=parts, budget_s=options.budget)


def run_checks(
    plan: Plan, nodes: Sequence[str], snapshot: Snapshot, options: argparse.Namespace
) -> tuple[Snapshot, str]:
    """The nodes that answered, each with what its kernels came to; and that in words.

    A node that is lost meanwhile keeps what it said before, and has a section that could not be read.
    """
    asked = copy.copy(options)
    asked.section, asked.nothing_else, asked.every_node = [CHECKS], True, True
    asked.integrity = asked.integrity_cache = None
    asked.section_options = options_of(plan)
    asked.timeout = max(options.timeout or 0, plan.budget_s + _AROUND_S)
    answered = tuple(each.node for each in snapshot.fingerprints)
    found = asking.ask(answered if nodes else (), asked)
    fingerprints = tuple(_with(each, found, CHECKS) for each in snapshot.fingerprints)
    words = checked_words(checked_devices(fingerprints))
    return Snapshot(fingerprints, snapshot.missing), words


def _with(fingerprint: Fingerprint, found: Snapshot, name: str) -> Fingerprint:
    now = found.by_node.get(fingerprint.node)
    section = now.sections.get(name) if now is not None else None
    if section is None:
        gone = found.missing.get(fingerprint.node, Missing("crashed", "no answer"))
        why = f"{gone.kind}: {gone.why}" if gone.why else gone.kind
        section = Section(name, _SECTION_SCHEMA, "error", {}, {}, (why,))
    sections: Mapping[str, Section] = {**fingerprint.sections, name: section}
    return replace(fingerprint, sections=sections)
