"""Findings and the verdict over them: FAIL > INCOMPLETE > PASS."""

from __future__ import annotations

from typing import List

import pytest

from envaudit.model import Finding, Verdict


def _findings(*severities: str) -> List[Finding]:
    return [Finding(f"EA90{index}", severity, "x") for index, severity in enumerate(severities)]


@pytest.mark.parametrize(
    ("severities", "fail_on", "name", "exit_code"),
    [
        ([], "error", "PASS", 0),
        (["info", "warning"], "error", "PASS", 0),
        (["warning"], "warning", "FAIL", 1),
        (["info"], "info", "FAIL", 1),
        (["error"], "error", "FAIL", 1),
        (["incomplete"], "error", "INCOMPLETE", 3),
        (["incomplete"], "info", "INCOMPLETE", 3),
        (["incomplete", "warning"], "error", "INCOMPLETE", 3),
        (["incomplete", "error"], "error", "FAIL", 1),
    ],
)
def test_verdict_of_findings_has_name_and_exit_code(
    severities: List[str], fail_on: str, name: str, exit_code: int
) -> None:
    """The exit code comes from the findings and the threshold."""
    verdict = Verdict.of(_findings(*severities), fail_on)
    assert (name, exit_code) == (verdict.name, verdict.exit_code)


def test_verdict_of_failure_and_gap_tells_both() -> None:
    """A failure does not hide that evidence is missing."""
    verdict = Verdict.of(_findings("error", "incomplete"))
    assert (True, True) == (verdict.failed, verdict.incomplete)


def test_findings_by_rank_are_worst_first() -> None:
    """Missing evidence stands after errors and before warnings."""
    ordered = sorted(_findings("info", "warning", "incomplete", "error"), key=lambda finding: finding.rank)
    assert ["error", "incomplete", "warning", "info"] == [finding.severity for finding in ordered]
