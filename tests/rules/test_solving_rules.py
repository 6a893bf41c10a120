"""What the rules say of a solve that gave no lock."""

from __future__ import annotations

from typing import Any

from envaudit.model import Fingerprint, Section
from envaudit.rules import Evidence, judge


def told(**facts: Any) -> list[tuple[str, str, str, str]]:
    """Rule, message, place and hint of each finding."""
    whole = {"conflicts": [], "pip_conflicts": [], "helped": {}, "suggestions": {}, **facts}
    fingerprint = Fingerprint(
        "", "lock", "2026-11-30T10:00:00Z", "0", {"solve": Section("solve", 1, "ok", whole)}
    )
    found = judge(Evidence((fingerprint,), comparing=False))
    return [(each.rule, each.message, each.path, each.hint) for each in found]


def conflict(platform: str, explanation: str = "why") -> dict[str, Any]:
    """No solution on a platform because of `openssh-client`."""
    return {
        "platform": platform,
        "specs": [{"text": "openssh-client", "where": "environment.yml:5:5"}],
        "explanation": [explanation],
        "hints": ["Did you mean 'openssh'?"],
    }


def test_solve_that_went_well_has_no_findings() -> None:
    """Nothing to tell."""
    assert [] == told()


def test_platforms_that_fail_alike_are_one_finding_at_the_spec() -> None:
    """The specs at fault first."""
    expected = (
        "EA050",
        "no solution on linux-64, osx-arm64: openssh-client",
        "environment.yml:5:5",
        "Did you mean 'openssh'?",
    )
    assert [expected] == told(conflicts=[conflict("linux-64"), conflict("osx-arm64")])


def test_platforms_that_fail_otherwise_are_two_findings() -> None:
    """Each with its own explanation."""
    found = told(conflicts=[conflict("linux-64"), conflict("osx-arm64", "another")])
    assert ["EA050", "EA050"] == [rule for rule, *_ in found]


def test_pip_section_without_a_solution_has_its_own_rule() -> None:
    """The conda part may be fine."""
    ((rule, message, *_),) = told(pip_conflicts=[conflict("linux-64")])
    assert ("EA051", "no solution for the pip section on linux-64: openssh-client") == (rule, message)


def test_channel_that_helped_out_is_a_remark() -> None:
    """Under flexible priority."""
    ((rule, message, *_),) = told(helped={"linux-64": ["numpy"]})
    assert ("EA052", "a channel further down had to help out on linux-64") == (rule, message)
