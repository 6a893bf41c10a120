"""Where a report goes: `--format` to standard output, `--report F=PATH` to files, written atomically."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from typing import TYPE_CHECKING, List, Tuple

from envaudit.errors import NeededError, UsageError
from envaudit.store import atomic_write

if TYPE_CHECKING:
    from envaudit.report import Report

FORMATS = ("text", "plain", "json")


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """`--format`, `--report`, `--verbose`."""
    group = parser.add_argument_group("output")
    group.add_argument("--format", choices=FORMATS, help="default: text on a terminal, else plain")
    group.add_argument(
        "--report",
        action="append",
        default=[],
        metavar="FORMAT=PATH",
        help="write a report to a file as well; repeatable",
    )
    group.add_argument("-v", "--verbose", action="store_true", help="notes, long values, all drift")


def check_output_options(options: argparse.Namespace) -> None:
    """Refuse a wrong `--report` before any node is asked.

    Raises:
        UsageError: no `=`, an unknown format, or a file that would be written twice.
        NeededError: the folder of a report does not exist or cannot be written.
    """
    output = getattr(options, "output", None)
    taken = {os.path.realpath(output)} if output else set()
    for _, path in _reports(options):
        if os.path.realpath(path) in taken:
            raise UsageError(f"{path} would be written twice", where="--report")
        taken.add(os.path.realpath(path))
        folder = os.path.dirname(os.path.abspath(path))
        if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
            raise NeededError("is no folder that can be written", where=folder)


def emit(report: Report, options: argparse.Namespace) -> None:
    """Write the report files, then print the report."""
    for name, path in _reports(options):
        atomic_write(path, render(report, name, color=False).encode("utf-8", "backslashreplace"))
    write(render(report, options.format or default_format(), color=not os.environ.get("NO_COLOR")))


def render(report: Report, name: str, *, color: bool) -> str:
    """A report in one format; `color` matters to `text` alone."""
    try:
        module = importlib.import_module(f"envaudit.report.{name}")
    except ModuleNotFoundError as error:
        raise UsageError(
            f"format '{name}' is not to be had here",
            why=f"no module {error.name}",
            next_step="Use --format plain, or install the package: pip install envaudit.",
        ) from None
    return str(module.render(report, color=color) if name == "text" else module.render(report))


def default_format() -> str:
    """`text` on a terminal; `plain` in a pipe, in CI and in the one-file form."""
    if not sys.stdout.isatty() or os.environ.get("CI"):
        return "plain"
    return "text" if importlib.util.find_spec("rich") else "plain"


def write(text: str) -> None:
    """Print, also where the locale cannot: what it lacks is escaped."""
    encoding = sys.stdout.encoding or "ascii"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()


def _reports(options: argparse.Namespace) -> List[Tuple[str, str]]:
    pairs = []
    for text in options.report:
        name, equals, path = text.partition("=")
        if not equals or not path or name not in FORMATS:
            raise UsageError(
                f"--report takes FORMAT=PATH, got '{text}'", next_step=f"Formats: {', '.join(FORMATS)}."
            )
        pairs.append((name, path))
    return pairs
