"""Every test runs in one of two sessions, and once; one that needs torch in that which has it."""

from __future__ import annotations

from pathlib import Path

from tests.by_folder import folders_of

TESTS = Path(__file__).resolve().parents[1]
EVERY = set(TESTS.rglob("test_*.py"))
CHECKS = {path for folder in folders_of("checks") for path in folder}


def test_whatever_needs_torch_runs_where_torch_is() -> None:
    """`nox -s checks` runs what says that it needs it."""
    asking = {path for path in EVERY if "nox -s checks" in path.read_text("utf-8")} - {Path(__file__)}
    assert len(asking) > 10
    assert set() == asking - CHECKS


def test_every_test_runs_in_a_session() -> None:
    """And nothing is asked for that is not there."""
    tests = {path for folder in folders_of("tests") for path in folder}
    assert EVERY == tests | CHECKS
    assert set() == tests & CHECKS
