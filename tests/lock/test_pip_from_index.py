"""The pip part against the ordinary index: two small pinned packages, there and back."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
import yaml

from tests.lock.channel import build_channel
from tests.lock.locks import BASE
from tests.lock.packages import running_python
from tests.lock.workplace import Workplace

PINNED = {"six": "1.16.0", "tomli": "2.0.1"}
LOCK = "pip.conda-lock.yml"


@pytest.fixture
def locked(workplace: Workplace, tmp_path: Path) -> Workplace:
    """A workplace with a lock of a python that runs and two packages of the index."""
    channel = build_channel(tmp_path / "running", more=[running_python()])
    workplace.mirror({BASE: channel.url})
    pip = [f"{name}=={version}" for name, version in PINNED.items()]
    document = {
        "name": "small",
        "channels": [BASE, "nodefaults"],
        "platforms": ["linux-64"],
        "dependencies": [f"python={platform.python_version()}=*_running", "pip", {"pip": pip}],
    }
    (tmp_path / "environment.yml").write_text(yaml.safe_dump(document))
    ended = workplace.run("lock", "environment.yml", "-o", LOCK)
    if ended.code == 5 and "uv failed" in ended.err:
        pytest.skip(f"the index does not answer: {ended.err[:300]}")
    assert 0 == ended.code, ended.out + ended.err
    return workplace


def test_pip_part_of_the_index_is_locked_installed_and_verified(locked: Workplace) -> None:
    """By the hash of one wheel each; a snapshot of it exports to the same wheels."""
    packages = {each["name"]: each for each in yaml.safe_load((locked.folder / LOCK).read_text())["package"]}
    assert PINNED == {name: packages[name]["version"] for name in PINNED}
    assert {"pip"} == {packages[name]["manager"] for name in PINNED}
    installed = locked.run("install", LOCK, "--prefix", "env")
    assert (0, True) == (installed.code, "and 2 pip packages" in installed.out), installed.err
    verified = locked.run("verify", LOCK, "--prefix", "env", "--format", "json")
    assert (0, []) == (verified.code, verified.rules)

    python = str(locked.folder / "env/bin/python")
    locked.run("snapshot", "--python", python, "-o", "past.json")
    exported = locked.run("export", "past.json", "--as", "requirements")
    assert 0 == exported.code, exported.err
    lines = [line for line in exported.out.splitlines() if not line.startswith("#")]
    expected = [
        f"{name}=={version} --hash=sha256:{packages[name]['hash']['sha256']}"
        for name, version in PINNED.items()
    ]
    assert expected == lines
    assert 0 == locked.run("export", "past.json", "--as", "conda-lock", "-o", "past.yml").code
    assert 0 == locked.run("install", "past.yml", "--prefix", "again").code
    assert 0 == locked.run("verify", LOCK, "--prefix", "again").code
