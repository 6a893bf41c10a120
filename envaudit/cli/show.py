"""`envaudit show`: the facts of a node or a snapshot."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Sequence, Tuple

from envaudit._version import __version__
from envaudit.cli import references
from envaudit.cli.judging import judged
from envaudit.cli.loading import add_section_option, add_store_option, load
from envaudit.cli.output import add_output_options, check_output_options, emit
from envaudit.cli.selection import add_transport_options
from envaudit.errors import UsageError
from envaudit.model import Snapshot
from envaudit.report import Report, Stage
from envaudit.rules import Evidence
from envaudit.store import write_snapshot_file


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `envaudit show`."""
    parser.add_argument(
        "reference", metavar="REF", help="a node, NODESET@TAG, or a file: a snapshot, a report"
    )
    parser.add_argument("--stored", action="store_true", help="the newest stored snapshot of the nodes")
    add_section_option(parser)
    parser.add_argument(
        "--redact",
        action="store_true",
        help="pseudonyms for hosts, users, addresses, serials and folders",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write what is shown as a snapshot file")
    add_store_option(parser)
    add_transport_options(parser)
    add_output_options(parser)


def execute(options: argparse.Namespace) -> int:
    """Print facts, notes and errors too with `--verbose`; write them where asked to."""
    began = time.monotonic()
    check_output_options(options)
    (loaded,) = load([references.parse(options.reference)], options)
    shown = tuple(loaded.fingerprints.values())
    held = sorted({name for fingerprint in shown for name in fingerprint.sections})
    unknown = [name for name in options.section if shown and name not in held]
    if unknown:
        raise UsageError(
            f"there is no section '{unknown[0]}' in {options.reference}",
            next_step=f"It holds {', '.join(held)}.",
        )
    sections = tuple(options.section) or tuple(held)
    snapshot = Snapshot(shown, loaded.missing)
    if options.redact:
        from envaudit.model.redaction import redact

        snapshot = redact(snapshot)
    shown, missing = snapshot.fingerprints, snapshot.missing
    stages = _write(snapshot, sections, options.output) if options.output else ()
    evidence = Evidence(shown, missing, sections=tuple(options.section) or None, comparing=False)
    findings, verdict, rests_on, aside = judged(evidence, options)
    report = Report(
        command="show",
        tool=__version__,
        verdict=verdict,
        findings=findings,
        missing=missing,
        nodes=tuple(fingerprint.node for fingerprint in shown),
        sections=sections,
        comparing=False,
        elapsed_s=time.monotonic() - began,
        verbose=options.verbose,
        facts=shown,
        stages=(*stages, *rests_on),
        set_aside=aside,
    )
    emit(report, options)
    return verdict.exit_code


def _write(snapshot: Snapshot, sections: Sequence[str], path: str) -> Tuple[Stage, ...]:
    """Write a snapshot with these sections alone."""
    parts = tuple(
        replace(each, sections={name: each.sections[name] for name in sections if name in each.sections})
        for each in snapshot.fingerprints
    )
    captured_at = max((each.captured_at for each in parts), default="") or time.strftime(
        "%Y-%m-%dT%H:%M:%SZ", time.gmtime()
    )
    written = replace(snapshot, fingerprints=parts)
    write_snapshot_file(path, written, captured_at=captured_at, tool=__version__)
    return (Stage("written", path),)
