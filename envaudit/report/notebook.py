"""A report as a piece of HTML for a notebook: the verdict and the findings, without style or script."""

from __future__ import annotations

from typing import List

from envaudit.model.finding import Finding
from envaudit.model.nodeset import fold
from envaudit.model.printing import escaped
from envaudit.report import Report
from envaudit.report.lines import plain_text
from envaudit.report.summary import header_lines, verdict_lines

# A notebook is no place for a thousand rows; the whole report is a file.
_ROWS = 50
_EVIDENCE_LINES = 3


def fragment(report: Report) -> str:
    """One `div`; whatever a node said is escaped."""
    head = "".join(f"<p>{escaped(plain_text(line))}</p>" for line in header_lines(report))
    verdict = "".join(
        f"<p><strong>{escaped(plain_text(line))}</strong></p>" for line in verdict_lines(report)
    )
    rows = "".join(_row(finding) for finding in report.findings[:_ROWS])
    table = (
        "<table><thead><tr><th>severity</th><th>rule</th><th>nodes</th><th>what</th></tr></thead>"
        f"<tbody>{rows}</tbody></table>"
        if rows
        else ""
    )
    rest = len(report.findings) - _ROWS
    more = f"<p>{rest} more</p>" if rest > 0 else ""
    return f'<div class="envaudit">{verdict}{head}{table}{more}</div>'


def _row(finding: Finding) -> str:
    said: List[str] = [finding.message, *finding.evidence[:_EVIDENCE_LINES], finding.hint]
    what = "<br>".join(escaped(text) for text in said if text)
    cells = (finding.severity, finding.rule, fold(finding.nodes))
    return f"<tr>{''.join(f'<td>{escaped(cell)}</td>' for cell in cells)}<td>{what}</td></tr>"
