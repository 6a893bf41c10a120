"""Where a report goes: `--format` to standard output, `--report F=PATH` to files, written atomically."""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NoReturn, Optional, Sequence, Tuple

from envaudit.cli.stdout import write
from envaudit.errors import NeededError, UsageError
from envaudit.store import atomic_write

if TYPE_CHECKING:
    from envaudit.report import Report, RuleText

FORMATS = ("text", "plain", "json", "junit", "sarif", "github", "html", "prometheus")

# What a format needs besides the standard library: module → the package that has it.
_NEEDED: Dict[str, Tuple[str, str]] = {
    "text": ("rich", "rich"),
    "junit": ("junitparser", "junitparser"),
    "html": ("jinja2", "jinja2"),
    "prometheus": ("prometheus_client", "prometheus-client"),
}
# Those that tell of a rule what the register says.
_WITH_RULES = ("junit", "sarif", "github", "html")
# The node exporter runs as a user of its own, whatever the umask of the job that writes.
_MODES = {"prometheus": 0o644}
_SUMMARY = "GITHUB_STEP_SUMMARY"


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


def check_output_options(options: argparse.Namespace, files: Sequence[str] = ()) -> None:
    """Refuse what could not be written in the end before any node is asked.

    Args:
        options: of the command.
        files: what the command writes besides its reports.

    Raises:
        UsageError: no `=`, an unknown format, one that is not to be had here, a file that would be
            written twice, or `-`, which is none.
        NeededError: the folder of a report does not exist or cannot be written, or a folder stands
            where the report should.
    """
    output = getattr(options, "output", None)
    if output == "-":
        _refuse_dash()
    taken = {os.path.realpath(output)} if output else set()
    for name, _ in _reports(options):
        _demand_format(name)
    for path in (*files, *(path for _, path in _reports(options))):
        if os.path.realpath(path) in taken:
            raise UsageError(f"{path} would be written twice")
        taken.add(os.path.realpath(path))
        _demand_writable(path)
    if options.format:
        _demand_format(options.format)
    step = _step_summary(options)
    if step:
        _demand_writable(step)


def emit(report: Report, options: argparse.Namespace, files: Sequence[Tuple[str, bytes]] = ()) -> None:
    """Write the files of the command and the reports, then print the report.

    A file that cannot be written keeps nobody from what was found: the rest is written and printed first.

    Raises:
        NeededError: the first file that could not be written.
    """
    report = _with_the_run(report, options)
    failures: List[NeededError] = []
    for path, data in files:
        _try(failures, atomic_write, path, data)
    for name, path in _reports(options):
        data = render(report, name, color=False).encode("utf-8", "backslashreplace")
        _try(failures, atomic_write, path, data, _MODES.get(name))
    step = _step_summary(options)
    if step:
        _try(failures, _append_summary, report, step)
    name = options.format or default_format()
    # A dumb terminal (an editor's shell) prints what others take for colours.
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    text = render(report, name, color=not plain)
    write(_inert(text) if os.environ.get("GITHUB_ACTIONS") and name in ("text", "plain") else text)
    if failures:
        raise failures[0]


def _try(failures: List[NeededError], action: Callable[..., None], *arguments: Any) -> None:
    try:
        action(*arguments)
    except NeededError as error:
        failures.append(error)


def render(report: Report, name: str, *, color: bool) -> str:
    """A report in one format; `color` matters to `text` alone."""
    _demand_format(name)
    module = importlib.import_module(f"envaudit.report.{name}")
    return str(module.render(report, color=color) if name == "text" else module.render(report))


def default_format() -> str:
    """`text` on a terminal; `plain` in a pipe, in CI and in the one-file form."""
    if not sys.stdout.isatty() or os.environ.get("CI"):
        return "plain"
    is_to_be_had = importlib.util.find_spec("envaudit.report.text") and importlib.util.find_spec("rich")
    return "text" if is_to_be_had else "plain"


def _inert(text: str) -> str:
    """A log for GitHub's runner without commands to it: `::` where a line begins, `##[` anywhere."""
    return re.sub(r"(?m)^(\s*):(?=:)", r"\1\\x3a", text).replace("##[", "##\\x5b")


def _asked(options: argparse.Namespace) -> List[str]:
    """The formats of a run, without the default."""
    return [*([options.format] if options.format else []), *(name for name, _ in _reports(options))]


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


def _demand_format(name: str) -> None:
    """Refuse a format whose module this form does not carry, or whose library is not installed."""
    module, package = _NEEDED.get(name, ("", ""))
    if not importlib.util.find_spec(f"envaudit.report.{name}"):
        why = "this one-file form does not carry it"
        package = "envaudit"
    elif module and not importlib.util.find_spec(module):
        why = f"it needs the package {package}"
    else:
        return
    raise UsageError(
        f"format '{name}' is not to be had here",
        why=why,
        next_step=f"Use one of {', '.join(filter(_is_here, FORMATS))}, or install it: pip install {package}.",
    )


def _is_here(name: str) -> bool:
    module, _ = _NEEDED.get(name, ("", ""))
    places = (f"envaudit.report.{name}", module)
    return all(importlib.util.find_spec(place) for place in places if place)


def _demand_writable(path: str) -> None:
    if path == "-":
        _refuse_dash()
    if os.path.isdir(path):
        raise NeededError("is a folder, expected a file to write", where=path)
    if os.path.exists(path) and not os.path.isfile(path):
        return  # a pipe or a terminal is written to as it is
    # Where a link leads, unless it stands for an open file: /dev/stdout.
    target = os.path.abspath(path) if path.startswith(("/dev/", "/proc/")) else os.path.realpath(path)
    folder = os.path.dirname(target)
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        raise NeededError("is no folder that can be written", where=folder)


def _refuse_dash() -> NoReturn:
    raise UsageError(
        "'-' is no file, and standard output is taken by --format",
        next_step="Name a file; one that is called so is ./-.",
    )


def _with_the_run(report: Report, options: argparse.Namespace) -> Report:
    """The report with what a format may say of the run and may not find out by itself."""
    asked = _asked(options)
    if not set(asked) - {"text", "plain", "json"}:
        return report
    began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - report.elapsed_s))
    rules = _rule_texts() if set(asked) & set(_WITH_RULES) else {}
    here = "" if getattr(options, "redact", False) else os.uname().nodename
    return replace(
        report,
        started_at=report.started_at or began,
        host=report.host or here,
        rules=report.rules or rules,
    )


def _rule_texts() -> Dict[str, RuleText]:
    from envaudit.report import RuleText
    from envaudit.rules import all_rules

    return {
        rule.id: RuleText(rule.id, rule.severity, rule.title, rule.why, rule.how_to_fix)
        for rule in all_rules()
    }


def _step_summary(options: argparse.Namespace) -> Optional[str]:
    """The file that GitHub shows as the summary of a step, where its format is asked for."""
    return os.environ.get(_SUMMARY) if "github" in _asked(options) else None


def _append_summary(report: Report, path: str) -> None:
    """Append, as the commands of one step share the file."""
    from envaudit.report.github import summary
    from envaudit.store.files import write_failure

    try:
        with open(path, "ab") as stream:
            stream.write(summary(report).encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise write_failure(path, error) from error
