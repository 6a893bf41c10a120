"""The examples of docs/python.md: they parse, and name only what there is."""

from __future__ import annotations

import ast
import re

import pytest

import envaudit
from envaudit.cli.main import parser_of
from tests.conftest import PROJECT

BLOCKS = re.findall(r"```python\n(.*?)```", (PROJECT / "docs" / "python.md").read_text(), re.S)
OWN = {"snapshot": {"tags", "keep"}, "diff": set(), "gate": set()}


def calls() -> list[tuple[str, ast.Call]]:
    """Every call `envaudit.name(...)` of the examples."""
    found = []
    for block in BLOCKS:
        for each in ast.walk(ast.parse(block)):
            if isinstance(each, ast.Call) and ast.unparse(each.func).startswith("envaudit."):
                found.append((ast.unparse(each.func)[len("envaudit.") :], each))
    return found


@pytest.mark.parametrize(("name", "call"), calls(), ids=[ast.unparse(call) for _, call in calls()])
def test_example_calls_what_there_is_with_options_that_there_are(name: str, call: ast.Call) -> None:
    """Each keyword is one of the call's own or an option of its command."""
    of: object = envaudit
    for part in name.split("."):
        of = getattr(of, part)
    assert callable(of)
    if name in OWN:
        actions = parser_of(name)._actions
        options = {text.lstrip("-").replace("-", "_") for action in actions for text in action.option_strings}
        assert {keyword.arg for keyword in call.keywords} <= options | OWN[name]


def test_all_three_calls_and_both_trackers_have_an_example() -> None:
    """The examples are not lost by a change of the document's form."""
    names = {name for name, _ in calls()}
    assert {"snapshot", "diff", "gate", "track.tensorboard", "track.wandb"} <= names
