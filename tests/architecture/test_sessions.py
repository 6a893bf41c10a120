"""A test that is skipped for want of torch runs in the session that has it."""

from __future__ import annotations

from pathlib import Path

from tests.in_two import WITH_TORCH

TESTS = Path(__file__).resolve().parents[1]


def test_whatever_needs_torch_runs_where_torch_is() -> None:
    """`nox -s checks` runs tests/checks, and what stands in WITH_TORCH."""
    asking = {
        path.relative_to(TESTS).as_posix()
        for path in TESTS.rglob("test_*.py")
        if "nox -s checks" in path.read_text("utf-8") and path != Path(__file__)
    }
    assert {path for path in WITH_TORCH if not (TESTS / path).exists()} == set()
    assert len(asking) > 10
    assert [] == sorted(path for path in asking if not path.startswith(("checks/", *WITH_TORCH)))
