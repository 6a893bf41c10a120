"""`envaudit diff`: what differs between nodes, snapshots and files."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Sequence

from envaudit._version import __version__
from envaudit.cli import launched, references
from envaudit.cli.baselines import check_baseline, compare_with, told_against_baseline
from envaudit.cli.comparing import role_stages
from envaudit.cli.judging import judged, unexamined_stages
from envaudit.cli.loading import Loaded, add_section_option, add_store_option, load
from envaudit.cli.output import add_output_options, check_output_options, emit
from envaudit.cli.policyof import policy_of
from envaudit.cli.selection import add_transport_options
from envaudit.diff import PathFilter
from envaudit.errors import UsageError
from envaudit.model import Verdict
from envaudit.model.finding import THRESHOLDS
from envaudit.report import Report, Stage
from envaudit.rules import Evidence


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `envaudit diff`."""
    parser.add_argument(
        "references",
        nargs="+",
        metavar="REF",
        help="NODESET (live), NODESET@TAG, NODESET@latest, NODESET@TIME, or a file: a snapshot, a report",
    )
    group = parser.add_argument_group("what is compared")
    group.add_argument("--stored", action="store_true", help="node sets mean their newest stored snapshot")
    add_section_option(group)
    group.add_argument(
        "--only", action="append", default=[], metavar="GLOB", help="these fact paths; repeatable"
    )
    group.add_argument(
        "--ignore",
        action="append",
        default=[],
        metavar="GLOB",
        help="not these, 'env/nccl/*'; repeatable",
    )
    group.add_argument(
        "--baseline",
        metavar="REF",
        help="hold each node against this: a tag, one node (node01@good, a.json), or 'majority'",
    )
    group.add_argument(
        "--new-only", action="store_true", help="tell only what the baseline did not have already"
    )
    group.add_argument("--fail-on", choices=tuple(THRESHOLDS), help="default: error")
    add_store_option(group)
    add_transport_options(parser)
    add_output_options(parser)


def execute(options: argparse.Namespace) -> int:
    """Load, compare, judge, report."""
    began = time.monotonic()
    check_output_options(options)
    parsed = [references.parse(text) for text in options.references]
    check_baseline(options)
    report = compared(load(parsed, options), options, began)
    emit(report, options)
    return report.exit_code


def compared(sides: Sequence[Loaded], options: argparse.Namespace, began: float) -> Report:
    """Compare and judge; nothing is printed or written.

    Args:
        sides: what was loaded of each reference.
        options: of `envaudit diff`.
        began: when the command did, as `time.monotonic` counts.

    Raises:
        UsageError: nothing is left to compare, or a baseline that cannot be one.
    """
    paths = PathFilter.of(sections=options.section, only=options.only, ignore=options.ignore)
    comparison = compare_with(sides, options, paths)
    names = {name for each in comparison.current for name in each.sections}
    sections = paths.covered(sorted(names))
    if paths.contradicts_itself or (not sections and replace(paths, ignore=()).covered(names)):
        raise UsageError("nothing is left to compare", where="--ignore", next_step="Ignore less.")
    evidence = Evidence(
        fingerprints=comparison.current,
        missing=comparison.missing,
        drifts=comparison.drifts,
        sections=sections if paths != PathFilter() else None,
        references=comparison.references,
        unmatched=paths.unmatched((*comparison.current, *comparison.references)),
    )
    policy = policy_of(options)
    found = judged(evidence, options, full=evidence.sections is None)
    told = told_against_baseline(found.findings, comparison, options)
    verdict = Verdict.of(told.findings, policy.fail_on)
    stages = [*found.stages, *role_stages(comparison, policy)]
    if told.left_out:
        noun = "finding" if told.left_out == 1 else "findings"
        stages.append(Stage("known", f"{told.left_out} {noun} that the baseline had already"))
    stages += [Stage("run", line) for line in launched.changes(comparison.references, comparison.current)]
    if options.verbose:
        stages += unexamined_stages(evidence, policy)
    return Report(
        command="diff",
        tool=__version__,
        verdict=verdict,
        findings=told.findings,
        stages=tuple(stages),
        drifts=comparison.drifts,
        missing=comparison.missing,
        nodes=tuple(each.node for each in comparison.current),
        sections=tuple(sections),
        reference=comparison.description,
        elapsed_s=time.monotonic() - began,
        verbose=options.verbose,
        set_aside=found.set_aside,
        fingerprints=comparison.current,
    )
