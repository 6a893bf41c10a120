"""`envaudit snapshot`: record this machine or nodes, into the store or a file."""

from __future__ import annotations

import argparse
import os
import time
from typing import TYPE_CHECKING, List

from envaudit._version import __version__
from envaudit.cli import asking
from envaudit.cli.loading import add_section_option, add_store_option, open_store
from envaudit.cli.output import add_output_options, check_output_options, emit
from envaudit.cli.selection import add_node_options
from envaudit.errors import UsageError
from envaudit.model import Snapshot
from envaudit.store import write_snapshot_file
from envaudit.store.tags import check_tag

if TYPE_CHECKING:
    from envaudit.report import Stage


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `envaudit snapshot`."""
    add_node_options(parser)
    group = parser.add_argument_group("what is kept, and where")
    add_section_option(group)
    group.add_argument(
        "--deep",
        action="store_true",
        help="import torch in a child process, run it, and read what was loaded",
    )
    asking.add_integrity_options(group, ("size", "hash"))
    group.add_argument(
        "--prefix", metavar="DIR", help="this environment, read by another Python; nothing of it is executed"
    )
    group.add_argument("--tag", action="append", default=[], help="a tag for these nodes; repeatable")
    group.add_argument("-o", "--output", metavar="FILE", help="write this file and leave the store alone")
    group.add_argument(
        "--redact",
        action="store_true",
        help="with --output: pseudonyms for hosts, users, addresses, serials and folders",
    )
    add_store_option(group)
    add_output_options(parser)


def execute(options: argparse.Namespace) -> int:
    """Ask, keep what answered, tell what did not."""
    began = time.monotonic()
    check_output_options(options)
    for tag in options.tag:
        check_tag(tag)
    if options.tag and options.output:
        raise UsageError(
            "--tag and --output exclude each other: a tag points into the store",
            next_step="Leave one of them out; the file can be named after the tag.",
        )
    if options.redact and not options.output:
        raise UsageError(
            "--redact needs --output: under pseudonyms a node has no history in the store",
            next_step="Add -o FILE, or redact a stored snapshot: envaudit show REF --redact -o FILE.",
        )
    snapshot = asking.ask_selected(options)
    # Imported while the nodes are at work, and not before they are.
    from envaudit.cli.judging import judged
    from envaudit.report import Report
    from envaudit.rules import Evidence

    if options.redact:
        from envaudit.model.redaction import redact

        snapshot = redact(snapshot)
    stages = keep(snapshot, options)
    evidence = Evidence(
        fingerprints=snapshot.fingerprints,
        missing=snapshot.missing,
        sections=(*options.section, *asking.on_request(options)) if options.section else None,
        comparing=False,
    )
    findings, verdict, rests_on, aside = judged(evidence, options)
    nodes = tuple(fingerprint.node for fingerprint in snapshot.fingerprints)
    sections = {name for fingerprint in snapshot.fingerprints for name in fingerprint.sections}
    report = Report(
        command="snapshot",
        tool=__version__,
        verdict=verdict,
        findings=findings,
        missing=snapshot.missing,
        nodes=nodes,
        sections=tuple(sorted(sections)),
        comparing=False,
        elapsed_s=time.monotonic() - began,
        verbose=options.verbose,
        stages=(*stages, *rests_on),
        set_aside=aside,
        fingerprints=snapshot.fingerprints,
    )
    emit(report, options)
    return verdict.exit_code


def keep(snapshot: Snapshot, options: argparse.Namespace) -> List[Stage]:
    """Write a snapshot to the file or the store; what was done, for the report.

    A run in which no node answered is stored too: that it was tried is part of the history.
    """
    from envaudit.report import Stage

    captured_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    if options.output:
        write_snapshot_file(options.output, snapshot, captured_at=captured_at, tool=__version__)
        return [Stage("written", options.output)]
    store = open_store(options)
    name = store.write(
        snapshot, captured_at=captured_at, tool=__version__, host=os.uname().nodename, tags=options.tag
    )
    stages = [Stage("stored", f"{store.path}/snapshots/{name}")]
    if options.tag and snapshot.fingerprints:
        stages.append(Stage("tagged", " ".join(options.tag)))
    return stages
