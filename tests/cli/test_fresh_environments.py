"""Two virtual environments, made one after the other at one place, as a rebuilt node has them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Folder


@pytest.fixture(scope="module")
def snapshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a snapshot of each, read by a start of its interpreter and from its files alone."""
    path = tmp_path_factory.mktemp("fresh")
    folder, place = Folder(path), path / "environment"
    for number in (1, 2):
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True, timeout=120)
        for way, word in (("python", place / "bin" / "python"), ("prefix", place)):
            ended = folder.run("snapshot", f"--{way}", str(word), "-o", f"{way}{number}.json")
            assert 0 == ended.code, ended.out + ended.err
        shutil.rmtree(place)
    return path


@pytest.mark.parametrize("way", ["python", "prefix"])
def test_two_fresh_environments_differ_in_nothing(folder: Folder, snapshots: Path, way: str) -> None:
    """No difference, and nothing to say about either."""
    ended = folder.run(
        "diff", str(snapshots / f"{way}1.json"), str(snapshots / f"{way}2.json"), "--format", "json"
    )
    assert (0, []) == (ended.code, ended.json["drifts"])
    assert [] == [(each["rule"], each["message"]) for each in ended.findings]
