"""Every kind of report, letter by letter; `nox -s goldens` writes them anew."""

from __future__ import annotations

from typing import Callable

import pytest

from envaudit.report import json, plain
from tests.report.cases import CASES
from tests.report.conftest import GOLDENS

Check = Callable[[str, str], None]
# Colours are the same everywhere; these two show all of them.
COLOURED = ("node_missing_and_outlier", "fifty_healthy_nodes")


@pytest.mark.parametrize("name", CASES)
def test_plain_report_is_as_before(name: str, check_golden: Check) -> None:
    """What a pipe and a CI log get."""
    check_golden(f"{name}.txt", plain.render(CASES[name]))


@pytest.mark.parametrize("name", CASES)
def test_json_report_is_as_before(name: str, check_golden: Check) -> None:
    """What a program gets."""
    check_golden(f"{name}.json", json.render(CASES[name]))


@pytest.mark.parametrize("name", COLOURED)
def test_coloured_report_is_as_before(name: str, check_golden: Check) -> None:
    """What a terminal gets, escapes and all."""
    text = pytest.importorskip("envaudit.report.text")
    check_golden(f"{name}.ansi", text.render(CASES[name], width=100, color=True))


def test_every_golden_belongs_to_a_case() -> None:
    """A golden that nothing compares is no check."""
    expected = {f"{name}.{suffix}" for name in CASES for suffix in ("txt", "json")}
    expected |= {f"{name}.ansi" for name in COLOURED}
    assert sorted(expected) == sorted(path.name for path in GOLDENS.iterdir())
