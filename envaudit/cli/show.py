"""`envaudit show`: the facts of a node or a snapshot."""

from __future__ import annotations

import argparse
import time

from envaudit._version import __version__
from envaudit.cli import references
from envaudit.cli.judging import judged
from envaudit.cli.loading import add_section_option, add_store_option, load
from envaudit.cli.output import add_output_options, check_output_options, emit
from envaudit.cli.selection import add_transport_options
from envaudit.errors import UsageError
from envaudit.report import Report
from envaudit.rules import Evidence


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `envaudit show`."""
    parser.add_argument("reference", metavar="REF", help="a node, NODESET@TAG, or a snapshot file")
    parser.add_argument("--stored", action="store_true", help="the newest stored snapshot of the nodes")
    add_section_option(parser)
    add_store_option(parser)
    add_transport_options(parser)
    add_output_options(parser)


def execute(options: argparse.Namespace) -> int:
    """Print facts; notes and errors too with `--verbose`."""
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
    evidence = Evidence(shown, loaded.missing, sections=tuple(options.section) or None, comparing=False)
    findings, verdict = judged(evidence, options)
    report = Report(
        command="show",
        tool=__version__,
        verdict=verdict,
        findings=findings,
        missing=loaded.missing,
        nodes=tuple(fingerprint.node for fingerprint in shown),
        sections=sections,
        comparing=False,
        elapsed_s=time.monotonic() - began,
        verbose=options.verbose,
        facts=shown,
    )
    emit(report, options)
    return verdict.exit_code
