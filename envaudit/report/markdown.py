"""GitHub's Markdown, of which nothing that a node says becomes a part."""

from __future__ import annotations

import re
from typing import List, Sequence

from envaudit.report.screen import printable, shortened

_CELL_CHARACTERS = 300
# All ASCII punctuation that can begin or end a structure within a line: emphasis, code, links, HTML,
# tables, mathematics, mentions of people and of issues, and what makes a bare address a link.
_MARKS = re.compile(r"[\\`*_\[\]<>|~&@#$!:]|(?<=www)\.", re.IGNORECASE)


def text(words: str) -> str:
    """Words that read as they are; marks are written as numeric entities (CommonMark 0.31, 2.5)."""
    return _MARKS.sub(lambda mark: f"&#{ord(mark[0])};", printable(words))


def cell(words: str) -> str:
    """Lines in a table, where a line break is HTML; the middle of long ones is left out."""
    return "<br>".join(text(shortened(printable(each), _CELL_CHARACTERS)) for each in words.split("\n"))


def code(words: str) -> str:
    """A line in the fixed font; it is HTML, for backticks in a span of code cannot be escaped."""
    return f"<code>{text(words)}</code>"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> List[str]:
    """A table with a blank line after it; nothing where there are no rows."""
    if not rows:
        return []
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(map(cell, row)) + " |" for row in rows]
    return [*lines, ""]


def cut(lines: Sequence[str], limit_bytes: int) -> str:
    """The lines that fit into so many bytes, and a word where some do not."""
    kept: List[str] = []
    left = limit_bytes - 100
    for number, each in enumerate(lines):
        left -= len(each.encode("utf-8")) + 1
        if left < 0:
            kept += ["", f"{len(lines) - number} more lines are left out."]
            break
        kept.append(each)
    return "\n".join(kept) + "\n"
