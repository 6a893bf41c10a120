"""`envaudit explain`: every rule has an explanation that a reader can act on."""

from __future__ import annotations

import argparse
import re

import pytest

from envaudit.cli import explain
from envaudit.rules import all_rules
from tests.cli.conftest import Folder

RULES = {rule.id: rule for rule in all_rules()}


@pytest.fixture(scope="module")
def explained() -> str:
    """All explanations, as the command prints them."""
    import contextlib
    import io

    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        explain.execute(argparse.Namespace(rules=list(RULES), config=None, configuration=None))
    return text.getvalue()


@pytest.mark.parametrize("rule_id", RULES)
def test_every_rule_is_explained(explained: str, rule_id: str) -> None:
    """What is wrong, why it matters, how to change it and how to accept it."""
    rule = RULES[rule_id]
    (part,) = re.findall(rf"^{rule_id}  .*?(?=^EA\d{{3}}  |\Z)", explained, re.DOTALL | re.MULTILINE)
    flat = " ".join(part.split())
    assert f"{rule_id} {rule.title}" in flat
    for said in (rule.why, rule.case, rule.how_to_fix):
        assert " ".join(said.split()) in flat
    if rule.severity != "incomplete":
        assert f"[rules.{rule_id}]" in part
        assert f"envaudit waive {rule_id}" in part
    for name, number in rule.thresholds.items():
        assert f"{name.replace('_', '-')} = {number.value:g}" in part
    assert max(map(len, part.splitlines())) <= 160


def test_missing_evidence_is_not_said_to_be_waivable(folder: Folder) -> None:
    """What no policy may change is not offered."""
    ended = folder.run("explain", "EA901")
    assert (0, False, False) == (ended.code, "envaudit waive" in ended.out, "severity =" in ended.out)


def test_rule_of_lower_case_is_explained(folder: Folder) -> None:
    """As people type it; several at once."""
    ended = folder.run("explain", "ea214", "EA215")
    assert (0, ["EA214", "EA215"]) == (ended.code, re.findall(r"^(EA\d{3})  ", ended.out, re.MULTILINE))
    assert "Sixteen GPUs on four nodes hung" in " ".join(ended.out.split())


def test_rule_that_does_not_exist_suggests_the_nearest(folder: Folder) -> None:
    """2, and a name that is one."""
    ended = folder.run("explain", "EA2144")
    assert (2, "") == (ended.code, ended.out)
    assert "no rule is called 'EA2144'" in ended.err
    assert "EA214" in ended.err.partition("Did you mean")[2]


def test_explanation_shows_what_the_policy_at_hand_makes_of_a_rule(folder: Folder) -> None:
    """The severity and the numbers that hold here, with the rule's own."""
    (folder.path / "envaudit.toml").write_text(
        "[rules.EA150]\nseverity = 'warning'\noffset-s = 2.5\n", encoding="utf-8"
    )
    ended = folder.run("explain", "EA150")
    assert "severity warning (by default error)" in ended.out
    assert "offset-s = 2.5" in ended.out
