"""JUnit XML: one test case for each rule and node, for the test pages of CI systems.

What fails the run is a `failure`, missing evidence an `error`; a finding below the threshold is a test
that passed and has something to say, a waived one is `skipped`. A node without a finding is a test that
passed: a run that looked at nothing has none of these, and an error instead.
"""

from __future__ import annotations

from typing import Dict, List, Tuple

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from envaudit.report import Report
from envaudit.report.outcomes import CLEAN, Outcome, outcomes
from envaudit.report.screen import printable
from envaudit.report.summary import verdict_texts
from envaudit.report.wordings import Wordings


def render(report: Report) -> str:
    """The report as one test suite, with the run itself in its properties."""
    words = Wordings(report)
    told = outcomes(report)
    suite = TestSuite(f"envaudit {report.command}")
    _describe(suite, report)
    for outcome in told:
        suite.append(_case(outcome, words))
    counted: Dict[str, int] = {}
    for outcome in told:
        counted[outcome.state] = counted.get(outcome.state, 0) + 1
    whole = JUnitXml("envaudit")
    for element in (suite, whole):
        element.tests = len(told)
        element.failures = counted.get("failed", 0)
        element.errors = counted.get("gap", 0)
        element.skipped = counted.get("aside", 0)
        element.time = round(report.elapsed_s, 3)
    whole.append(suite)
    text: bytes = whole.tostring()
    return "<?xml version='1.0' encoding='utf-8'?>\n" + _laid_out(text.decode("utf-8"))


def _laid_out(text: str) -> str:
    """An element a line; in texts and attributes each `>` is an entity, so that tags alone are touched.

    junitparser takes lxml where that is installed, which closes empty elements without a blank.
    """
    return text.replace(" />", "/>").replace("><", ">\n<") + "\n"


def _describe(suite: TestSuite, report: Report) -> None:
    if report.host:
        suite.hostname = printable(report.host)
    if report.started_at:
        # JUnit's timestamps are ISO 8601 without a zone; those of envaudit are UTC.
        suite.timestamp = report.started_at.rstrip("Z")
    properties = [
        ("tool", f"envaudit {report.tool}"),
        ("verdict", report.verdict.name),
        ("exit_code", str(report.verdict.exit_code)),
        ("fail_on", report.verdict.fail_on),
        ("reference", report.reference),
        ("nodes", str(len(report.nodes))),
        ("missing", str(len(report.missing))),
        ("sections", " ".join(report.sections)),
        *((f"stage.{stage.name}", stage.text) for stage in report.stages),
        *(("verdict_line", text) for text in verdict_texts(report)),
    ]
    for name, value in properties:
        if value:
            suite.add_property(printable(name), printable(value))


def _case(outcome: Outcome, words: Wordings) -> TestCase:
    case = TestCase(words.title(outcome.rule) if outcome.rule else CLEAN, printable(outcome.place))
    if not outcome.rule:
        return case
    message, body = _told(outcome, words)
    if outcome.state == "remark":
        case.system_out = f"{outcome.findings[0].severity}: {message}\n{body}"
        return case
    kinds = {"failed": Failure, "gap": Error, "aside": Skipped}
    severity = outcome.findings[0].severity if outcome.findings else outcome.aside[0].how
    result = kinds[outcome.state](message, severity)
    result.text = body
    case.append(result)
    return case


def _told(outcome: Outcome, words: Wordings) -> Tuple[str, str]:
    """The line that a list of tests shows, and what stands below it."""
    messages = [finding.message for finding in outcome.findings]
    lines: List[str] = []
    for finding in outcome.findings:
        lines += [*words.own_values(finding, outcome.place), *words.lines(finding)]
    for each in outcome.aside:
        messages += [each.words] if not outcome.findings else []
        lines += [f"{each.how}: {printable(each.words)}", *words.lines(each.finding)]
    more = f" ({len(messages) - 1} more)" if len(messages) > 1 else ""
    return printable(messages[0]) + more, "\n".join(lines)
