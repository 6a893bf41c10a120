"""Prometheus' text format, for the textfile collector of the node exporter.

A machine that nobody looks at any more keeps its last file: alert on the age of
`envaudit_last_run_timestamp_seconds` as well.
"""

from __future__ import annotations

import calendar
import time
from collections import Counter

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from envaudit.model.finding import SEVERITIES
from envaudit.report import Report
from envaudit.report.outcomes import all_findings, state_of, verdict_of
from envaudit.report.screen import printable

VERDICTS = ("PASS", "FAIL", "INCOMPLETE")


def render(report: Report) -> str:
    """All metrics of one run. The registry is the report's own: no process or platform metrics."""
    registry = CollectorRegistry()
    _run_metrics(report, registry)
    _node_metrics(report, registry)
    exposition: bytes = generate_latest(registry)
    return exposition.decode("utf-8")


def _run_metrics(report: Report, registry: CollectorRegistry) -> None:
    ended = Gauge(
        "envaudit_last_run_timestamp_seconds", "When the last run ended, since the epoch.", registry=registry
    )
    ended.set(_ended_s(report))
    took = Gauge("envaudit_run_duration_seconds", "How long the last run took.", registry=registry)
    took.set(round(report.elapsed_s, 3))
    code = Gauge(
        "envaudit_exit_code",
        "0 pass, 1 fail, 3 incomplete; FAIL and INCOMPLETE together are 1.",
        registry=registry,
    )
    judged = verdict_of(report)
    code.set(judged.exit_code)
    verdict = Gauge("envaudit_verdict", "1 for the verdict of the last run.", ["verdict"], registry=registry)
    for name in VERDICTS:
        verdict.labels(name).set(int(name == judged.name))
    info = Gauge(
        "envaudit_run_info", "What the last run was.", ["command", "host", "version"], registry=registry
    )
    info.labels(report.command, printable(report.host), report.tool).set(1)


def _node_metrics(report: Report, registry: CollectorRegistry) -> None:
    findings = all_findings(report)
    count = Gauge("envaudit_findings", "Findings of the last run.", ["severity"], registry=registry)
    by_severity = Counter(finding.severity for finding in findings)
    for severity in SEVERITIES:
        count.labels(severity).set(by_severity[severity])
    aside = Gauge("envaudit_set_aside_findings", "Findings that do not count.", ["by"], registry=registry)
    by_whom = Counter(each.how for each in report.set_aside)
    for how in ("policy", "waiver"):
        aside.labels(how).set(by_whom[how])
    answered = Gauge(
        "envaudit_node_examined",
        "1 for a node that was read, 0 for one that gave no evidence.",
        ["node"],
        registry=registry,
    )
    for node in report.nodes:
        answered.labels(printable(node)).set(1)
    for node in report.missing:
        answered.labels(printable(node)).set(0)
    drift = Gauge(
        "envaudit_drift",
        "Findings of a rule on a node, without mere remarks; the node is empty where it is about none.",
        ["rule", "node"],
        registry=registry,
    )
    for finding in findings:
        if finding.severity != "info" or state_of(finding, report) == "failed":
            for node in finding.nodes or ("",):
                drift.labels(finding.rule, printable(node)).inc()


def _ended_s(report: Report) -> float:
    if not report.started_at:
        return 0.0
    began = calendar.timegm(time.strptime(report.started_at, "%Y-%m-%dT%H:%M:%SZ"))
    return round(began + report.elapsed_s, 3)
