"""`envaudit lint`: what is wrong with an environment.yml, told by line and column, without a solve."""

from __future__ import annotations

import argparse
import glob
import os
import re
import time
from datetime import datetime, timezone

from envaudit._version import __version__
from envaudit.cli import configuration
from envaudit.cli.judging import judged
from envaudit.cli.output import add_output_options, check_output_options, emit
from envaudit.cli.selection import add_config_option
from envaudit.errors import UsageError
from envaudit.lock.envsection import section_of
from envaudit.lock.sourcefile import read_source
from envaudit.model import Finding, Fingerprint
from envaudit.model.finding import SEVERITIES
from envaudit.report import Report
from envaudit.rules import Evidence

# What people call the file, in the order in which it is looked for.
_USUAL = ("environment.yml", "environment.yaml")


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `envaudit lint`."""
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help="default: the [lock] sources, else environment.yml"
    )
    parser.add_argument("--fail-on", choices=("error", "warning", "info"), help="default: error")
    add_config_option(parser)
    add_output_options(parser)


def execute(options: argparse.Namespace) -> int:
    """Judge the files; each is judged alone."""
    began = time.monotonic()
    check_output_options(options)
    configured = configuration.of(options).lock.sources
    paths = options.files or [spoken(path) for path in configured] or usual_files()
    captured_at = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    section = section_of([read_source(path, named=bool(options.files)) for path in paths])
    fingerprint = Fingerprint("", "import", captured_at, __version__, {section.name: section})
    findings, verdict, rests_on, aside = judged(Evidence((fingerprint,), comparing=False), options)
    report = Report(
        command="lint",
        tool=__version__,
        verdict=verdict,
        findings=tuple(sorted(findings, key=in_reading_order)),
        sections=(section.name,),
        about=", ".join(paths),
        comparing=False,
        elapsed_s=time.monotonic() - began,
        verbose=options.verbose,
        stages=rests_on,
        set_aside=aside,
    )
    emit(report, options)
    return verdict.exit_code


def spoken(path: str) -> str:
    """A path below the working directory as it is seen from there."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def usual_files() -> list[str]:
    """The environment file of the working directory.

    Raises:
        UsageError: there is none of a usual name.
    """
    found = [name for name in _USUAL if os.path.isfile(name)]
    if not found:
        others = sorted({*glob.glob("*env*.y*ml"), *glob.glob("conda*.y*ml")})
        near = f"There is {', '.join(others[:3])}: name it." if others else "Name the file."
        raise UsageError(f"there is no {_USUAL[0]} here", next_step=near)
    return found[:1]


def in_reading_order(finding: Finding) -> tuple[int, str, int, int, str]:
    """Worst first, then as the files are read; `environment.yml:12:5` counts lines as numbers."""
    match = re.match(r"(?P<file>.*):(?P<line>\d+):(?P<column>\d+)\Z", finding.path, re.DOTALL)
    severity = SEVERITIES.index(finding.severity)
    if match is None:
        return severity, "", 0, 0, finding.rule
    return severity, match["file"], int(match["line"]), int(match["column"]), finding.rule
