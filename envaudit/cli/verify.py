"""`envaudit verify`: is an environment what the lock says, here or on every node?"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from envaudit._version import __version__
from envaudit.cli import asking
from envaudit.cli.foreign import (
    ForeignFile,
    check_is_lock,
    python_of_prefix,
    read_lock_report,
    setting_of_node,
)
from envaudit.cli.judging import judged
from envaudit.cli.locks import add_lock_options, categories_of, platform_here
from envaudit.cli.output import add_output_options, check_output_options, emit
from envaudit.cli.progress import shown_files
from envaudit.cli.selection import add_node_options
from envaudit.cli.thisnode import this_node
from envaudit.diff import compare_to_reference
from envaudit.errors import UsageError
from envaudit.lock.expected import held_against
from envaudit.model import Drift, Fingerprint, Snapshot
from envaudit.model.codec import fingerprint_of_answer
from envaudit.model.finding import THRESHOLDS
from envaudit.model.locked import platform_of
from envaudit.report import Report, Stage
from envaudit.rules import Evidence

# What is compared, and what is read beside it: the machine's architecture, C library and driver.
COMPARED = ("conda", "packages")
BESIDE = ("host", "gpu")
INTEGRITY, LOCK = "integrity", "lock"


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `envaudit verify`."""
    parser.add_argument(
        "lock",
        metavar="LOCK",
        help="conda-lock.yml, pixi.lock, uv.lock, pylock.toml, requirements.txt of pins, "
        "an explicit list, an export",
    )
    group = parser.add_argument_group("what is verified")
    group.add_argument("--prefix", metavar="DIR", help="this environment; nothing of it is executed")
    asking.add_integrity_options(group, ("none", "size", "hash"), default="hash")
    add_lock_options(group)
    group.add_argument("--fail-on", choices=tuple(THRESHOLDS), help="default: error")
    add_node_options(parser)
    add_output_options(parser)


def execute(options: argparse.Namespace) -> int:
    """Read both sides, compare, judge, report."""
    began = time.monotonic()
    check_output_options(options)
    lock = read_lock_report(options.lock, categories_of(options))
    platform = platform_here(options)
    check_is_lock(lock)
    snapshot = _found(options)
    drifts, references, text = held_to_lock(lock, snapshot.fingerprints, options, platform)
    also = asking.on_request(options)
    evidence = Evidence(
        fingerprints=snapshot.fingerprints,
        missing=snapshot.missing,
        drifts=drifts,
        sections=(*COMPARED, *also, LOCK),
        references=references,
    )
    findings, verdict, rests_on, aside = judged(evidence, options)
    nodes = tuple(node.node for node in snapshot.fingerprints)
    report = Report(
        command="verify",
        tool=__version__,
        verdict=verdict,
        findings=findings,
        drifts=drifts,
        missing=snapshot.missing,
        nodes=nodes,
        sections=(*COMPARED, *also),
        reference=lock.path,
        outcome=f"{_count(nodes)} as locked, {text}",
        elapsed_s=time.monotonic() - began,
        verbose=options.verbose,
        stages=(*rests_on, *examined(snapshot.fingerprints)),
        set_aside=aside,
        fingerprints=snapshot.fingerprints,
        held_against=lock.path,
    )
    emit(report, options)
    return verdict.exit_code


class HeldToLock(NamedTuple):
    """Nodes held against a lock.

    Attributes:
        drifts: what is not as locked.
        references: what the lock asks of each node, under labels such as `node01@train.conda-lock.yml`.
        text: `12 packages for linux-64`.
    """

    drifts: tuple[Drift, ...]
    references: tuple[Fingerprint, ...]
    text: str


def held_to_lock(
    lock: ForeignFile, nodes: Sequence[Fingerprint], options: argparse.Namespace, platform: str
) -> HeldToLock:
    """Each node against what the lock asks of it.

    Args:
        lock: of any kind that `check_is_lock` takes.
        nodes: with the sections `COMPARED` and `BESIDE`.
        options: `platform` and `prefix` of them count.
        platform: of a node whose machine is not known.
    """
    expected = {node.node: _expected(lock, options, node, platform) for node in nodes}
    suffix = f"@{lock.path.rpartition('/')[2]}"
    pairs = {node.node: held_against(expected[node.node], node) for node in nodes}
    drifts = compare_to_reference(
        {node: pair[0] for node, pair in pairs.items()},
        {node: pair[1] for node, pair in pairs.items()},
        basis="lock",
        suffix=suffix,
    )
    references = tuple(replace(each, node=f"{node}{suffix}") for node, each in expected.items())
    return HeldToLock(drifts, references, _amount(lock, list(expected.values())))


def _found(options: argparse.Namespace) -> Snapshot:
    """The environment of `--prefix`, or what the nodes answer."""
    if options.prefix is None:
        options.section = [*BESIDE, *COMPARED]
        return asking.ask_selected(options)
    if options.nodes or options.hostfile or options.all or options.python:
        raise UsageError(
            "--prefix names an environment of this machine, so it takes no nodes",
            next_step="On nodes, name the environment's interpreter: --python DIR/bin/python.",
        )
    from envaudit.probe import Refused
    from envaudit.probe.static import read_prefix

    try:
        with shown_files() as tell:
            answer = read_prefix(
                options.prefix,
                tool=__version__,
                sections=(*COMPARED, *asking.on_request(options)),
                options=asking.told(options),
                tell=tell,
            )
    except Refused as error:
        raise UsageError(str(error), where="--prefix") from None
    return Snapshot((fingerprint_of_answer(answer, node=this_node(), source="probe", where="probe"),))


def _expected(
    lock: ForeignFile, options: argparse.Namespace, found: Fingerprint, platform: str
) -> Fingerprint:
    prefix = getattr(options, "prefix", None)
    known = python_of_prefix(prefix) if prefix else None
    setting = setting_of_node(found, options.platform or platform_of(found, platform), known)
    expected = lock.expected(found.node, setting)
    about = expected.sections[LOCK]
    platforms = about.facts.get("platforms")
    if isinstance(platforms, list) and about.facts.get("platform") not in platforms:
        # It asks nothing of this node, which is not to say that the node must have nothing.
        return replace(expected, sections={LOCK: about})
    if not packages_asked(expected):
        raise UsageError(
            f"it names no package for {about.facts['platform']}, so every node would be as it says",
            where=lock.path,
            next_step="Make it again.",
        )
    return expected


def packages_asked(expected: Fingerprint) -> int:
    """How many packages a lock asks of a node."""
    return sum(
        sum(facts is not None for facts in table.values())
        for name in COMPARED
        for table in _tables(expected, name)
    )


def _amount(lock: ForeignFile, expected: Sequence[Fingerprint]) -> str:
    """`12 packages of train.conda-lock.yml for linux-64`."""
    counts = {str(each.sections[LOCK].facts["platform"]): packages_asked(each) for each in expected}
    told = ", ".join(
        f"{count} {'package' if count == 1 else 'packages'} for {platform}"
        for platform, count in sorted(counts.items())
    )
    return told or f"nothing of {lock.path}"


def _tables(fingerprint: Fingerprint, section: str) -> list[dict[str, object]]:
    held = fingerprint.sections.get(section)
    return [table for table in (held.facts.values() if held else ()) if isinstance(table, dict)]


def examined(fingerprints: Sequence[Fingerprint]) -> tuple[Stage, ...]:
    """How many files were looked at, and how; a cache that was of no use is told."""
    counts: dict[str, int] = {}
    for fingerprint in fingerprints:
        section = fingerprint.sections.get(INTEGRITY)
        examined = section.notes.get("examined") if section else None
        mode = section.facts.get("mode") if section else None
        if isinstance(mode, str) and isinstance(examined, int):
            counts[mode] = counts.get(mode, 0) + examined
    words = {"hash": "hashed", "size": "of the size recorded, or named", "cached": "hashed, now or before"}
    return tuple(Stage("files", f"{count} {words.get(mode, mode)}") for mode, count in sorted(counts.items()))


def _count(nodes: Sequence[str]) -> str:
    return "1 node" if len(nodes) == 1 else f"{len(nodes)} nodes"
