"""Every report for a CI system, letter by letter; `nox -s goldens` writes them anew."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from tests.report.ci_cases import CI_CASES

GOLDENS = Path(__file__).parent / "ci_goldens"
# Format to the ending of its files, and what has to be installed for it.
ENDINGS = {"junit": "xml", "sarif": "sarif", "github": "log", "prometheus": "prom"}
NEEDED = {"junit": "junitparser", "prometheus": "prometheus_client"}


def check(path: Path, text: str, rewrite: bool) -> None:
    """Compare with a golden, or write it."""
    if rewrite:
        path.write_bytes(text.encode("utf-8"))
    assert path.exists(), f"no golden {path.name}: nox -s goldens writes it"
    assert path.read_bytes().decode("utf-8") == text


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether goldens are written instead of compared."""
    return bool(request.config.getoption("--rewrite-goldens"))


@pytest.mark.parametrize("name", CI_CASES)
@pytest.mark.parametrize("form", ENDINGS)
def test_report_for_ci_is_as_before(name: str, form: str, rewrite: bool) -> None:
    """The same report gives the same bytes."""
    pytest.importorskip(NEEDED.get(form, "json"))
    text = importlib.import_module(f"envaudit.report.{form}").render(CI_CASES[name])
    check(GOLDENS / f"{name}.{ENDINGS[form]}", text, rewrite)


@pytest.mark.parametrize("name", CI_CASES)
def test_step_summary_is_as_before(name: str, rewrite: bool) -> None:
    """What GitHub shows of a step."""
    from envaudit.report.github import summary

    check(GOLDENS / f"{name}.md", summary(CI_CASES[name]), rewrite)


def test_every_golden_for_ci_belongs_to_a_case() -> None:
    """A golden that nothing compares is no check."""
    expected = {f"{name}.{ending}" for name in CI_CASES for ending in (*ENDINGS.values(), "md")}
    assert sorted(expected) == sorted(path.name for path in GOLDENS.iterdir())
