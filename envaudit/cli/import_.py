"""`envaudit import`: a foreign report as a snapshot."""

from __future__ import annotations

import argparse
import time

from envaudit._version import __version__
from envaudit.cli.foreign import node_name, read_report, setting_of
from envaudit.cli.judging import judged
from envaudit.cli.loading import add_store_option
from envaudit.cli.locks import platform_here
from envaudit.cli.output import add_output_options, check_output_options, emit
from envaudit.cli.selection import add_config_option
from envaudit.cli.snapshot import keep
from envaudit.errors import UsageError
from envaudit.model import Snapshot
from envaudit.model.codec import NODE_NAME
from envaudit.report import Report, Stage
from envaudit.rules import Evidence


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `envaudit import`."""
    parser.add_argument("file", metavar="FILE", help="a report or a lock, told by its content")
    parser.add_argument("--node", metavar="NAME", help="of the node that it speaks of (default: the file's)")
    add_config_option(parser)
    group = parser.add_argument_group("where it is kept")
    group.add_argument("-o", "--output", metavar="FILE", help="write this file and leave the store alone")
    group.add_argument(
        "--tag", action="append", default=[], metavar="TAG", help="a tag for the node; repeatable"
    )
    add_store_option(group)
    group = parser.add_argument_group("for which machine a lock of several is read")
    group.add_argument("--platform", metavar="P", help="such as linux-64; default: this machine's")
    group.add_argument("--for-python", metavar="VERSION", help="such as 3.11.7; default: any")
    add_output_options(parser)


def execute(options: argparse.Namespace) -> int:
    """Read, keep, say what is known now."""
    began = time.monotonic()
    check_output_options(options)
    if options.tag and options.output:
        raise UsageError("--tag and --output exclude each other: a tag points into the store")
    node = options.node or node_name(options.file)
    if not NODE_NAME.match(node):
        raise UsageError(f"{node[:80]!r} is not a node name", where="--node")
    read = read_report(options.file)
    fingerprint = read.fingerprint(node, setting_of(platform_here(options), options.for_python))
    snapshot = Snapshot((fingerprint,))
    stages = [Stage("read", f"{options.file} as {read.kind.KIND}"), *keep(snapshot, options)]
    findings, verdict, rests_on, aside = judged(Evidence(snapshot.fingerprints, comparing=False), options)
    report = Report(
        command="import",
        tool=__version__,
        verdict=verdict,
        findings=findings,
        nodes=(node,),
        sections=tuple(sorted(fingerprint.sections)),
        comparing=False,
        elapsed_s=time.monotonic() - began,
        verbose=options.verbose,
        stages=(*stages, *rests_on),
        set_aside=aside,
    )
    emit(report, options)
    return verdict.exit_code
