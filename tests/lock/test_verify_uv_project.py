"""A real uv project: its lock, what uv exports of it, and the environment that uv makes of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from envaudit.lock.pip import find_uv
from tests.lock.wheels_at_hand import write_wheel
from tests.lock.workplace import Workplace

PROJECT = """\
[project]
name = "own"
version = "0.1"
requires-python = ">=3.8"
dependencies = ["alpha", "beta ; sys_platform == 'win32'", "gamma ; python_version >= '3.8'"]
[dependency-groups]
dev = ["delta"]
[tool.uv]
no-index = true
find-links = ["wheels"]
"""


def uv(folder: Path, *words: str) -> str:
    """Run uv in a project, without the network."""
    ran = subprocess.run(
        [find_uv(), *words, "--offline", "--quiet"],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "UV_CACHE_DIR": str(folder / "cache")},
        capture_output=True,
        text=True,
    )
    assert 0 == ran.returncode, ran.stderr
    return ran.stdout


@pytest.fixture
def project(workplace: Workplace) -> Path:
    """A locked and installed project, with everything that uv can say of it."""
    folder = workplace.folder
    (folder / "wheels").mkdir()
    for name in ("alpha", "beta", "gamma", "delta"):
        write_wheel(folder / "wheels", name, "1.0")
    (folder / "pyproject.toml").write_text(PROJECT)
    uv(folder, "sync", "--python", sys.executable)
    (folder / "pylock.toml").write_text(uv(folder, "export", "--format", "pylock.toml"))
    (folder / "requirements.txt").write_text(uv(folder, "export", "--no-emit-project"))
    (folder / "freeze.txt").write_text(uv(folder, "pip", "freeze", "--python", ".venv/bin/python"))
    return folder


def test_environment_of_a_uv_project_is_as_all_its_locks_say(workplace: Workplace, project: Path) -> None:
    """On a node, where the interpreter answers, and by its prefix alone."""
    for lock in ("uv.lock", "pylock.toml", "requirements.txt", "freeze.txt"):
        for words in (("--prefix", ".venv"), ("--python", str(project / ".venv/bin/python"))):
            ended = workplace.run("verify", lock, *words, "--format", "json")
            assert (0, []) == (ended.code, ended.rules), ended.out


def test_environment_of_a_uv_project_that_changed_is_told_by_all_its_locks(
    workplace: Workplace, project: Path
) -> None:
    """Another version, put there by hand."""
    write_wheel(project / "wheels", "gamma", "2.0")
    uv(project, "pip", "install", "--python", ".venv/bin/python", "gamma==2.0")
    for lock in ("uv.lock", "pylock.toml", "requirements.txt", "freeze.txt"):
        ended = workplace.run("verify", lock, "--prefix", ".venv", "--format", "json")
        assert (1, ["EA202"]) == (ended.code, ended.rules), ended.out
        assert ["packages/distributions/gamma/version"] == [each["path"] for each in ended.json["drifts"]]
