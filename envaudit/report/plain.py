"""Plain text: for pipes, CI logs and the one-file form. Standard library only."""

from __future__ import annotations

from envaudit.report import Report
from envaudit.report.layout import layout
from envaudit.report.lines import plain_text


def render(report: Report) -> str:
    """The report as lines, the last one the verdict."""
    return "".join(f"{plain_text(line)}\n" for line in layout(report))
