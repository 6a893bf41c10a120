"""`envaudit rules`, and what the one-file form has of rules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from envaudit.rules import all_rules
from tests.cases.nodes import USUAL, node
from tests.cli.conftest import Folder
from tests.cli.stored import write_snapshot

OLDEST = Path(os.path.expanduser("~/.pyenv/versions/3.8.18/bin/python"))


def test_every_rule_has_a_line(folder: Folder) -> None:
    """Id, severity, scope, title, in the order of their ids."""
    ended = folder.run("rules")
    rows = [line.split(None, 3) for line in ended.out.splitlines()]
    assert 0 == ended.code
    assert [(rule.id, rule.scope) for rule in all_rules()] == [(row[0], row[2]) for row in rows]


def test_rule_that_the_policy_changes_says_its_default(folder: Folder) -> None:
    """A profile and a level of its own."""
    (folder.path / "envaudit.toml").write_text(
        "[gate]\nprofile = 'strict'\n[rules.EA214]\nseverity = 'warning'\n", encoding="utf-8"
    )
    lines = {line[:5]: line for line in folder.run("rules").out.splitlines()}
    assert "warning" in lines["EA214"]
    assert "(by default error)" in lines["EA214"]
    assert "error" in lines["EA212"].split("(")[0]
    assert "by default" not in lines["EA215"]


@pytest.fixture(scope="module")
def one_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The one-file form, with three stored nodes of which one is off beside it."""
    folder = tmp_path_factory.mktemp("one-file")
    run = [sys.executable, "-m", "envaudit", "bundle", "-o", str(folder / "envaudit.pyz")]
    subprocess.run(run, check=True, capture_output=True)
    nodes = [node(name, USUAL._replace(launch="exec")) for name in ("n1", "n2")]
    odd = node("n3", USUAL._replace(launch="exec"), {"libraries/nccl/version": "2.27.3"})
    write_snapshot(folder / "all.json", [*nodes, odd])
    return folder


@pytest.fixture(params=[sys.executable, OLDEST], ids=["this Python", "Python 3.8"])
def interpreter(request: pytest.FixtureRequest) -> str:
    """An interpreter that has nothing but its standard library to offer."""
    if not Path(request.param).exists():
        pytest.skip(f"there is no {request.param}")
    return str(request.param)


def ask(interpreter: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the one-file form."""
    return subprocess.run(
        [interpreter, "-I", "envaudit.pyz", *words], cwd=folder, capture_output=True, text=True, timeout=60
    )


def test_one_file_form_lists_and_explains_every_rule(interpreter: str, one_file: Path) -> None:
    """What judges on a node is what judges anywhere."""
    listed = ask(interpreter, one_file, "rules")
    assert (0, "") == (listed.returncode, listed.stderr)
    ids = [line[:5] for line in listed.stdout.splitlines()]
    assert [rule.id for rule in all_rules()] == ids
    explained = ask(interpreter, one_file, "explain", *ids)
    assert (0, "") == (explained.returncode, explained.stderr)
    assert len(ids) == explained.stdout.count("To change it") + explained.stdout.count("No policy")
    assert 2 == ask(interpreter, one_file, "explain", "EA2144").returncode


def test_one_file_form_judges_with_all_rules(interpreter: str, one_file: Path) -> None:
    """A cause, its symptoms and a verdict, without anything installed."""
    run = ask(interpreter, one_file, "diff", "all.json")
    assert (1, "") == (run.returncode, run.stderr)
    assert run.stdout.rstrip().rsplit("\n", 1)[-1].startswith("FAIL EA214 n3")


def test_one_file_form_names_the_package_that_has_the_policy_commands(one_file: Path) -> None:
    """`waive` writes TOML's file, which the one-file form does not read."""
    run = ask(sys.executable, one_file, "waive", "EA214")
    assert (2, True) == (run.returncode, "pip install envaudit" in run.stderr)


def test_one_file_form_refuses_a_policy_that_it_cannot_read(interpreter: str, one_file: Path) -> None:
    """A verdict under no policy must not pass for one under the policy that was named."""
    run = ask(interpreter, one_file, "diff", "all.json", "--config", "envaudit.toml")
    assert (2, "") == (run.returncode, run.stdout)
    assert "this one-file form reads no configuration" in run.stderr
