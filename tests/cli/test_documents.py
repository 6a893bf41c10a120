"""Documents that are generated from the code stay equal to it; `nox -s goldens` writes them anew."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli import documents

PROJECT = Path(__file__).resolve().parents[2]
MARKS = re.compile(r"(<!-- exit codes: begin[^\n]*-->\n).*?(<!-- exit codes: end -->)", re.S)


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether documents are written instead of compared."""
    return bool(request.config.getoption("--rewrite-goldens"))


def test_exit_codes_in_the_readme_are_those_of_the_error_classes(rewrite: bool) -> None:
    """The table is made from the classes, so neither can drift from the other."""
    path = PROJECT / "README.md"
    text = path.read_text()
    generated = MARKS.sub(lambda match: f"{match[1]}{documents.exit_codes_table()}\n{match[2]}", text)
    assert MARKS.search(text)
    if rewrite:
        path.write_text(generated)
    assert generated == path.read_text()


def test_options_document_is_what_help_prints(rewrite: bool) -> None:
    """docs/cli.md is `--help` of every command."""
    path = PROJECT / "docs" / "cli.md"
    generated = documents.options_document()
    if rewrite:
        path.parent.mkdir(exist_ok=True)
        path.write_text(generated)
    assert generated == path.read_text()
