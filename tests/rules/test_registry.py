"""What the register of rules refuses, and what every rule owes it."""

from __future__ import annotations

from typing import Iterator

import pytest

from envaudit.model import Finding
from envaudit.model.finding import SEVERITIES
from envaudit.rules import Evidence, Found, Policy, Rule, all_rules, judge, rule
from envaudit.rules.registry import SCOPES, SUBJECTS
from tests.diff.nodes import fingerprint

RULES = all_rules()


def nothing(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """A rule that never fires, of the module it is said to be in."""
    yield from ()


def of_subject(subject: str) -> object:
    """The same function as if it stood in rules/<subject>.py."""
    made = type(nothing)(nothing.__code__, globals())
    made.__module__ = f"envaudit.rules.{subject}"
    return made


def register(rule_id: str, subject: str, severity: str = "error", scope: str = "cross") -> None:
    """Register a rule of a subject; every case here is refused."""
    rule(rule_id, severity=severity, scope=scope, title="t", why="w")(of_subject(subject))  # type: ignore[arg-type]


def test_rules_of_this_version_are_registered() -> None:
    """Every module of the room was imported."""
    assert {"EA299", "EA901", "EA902", "EA903", "EA904", "EA905"} <= {each.id for each in RULES}


@pytest.mark.parametrize("each", RULES, ids=lambda each: each.id)
def test_rule_says_what_it_is(each: Rule) -> None:
    """Title and reason are there, severity and scope are words of the house, the id is its subject's."""
    assert each.title
    assert each.why.endswith(".")
    assert each.severity in SEVERITIES
    assert each.scope in SCOPES
    first, last = SUBJECTS[each.judge.__module__.rsplit(".", 1)[1]]
    assert first <= int(each.id[2:]) <= last


def test_subjects_do_not_share_ids() -> None:
    """Ranges follow each other without overlap."""
    ranges = sorted(SUBJECTS.values())
    assert all(before[1] < after[0] for before, after in zip(ranges, ranges[1:]))


@pytest.mark.parametrize(
    ("rule_id", "subject", "complaint"),
    [
        ("EA901", "evidence", "is taken by 'no evidence'"),
        ("EA301", "evidence", "ids of evidence are EA900 to EA909"),
        ("EA9", "evidence", "ids of evidence"),
        ("XX999", "evidence", "ids of evidence"),
        ("EA999", "nonsense", "is no subject"),
    ],
)
def test_rule_with_a_wrong_id_is_refused(rule_id: str, subject: str, complaint: str) -> None:
    """Taken, out of its subject's range, malformed, or of a subject that there is not."""
    with pytest.raises(ValueError, match=complaint):
        register(rule_id, subject)


@pytest.mark.parametrize(("severity", "scope"), [("fatal", "node"), ("error", "galaxy")])
def test_rule_with_an_unknown_word_is_refused(severity: str, scope: str) -> None:
    """A misspelt severity would never fail a gate."""
    with pytest.raises(ValueError, match="is not known"):
        register("EA908", "evidence", severity, scope)


def test_policy_with_an_unknown_threshold_is_refused() -> None:
    """A threshold that is none would let everything pass."""
    with pytest.raises(ValueError, match="fail_on is one of error, warning, info"):
        Policy(fail_on="fatal")


def test_rule_adds_its_id_severity_and_advice() -> None:
    """A rule function says what it found; the rest stands once, on the rule."""

    def found(evidence: Evidence, policy: Policy) -> Iterator[Found]:
        yield Found("m", ("n10", "n2"))
        yield Found("m", hint="own advice")

    made = Rule("EA997", "warning", "node", (), "t", "w.", "general advice", found)
    assert [
        Finding("EA997", "warning", "m", ("n2", "n10"), hint="general advice"),
        Finding("EA997", "warning", "m", hint="own advice"),
    ] == list(made.findings(Evidence(()), Policy()))


def test_judge_leaves_out_rules_whose_sections_nobody_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that needs a GPU is silent on CPU nodes and speaks where one node has it."""

    def found(evidence: Evidence, policy: Policy) -> Iterator[Found]:
        yield Found("spoke")

    made = Rule("EA302", "error", "node", ("gpu",), "t", "w.", "", found)
    monkeypatch.setattr("envaudit.rules.judging.all_rules", lambda: [made])
    assert () == judge(Evidence((fingerprint("a", host={}),)))
    assert ("spoke",) == tuple(each.message for each in judge(Evidence((fingerprint("a", gpu={}),))))
