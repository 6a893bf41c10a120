"""GitHub Actions: annotations by workflow commands, the report for the log, a summary in Markdown.

The runner takes each line of output that begins with `::`, and `##[` anywhere in a line, for a command
to itself. What a node or a file says stands in escaped values, or where commands are stopped.
"""

from __future__ import annotations

import hashlib
from typing import Dict, Iterator, List, Mapping, Tuple

from envaudit.model.finding import Finding
from envaudit.model.nodeset import fold
from envaudit.report import Report, plain
from envaudit.report.markdown import code, cut, table, text
from envaudit.report.outcomes import RUN, all_findings, severity_level, state_of, verdict_of
from envaudit.report.places import Place, place_of
from envaudit.report.screen import printable, shortened
from envaudit.report.summary import verdict_texts
from envaudit.report.wordings import Wordings

# What GitHub shows of one step: ten annotations of each level. The rest is in the log and the summary.
_ANNOTATIONS = 10
# GitHub refuses the summary of a step above 1 MiB; another command of the step may write as well.
SUMMARY_BYTES = 1 << 18
_ROWS = 200
_FACTS = 5
_MESSAGE_CHARACTERS = 4000

_ICONS = {"failed": "❌", "gap": "❓", "remark": "⚠️", "aside": "ℹ️"}
_VERDICT_ICONS = {"FAIL": "❌", "INCOMPLETE": "❓", "PASS": "✅"}


def render(report: Report) -> str:
    """The annotations, worst first, then the plain report; between it and the runner stands a token."""
    lines = [*_annotations(report)]
    body = plain.render(report)
    # Nobody can write a line that holds the digest of the text which holds that line.
    token = hashlib.sha256(body.encode("utf-8", "backslashreplace")).hexdigest()
    return "".join(f"{line}\n" for line in (*lines, f"::stop-commands::{token}")) + f"{body}::{token}::\n"


def summary(report: Report) -> str:
    """The page that GitHub shows of the step, in Markdown: the verdict, the findings, what was looked at."""
    words = Wordings(report)
    findings = all_findings(report)
    name = verdict_of(report).name
    lines = [f"## {_VERDICT_ICONS[name]} {text(f'envaudit {report.command}: {name}')}", ""]
    for each in verdict_texts(report):
        lines += [code(each), ""]
    lines += table(("", "rule", "where", "finding"), [_row(each, report, words) for each in findings[:_ROWS]])
    if len(findings) > _ROWS:
        lines += [f"{len(findings) - _ROWS} more findings are in the log.", ""]
    lines += table(
        ("set aside", "rule", "where", "finding", "why"),
        [
            (each.how, each.finding.rule, _where(each.finding, report), each.finding.message, each.words)
            for each in report.set_aside[:_ROWS]
        ],
    )
    if len(report.set_aside) > _ROWS:
        lines += [f"{len(report.set_aside) - _ROWS} more are set aside.", ""]
    lines += table(
        ("step", "outcome", "time"),
        [(stage.name, stage.text, f"{stage.elapsed_s:.1f} s") for stage in report.stages],
    )
    return cut(lines, SUMMARY_BYTES)


def _annotations(report: Report) -> Iterator[str]:
    words = Wordings(report)
    by_level: Dict[str, List[Finding]] = {"error": [], "warning": [], "notice": []}
    for finding in all_findings(report):
        level = severity_level(finding, report)
        by_level["notice" if level == "note" else level].append(finding)
    for level, findings in by_level.items():
        shown = findings if len(findings) <= _ANNOTATIONS else findings[: _ANNOTATIONS - 1]
        for finding in shown:
            yield _annotation(level, finding, report, words)
        if len(findings) > len(shown):
            rest = len(findings) - len(shown)
            yield _command(level, f"{rest} more of this kind are in the log", {"title": "envaudit"})


def _annotation(level: str, finding: Finding, report: Report, words: Wordings) -> str:
    place = place_of(finding) or (Place(report.held_against) if report.held_against else None)
    properties = {}
    if place is not None:
        properties["file"] = place.path
        if place.line:
            properties["line"] = str(place.line)
        if place.column:
            properties["col"] = str(place.column)
    properties["title"] = words.title(finding.rule)
    said = "\n".join([printable(finding.message), *words.lines(finding)])
    return _command(level, shortened(said, _MESSAGE_CHARACTERS), properties)


def _command(level: str, message: str, properties: Mapping[str, str]) -> str:
    """`::error file=...,title=...::message`, escaped as the runner's own toolkit does."""
    told = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{level} {told}::{_data(message)}"


def _data(value: str) -> str:
    lines = (printable(each) for each in value.split("\n"))
    return "%0A".join(each.replace("%", "%25") for each in lines)


def _property(value: str) -> str:
    return printable(value).replace("%", "%25").replace(":", "%3A").replace(",", "%2C")


def _row(finding: Finding, report: Report, words: Wordings) -> Tuple[str, ...]:
    icon = _ICONS[state_of(finding, report)] if finding.severity != "info" else "ℹ️"
    facts = words.facts(finding)
    more = [f"{len(facts) - _FACTS} more lines in the log"] if len(facts) > _FACTS + 1 else facts[_FACTS:]
    said = [finding.message, *facts[:_FACTS], *more]
    return icon, finding.rule, _where(finding, report), "\n".join(dict.fromkeys(said))


def _where(finding: Finding, report: Report) -> str:
    return fold(finding.nodes) if finding.nodes else finding.path or report.about or RUN
