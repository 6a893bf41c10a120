"""Every public environment file through lint: exact findings, no traceback, nothing lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from envaudit.lock.envsection import section_of
from envaudit.lock.sourcefile import SourceFile, read_source
from envaudit.model import Finding, Fingerprint
from envaudit.rules import Evidence, judge
from tests.corpus.lint_findings import AFTER_READING, EXPECTED

pytestmark = pytest.mark.corpus

FOLDERS = ("environments", "condalock_failures")


def findings_of(source: SourceFile) -> list[tuple[int, int, Finding]]:
    """The findings with their lines and columns, in the order of the file."""
    fingerprint = Fingerprint("", "import", "2026-11-30T10:00:00Z", "0", {"envfile": section_of([source])})
    placed = []
    for finding in judge(Evidence((fingerprint,), comparing=False)):
        path, line, column = finding.path.rsplit(":", 2)
        assert source.path == path
        placed.append((int(line), int(column), finding))
    return sorted(placed, key=lambda each: (*each[:2], each[2].rule))


@pytest.mark.parametrize("name", EXPECTED)
def test_public_file_gets_exactly_the_expected_findings(name: str, corpus: Path) -> None:
    """Each finding at its line and column, under its rule, and no other."""
    found = findings_of(read_source(str(corpus / name)))
    written = [f"{line}:{column} {finding.rule}" for line, column, finding in found]
    assert list(EXPECTED[name].findings) == written


@pytest.mark.parametrize("name", EXPECTED)
def test_public_file_loses_no_line(name: str, corpus: Path) -> None:
    """As many entries for conda and for pip as the file has lines for them."""
    source = read_source(str(corpus / name))
    assert (EXPECTED[name].conda, EXPECTED[name].pip) == (len(source.conda), len(source.pip))


@pytest.mark.parametrize("name", EXPECTED)
def test_public_file_has_each_entry_where_it_is_said_to_be(name: str, corpus: Path) -> None:
    """The text at an entry's line and column is the entry's."""
    source = read_source(str(corpus / name))
    lines = source.text.split("\n")
    for entry in source.entries():
        assert lines[entry.line - 1][entry.column - 1 :].startswith(entry.text)


def test_every_public_file_is_accounted_for(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """None is left out; the table of all of them is printed."""
    present = {
        str(path.relative_to(corpus)) for folder in FOLDERS for path in (corpus / folder).glob("*.yml")
    }
    with capsys.disabled():
        print("\n" + "\n".join(row for name in sorted(present) for row in table_of(name, corpus)))
    assert set(EXPECTED) == present


def test_failures_without_a_finding_are_held_elsewhere(corpus: Path) -> None:
    """An input that breaks other tools and passes lint has its right behaviour written down."""
    silent = {
        Path(name).stem for name, each in EXPECTED.items() if name.startswith("cond") and not each.findings
    }
    assert set(AFTER_READING) == silent


def table_of(name: str, corpus: Path) -> list[str]:
    """The rows of one file: place, rule, and what was said."""
    found = findings_of(read_source(str(corpus / name)))
    if not found:
        return [f"{name:<58} passes  {AFTER_READING.get(Path(name).stem, '')}".rstrip()]
    return [
        f"{name:<58} {f'{line}:{column}':<7} {finding.rule} {finding.severity:<7} {finding.message[:90]}"
        for line, column, finding in found
    ]
