"""Nothing that a node says acts on the reader's screen."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envaudit.report import Report, json, plain
from envaudit.report.screen import printable, shortened
from tests.report.cases import CASES
from tests.report.reports import LAWS, TEXTS, reports

# Select Graphic Rendition: the only escape that a coloured report may hold.
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"),
        ("naïve – ≥ 日本", "naïve – ≥ 日本"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("a\tb\nc\r", r"a\tb\nc\r"),
        ("\x9b31m", r"\x9b31m"),
        ("\u202eexe.\u2066", r"\u202eexe.\u2066"),
        ("a\u200bb\ufeff", r"a\u200bb\ufeff"),
        ("\u2028\u2029\x85", r"\u2028\u2029\x85"),
        ("\udcff", r"\udcff"),
        ("\U000e0041", r"\U000e0041"),
        ("a\xa0b", r"a\xa0b"),
    ],
)
def test_printable_shows_what_would_act(text: str, expected: str) -> None:
    """Readable text stays, everything else becomes a visible escape."""
    assert expected == printable(text)


@given(TEXTS)
def test_printable_text_has_nothing_but_printing_characters(text: str) -> None:
    """Whatever came in; and what is printable stays as it is."""
    once = printable(text)
    assert once.isprintable()
    assert once == printable(once)


@given(st.text(), st.integers(1, 40))
def test_shortened_text_keeps_both_ends_within_the_limit(text: str, limit: int) -> None:
    """What is cut is cut in the middle, and seen to be cut."""
    short = shortened(text, limit)
    assert short == text or (len(short) == limit and "…" in short)
    assert text == shortened(text, 0)


@LAWS
@given(reports())
def test_plain_report_prints_nothing_but_lines_of_text(report: Report) -> None:
    """The newline is the only control character, and the last line is the verdict."""
    text = plain.render(report)
    lines = text.split("\n")
    assert "" == lines.pop()
    assert all(line.isprintable() for line in lines)
    assert lines[-1].startswith(report.verdict.name)


@LAWS
@given(reports())
def test_coloured_report_holds_no_escape_but_colours(report: Report) -> None:
    """Under the colours stands the plain report, letter by letter: rich read no markup."""
    text = pytest.importorskip("envaudit.report.text")
    assert plain.render(report) == COLOUR.sub("", text.render(report, width=80, color=True))


@LAWS
@given(reports())
def test_uncoloured_text_is_the_plain_report(report: Report) -> None:
    """One layout for both."""
    text = pytest.importorskip("envaudit.report.text")
    assert plain.render(report) == text.render(report, width=80, color=False)


@LAWS
@given(reports())
def test_json_report_is_printable_ascii(report: Report) -> None:
    """`--format json` on a terminal is as harmless."""
    assert re.fullmatch(r"[\x20-\x7e\n]*", json.render(report))


@pytest.mark.parametrize("name", CASES)
def test_coloured_report_reads_as_the_plain_one(name: str) -> None:
    """Colour adds nothing to what is said."""
    text = pytest.importorskip("envaudit.report.text")
    assert plain.render(CASES[name]) == COLOUR.sub("", text.render(CASES[name], width=60, color=True))
