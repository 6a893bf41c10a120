"""The first and the last line of a report: who was compared with what, and the verdict."""

from __future__ import annotations

from typing import Dict, List, Sequence, Set, Tuple

from envaudit.model.drift import Drift
from envaudit.model.finding import Finding
from envaudit.model.nodeset import fold
from envaudit.report import Report
from envaudit.report.lines import Line, Span, line, plain_text
from envaudit.report.screen import printable


def header_lines(report: Report) -> List[Line]:
    """How many nodes, in how many groups, and what the reference is."""
    if not report.comparing:
        return []
    asked = len(report.nodes) + len(report.missing)
    who = _count(len(report.nodes), "node")
    if report.missing:
        who = f"{len(report.nodes)} of {_count(asked, 'node')} answered"
    drifts = _comparable(report.drifts)
    if report.reference:
        return [line(f"{who}. Reference: {printable(report.reference)}.")]
    groups = _count(_group_count(report.nodes, drifts), "group")
    if not drifts:
        names = f": {printable(fold(report.nodes))}" if report.nodes else ""
        return [line(f"{who}, {groups}{names}.")]
    return [line(f"{who}, {groups}. {_reference_text(drifts)}")]


def shared_basis(report: Report) -> str:
    """The basis that the header names for all drifts; empty where each drift has to say its own."""
    drifts = _comparable(report.drifts)
    if not report.comparing:
        return ""
    sources = {(drift.basis, () if report.reference else drift.reference) for drift in drifts}
    return next(iter(sources))[0] if len(sources) == 1 else ""


def verdict_lines(report: Report) -> List[Line]:
    """The verdict, last; before it the evidence that is missing, when a run failed as well."""
    lines = []
    took = f"{report.elapsed_s:.1f} s"
    if report.verdict.incomplete:
        lines.append(_incomplete_line(report))
    if report.verdict.failed:
        lines.append(_fail_line(report, took))
    if not lines:
        lines.append(line(Span("PASS", "good"), f" {_pass_text(report)}, {took}"))
    return lines


def verdict_texts(report: Report) -> List[str]:
    """The lines of the verdict without styles."""
    return [plain_text(each) for each in verdict_lines(report)]


def _fail_line(report: Report, took: str) -> Line:
    judged = [finding for finding in report.findings if finding.severity != "incomplete"]
    worst = judged[0]
    asked = len(report.nodes) + len(report.missing)
    alike = [finding for finding in judged if finding.severity == worst.severity]
    mine = {node for finding in alike if finding.rule == worst.rule for node in finding.nodes}
    where = f" {printable(fold(mine))}" if mine else ""
    if report.about and worst.path and not mine:
        where = f" {printable(worst.path)}"
    of_nodes = [finding for finding in alike if finding.nodes]
    nodes = {node for finding in of_nodes for node in finding.nodes}
    # What is about the run, such as a stale lock, is on no node.
    some = f", {len(of_nodes)} of them" if len(of_nodes) < len(alike) else ""
    on = f"{some} on {len(nodes)} of {_count(asked, 'node')}" if nodes else ""
    warnings = _severity_counts(judged, ("warning",)) if worst.severity == "error" else ""
    parts = [_severity_counts(alike, (worst.severity,)) + on, *([warnings] if warnings else []), took]
    return line(Span("FAIL", "error"), f" {worst.rule}{where}: {', '.join(parts)}")


def _incomplete_line(report: Report) -> Line:
    gaps = [finding for finding in report.findings if finding.severity == "incomplete"]
    first = gaps[0]
    where = f" {printable(fold(first.nodes))}" if first.nodes else ""
    more = f" ({len(gaps) - 1} more)" if len(gaps) > 1 else ""
    text = f" {first.rule}{where}: {printable(first.message)}{more}"
    return line(Span("INCOMPLETE", "incomplete"), text)


def _pass_text(report: Report) -> str:
    hidden = f", {switched_off(report.hidden)}" if report.hidden else ""
    if report.outcome:
        return printable(report.outcome) + hidden
    remarks = _severity_counts(report.findings, ("warning", "info"))
    if report.about:
        return ", ".join([printable(report.about), remarks or "no findings"])
    alike = ""
    apart = any(finding.nodes and set(finding.nodes) < set(report.nodes) for finding in report.findings)
    if report.comparing and not _comparable(report.drifts) and not apart:
        alike = " like the reference" if report.reference else " alike"
    parts = [f"{_count(len(report.nodes), 'node')}{alike}"]
    if report.sections:
        parts.append(_count(len(report.sections), "section"))
    return ", ".join([*parts, remarks] if remarks else parts) + hidden


def switched_off(hidden: int) -> str:
    """`3 findings are switched off`: what a policy hides is not what is well."""
    return f"{_count(hidden, 'finding')} {'is' if hidden == 1 else 'are'} switched off"


def _severity_counts(findings: Sequence[Finding], severities: Sequence[str]) -> str:
    counts = {severity: sum(finding.severity == severity for finding in findings) for severity in severities}
    nouns = {"info": "remark"}
    return ", ".join(_count(count, nouns.get(name, name)) for name, count in counts.items() if count)


def _comparable(drifts: Sequence[Drift]) -> List[Drift]:
    return [drift for drift in drifts if drift.kind != "unknown"]


def _reference_text(drifts: Sequence[Drift]) -> str:
    sources = {(drift.basis, drift.reference) for drift in drifts}
    if len(sources) > 1:
        return "Reference: the majority of each fact."
    basis, reference = next(iter(sources))
    if basis == "none" and sum(len(group.nodes) for group in drifts[0].groups) == 2:
        return "No reference: two nodes that differ."
    if basis == "none":
        return "No reference: no value has a majority."
    return f"Reference: {basis}, {printable(fold(reference))}."


def _group_count(nodes: Sequence[str], drifts: Sequence[Drift]) -> int:
    """How many kinds of nodes there are; what is not known of a node does not set it apart."""
    labels: Dict[str, List[int]] = {node: [] for node in nodes}
    for drift in drifts:
        group_of = {
            node: number
            for number, group in enumerate(drift.groups)
            if group.state != "unknown"
            for node in group.nodes
        }
        for node, label in labels.items():
            label.append(group_of.get(node, 0))
    kinds: Set[Tuple[int, ...]] = {tuple(label) for label in labels.values()}
    return len(kinds)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
