"""What a report says, line by line, before anything is coloured: one layout for text and plain."""

from __future__ import annotations

import re
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from envaudit.model.drift import Drift
from envaudit.model.finding import Finding
from envaudit.model.nodeset import fold
from envaudit.report import Report, Stage
from envaudit.report.checks import check_lines
from envaudit.report.clocks import clock_lines
from envaudit.report.collectives import collective_lines
from envaudit.report.facts import fact_lines
from envaudit.report.lines import Line, Span, line, plain_text
from envaudit.report.screen import printable, shortened
from envaudit.report.summary import header_lines, shared_basis, verdict_lines
from envaudit.report.timeline import timeline_lines
from envaudit.report.values import differences, known_groups

LETTERS = {"error": "E", "incomplete": "?", "warning": "W", "info": "I"}

_INDENT = " " * 11
_VALUE_CHARACTERS = 40
_LABEL_CHARACTERS = 56
_FOLDED_LINES = 10


class Row(NamedTuple):
    """One difference, not yet aligned with its neighbours.

    Attributes:
        lead: severity and rule, or blanks in their place.
        severity: for the colour of `lead`.
        label: what differs.
        cells: the values side by side; empty where `below` has them.
        arrow: whether the second cell is held against the first.
        tail: the basis, where it is not that of the whole report.
        below: further lines.
    """

    lead: str
    severity: str
    label: str
    cells: Tuple[str, ...] = ()
    arrow: bool = False
    tail: str = ""
    below: Tuple[str, ...] = ()


def layout(report: Report) -> List[Line]:
    """The whole report; the last line is always the verdict."""
    basis = shared_basis(report)
    parts = [
        header_lines(report),
        [line(f"{stage.name:<10} {printable(stage.text)}" + _took(stage)) for stage in report.stages],
        clock_lines(report.clocks, report.clock_basis, report.verbose),
        # A gate has a line of its own for what ran; the table is for who asks for it.
        *_numbers(report),
        *(_block(nodes, findings, basis, report) for nodes, findings in _blocks(report.findings)),
        fact_lines(report.facts, report.sections, report.verbose),
        timeline_lines(report.timeline, report.verbose),
        # As they are, from the first column on: they are there to be copied.
        [line(printable(command)) for command in report.suggestions],
    ]
    lines: List[Line] = []
    for part in parts:
        if part:
            lines += [*part, ()]
    return [*lines, *verdict_lines(report)]


def finding_lines(finding: Finding, report: Report) -> List[str]:
    """What a report says of one finding, below the nodes that it is about; no line has a control in it."""
    return [plain_text(each) for each in _block(finding.nodes, [finding], "", report)]


def _numbers(report: Report) -> List[List[Line]]:
    """What was computed; a gate that passes tells it in a line of its stages."""
    if report.command == "gate" and not report.verbose:
        return []
    checks = check_lines(report.checks, report.verbose)
    return [checks, collective_lines(report.collectives, report.verbose)]


def _blocks(findings: Sequence[Finding]) -> Iterator[Tuple[Tuple[str, ...], List[Finding]]]:
    """Findings about the same nodes together; the worst of each block decides its place."""
    blocks: Dict[Tuple[str, ...], List[Finding]] = {}
    for finding in findings:
        blocks.setdefault(finding.nodes, []).append(finding)
    yield from blocks.items()


def _block(nodes: Tuple[str, ...], findings: Sequence[Finding], basis: str, report: Report) -> List[Line]:
    rows = [row for finding in findings for row in _rows(finding, basis, report)]
    label_width = max((len(row.label) for row in rows if row.cells), default=0)
    cell_width = max((len(row.cells[0]) for row in rows if row.cells), default=0)
    second_width = max((len(row.cells[1]) for row in rows if row.tail and row.cells), default=0)
    if any(row.cells and not row.arrow for row in rows):
        # Two nodes side by side without a reference: their names are the heads of the columns.
        heads = [printable(node) for node in nodes]
        cell_width = max(cell_width, len(heads[0]))
        indent = " " * (len(_INDENT) + label_width + 2)
        lines = [line(indent, Span(f"{heads[0]:<{cell_width}}  {heads[1]}", "head"))]
    else:
        lines = [line(Span(printable(fold(nodes) or report.about) or "this run", "head"))]
    for row in rows:
        lines += _row_lines(row, label_width, (cell_width, second_width))
    following = sum(len(finding.following) for finding in findings)
    if following and not report.verbose:
        differ, these = ("difference follows", "this") if following == 1 else ("differences follow", "these")
        lines.append(line("  ", Span(f"{following} more {differ} from {these} (--verbose)", "dim")))
    return lines


def _row_lines(row: Row, label_width: int, widths: Tuple[int, int]) -> List[Line]:
    spans = [Span(row.lead, row.severity)]
    if row.cells:
        between = "  →  " if row.arrow else "  "
        second = f"{row.cells[1]:<{widths[1]}}" if row.tail else row.cells[1]
        cells = f"{row.cells[0]:<{widths[0]}}{between}{second}"
        spans.append(Span(f"{row.label:<{label_width}}  {cells}"))
    else:
        spans.append(Span(row.label))
    if row.tail:
        spans.append(Span(f"   {row.tail}", "dim"))
    return [tuple(spans), *(line(_INDENT, Span(text, "dim")) for text in row.below)]


def _rows(finding: Finding, shared: str, report: Report) -> Iterator[Row]:
    verbose = report.verbose
    lead = f"  {LETTERS[finding.severity]} {finding.rule}  "
    limit = None if verbose else _FOLDED_LINES
    since = f"since {finding.since}" if finding.since else ""
    said = (*_first(finding.evidence, limit), since, finding.why, finding.hint)
    notes = tuple(printable(text) for text in said if text)
    comparable = [drift for drift in finding.drifts if drift.kind != "unknown"]
    if len(comparable) == 1:
        rows = _drift_rows(comparable[0], finding.nodes, "", shared, verbose)
        rows[0] = rows[0]._replace(lead=lead, severity=finding.severity)
        noun = re.sub(r" differs?\Z", "", finding.message)
        if not finding.message.startswith(comparable[0].path):
            if noun != finding.message and len(rows) == 1:
                rows[0] = rows[0]._replace(label=printable(noun))
                notes = (printable(comparable[0].path), *notes) if verbose else notes
            else:
                notes = (printable(finding.message), *notes)
        rows[-1] = rows[-1]._replace(below=(*rows[-1].below, *notes))
        yield from rows
        yield from _following_rows(finding, shared, verbose)
        return
    tail = ""
    if len({drift.basis for drift in comparable}) == 1 and comparable[0].basis != shared:
        tail, shared = _basis_text(comparable[0]), comparable[0].basis
    where = f"{finding.path}: " if report.about and finding.path else ""
    yield Row(lead, finding.severity, printable(f"{where}{finding.message}"), tail=tail, below=notes)
    for drift in comparable[:limit]:
        yield from _drift_rows(drift, finding.nodes, finding.path, shared, verbose)
    if len(comparable) > len(comparable[:limit]):
        yield Row(_INDENT, "", _more(len(comparable) - len(comparable[:limit])))
    yield from _following_rows(finding, shared, verbose)


def _following_rows(finding: Finding, shared: str, verbose: bool) -> Iterator[Row]:
    """What only follows from a finding's differences: counted below the block, told where asked for."""
    if verbose and finding.following:
        yield Row(_INDENT, "", "what follows from this:")
        for drift in finding.following:
            yield from _drift_rows(drift, finding.nodes, "", shared, verbose)


def _first(texts: Tuple[str, ...], limit: Optional[int]) -> Tuple[str, ...]:
    """The first texts, and how many are left."""
    rest = len(texts) - len(texts[:limit])
    return (*texts[:limit], _more(rest)) if rest else texts


def _more(rest: int) -> str:
    return f"{rest} more (--verbose)"


def _drift_rows(drift: Drift, nodes: Tuple[str, ...], above: str, shared: str, verbose: bool) -> List[Row]:
    """A drift's rows: a pair of values, or one line for each group.

    Args:
        drift: of a kind other than `unknown`.
        nodes: those of the finding, whose block this is.
        above: the path that a line before has named.
        shared: the basis that the header has named.
        verbose: values whole.
    """
    known = known_groups(drift)
    are_columns = len(nodes) == 2 and nodes == tuple(node for group in known for node in group.nodes)
    is_pair = len(known) == 2 and (bool(drift.reference) or are_columns)
    tail = _basis_text(drift) if drift.basis != shared or not is_pair else ""
    rows = []
    for path, texts in differences(drift, 0 if verbose else _VALUE_CHARACTERS):
        within = path[len(above) + 1 :] if above and path.startswith(f"{above}/") else path
        named = within if verbose else _spoken(within)
        label = shortened(printable(named), 0 if verbose else _LABEL_CHARACTERS)
        if is_pair:
            rows.append(Row(_INDENT, "", label, texts, arrow=bool(drift.reference), tail=tail))
        else:
            width = max(len(text) for text in texts)
            below = tuple(
                f"{text:<{width}}  {printable(fold(group.nodes))} ({len(group.nodes)})"
                for text, group in zip(texts, known)
            )
            rows.append(Row(_INDENT, "", label, tail=tail, below=below))
    return rows


def _spoken(path: str) -> str:
    """A path to be read: a segment that is a file's name bare, where a pattern would escape it."""
    return path.replace("~1", "/").replace("~0", "~")


def _basis_text(drift: Drift) -> str:
    return "no reference" if drift.basis == "none" else drift.basis


def _took(stage: Stage) -> str:
    return f"  {stage.elapsed_s:.1f} s" if stage.elapsed_s else ""
