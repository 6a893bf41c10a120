"""Foreign reports where a command takes a file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from envaudit.cli.foreign import node_name, python_of_prefix
from envaudit.store import read_snapshot_file
from tests.cli.conftest import Folder
from tests.sources.samples import BY_KIND, COLLECT_ENV, write


@pytest.mark.parametrize("kind", sorted(BY_KIND))
def test_import_writes_a_snapshot_of_one_node(folder: Folder, kind: str) -> None:
    """Whatever kind it is."""
    path = write(folder.path, kind)
    ended = folder.run("import", str(path), "-o", "node.json", "--node", "gpu07", "--for-python", "3.11.7")
    assert (0, "") == (ended.code, ended.err)
    (node,) = read_snapshot_file(str(folder.path / "node.json")).fingerprints
    assert ("gpu07", "import") == (node.node, node.source)
    assert "lock" not in node.sections


def test_import_into_the_store_gives_a_reference(folder: Folder) -> None:
    """A pasted report is a node at a time."""
    write(folder.path, "collect_env")
    (folder.path / ".envaudit").mkdir()
    assert 0 == folder.run("import", "./collect_env.txt", "--node", "n9", "--tag", "ticket").code
    shown = folder.run("show", "n9@ticket", "--format", "json")
    facts = shown.json["facts"]["n9"] if "n9" in shown.json["facts"] else shown.json["facts"]
    assert "550.54.15" in json.dumps(facts)


def test_show_of_a_paste_is_readable(folder: Folder) -> None:
    """The facts at their paths, under the file's name."""
    write(folder.path, "collect_env")
    ended = folder.run("show", "collect_env.txt")
    assert 0 == ended.code
    lines = [" ".join(line.split()) for line in ended.out.split("\n")]
    assert any(line.startswith("collect_env import, ") for line in lines)
    assert "W EA308 2 models of GPU in one node" in lines
    for line in ("gpu/driver 550.54.15", "gpu/devices/2 product NVIDIA A10", "torch/version 2.6.0+cu124"):
        assert line in lines
    assert lines[-2].startswith("PASS 1 node")


@pytest.mark.skipif(shutil.which("ssh") is None, reason="no ssh here")
def test_file_that_is_asked_as_a_node_is_told_how_it_is_named(folder: Folder) -> None:
    """`pip freeze > freeze`: without an ending or a slash it is a node, whom nobody knows."""
    (folder.path / "freeze.invalid").write_text("numpy==1.26.4\n")
    ended = folder.run("show", "freeze.invalid")
    assert (3, True) == (ended.code, "For the file of this name write ./freeze.invalid." in ended.out), ended
    assert 0 == folder.run("show", "./freeze.invalid").code


def test_diff_of_two_pastes_names_what_differs(folder: Folder) -> None:
    """And nothing that only one of them says."""
    (folder.path / "a.txt").write_text(COLLECT_ENV)
    other = COLLECT_ENV.partition("CPU:")[0].replace("550.54.15", "535.161.08")
    (folder.path / "b.txt").write_text(other)
    ended = folder.run("diff", "a.txt", "b.txt", "--format", "json")
    assert ["gpu/driver"] == [d["path"] for d in ended.json["drifts"] if d["kind"] != "unknown"]
    assert "EA332" in [one["rule"] for one in ended.json["findings"] if one["drifts"]]
    assert 0 == ended.code


def test_diff_of_two_freezes_names_what_one_has_not(folder: Folder) -> None:
    """They are whole lists."""
    (folder.path / "a.txt").write_text("numpy==1.26.4\ntorch==2.6.0\n")
    (folder.path / "b.txt").write_text("numpy==1.26.3\n")
    ended = folder.run("diff", "a.txt", "b.txt", "--format", "json")
    assert {"packages/distributions/numpy/version", "packages/distributions/torch"} == {
        drift["path"] for drift in ended.json["drifts"]
    }


def test_diff_of_a_report_against_a_snapshot_of_the_same_is_a_pass(folder: Folder) -> None:
    """Only that the rest was not compared is said."""
    write(folder.path, "pip_inspect")
    assert 0 == folder.run("import", "pip_inspect.txt", "-o", "b.json", "--node", "b").code
    ended = folder.run("diff", "pip_inspect.txt", "b.json")
    assert (0, True) == (ended.code, ended.verdict.startswith("PASS 2 nodes alike"))


@pytest.mark.parametrize("command", [("show",), ("diff", "n1"), ("import",), ("verify",)])
def test_file_of_no_known_kind_is_unreadable_input(folder: Folder, command: tuple[str, ...]) -> None:
    """Exit 4, and what was tried."""
    (folder.path / "what.txt").write_text("nothing of this\n")
    ended = folder.ask(*command, "what.txt") if command[0] != "import" else folder.run("import", "what.txt")
    assert 4 == ended.code
    assert "no report that is known (tried an envaudit snapshot, " in ended.err


def test_corrupt_snapshot_is_told_as_one(folder: Folder) -> None:
    """Not as a report that nobody knows."""
    write(folder.path, "pip_freeze")
    assert 0 == folder.run("import", "pip_freeze.txt", "-o", "a.json").code
    text = (folder.path / "a.json").read_text().replace("1.26.4", "1.26.5")
    (folder.path / "a.json").write_text(text)
    ended = folder.run("show", "a.json")
    assert (4, True) == (ended.code, "digest differs from the content" in ended.err)


@pytest.mark.parametrize("kind", ["pixi_lock", "CondaLock"])
def test_lock_of_another_platform_is_no_empty_environment(folder: Folder, kind: str) -> None:
    """Held against a node, it would call every package of the node extra."""
    path = write(folder.path, kind)
    ended = folder.run("import", str(path), "--platform", "linux-s390x", "-o", "node.json")
    assert (4, False) == (ended.code, (folder.path / "node.json").exists())
    assert "has nothing for linux-s390x (it has linux-64" in ended.err


def test_verify_against_a_report_that_is_no_lock_is_refused(folder: Folder) -> None:
    """A paste names some packages only."""
    write(folder.path, "collect_env")
    ended = folder.run("verify", "collect_env.txt")
    assert (2, True) == (ended.code, "collect_env is no lock" in ended.err)


@pytest.mark.parametrize(
    ("path", "name"),
    [("reports/node 07.txt", "node-07"), ("uv.lock", "uv"), ("-x.json.gz", "x"), ("ü.txt", "report")],
)
def test_node_is_named_after_the_file(path: str, name: str) -> None:
    """In a form that is a node's name."""
    assert name == node_name(path)


@pytest.mark.parametrize(
    ("text", "version"),
    [("version = 3.11.7\n", "3.11.7"), ("home = /x\nversion_info = 3.12.1.final.0\n", "3.12.1"), ("", None)],
)
def test_python_of_a_virtual_environment_stands_in_its_file(
    tmp_path: Path, text: str, version: str | None
) -> None:
    """As venv and virtualenv write it."""
    (tmp_path / "pyvenv.cfg").write_text(text)
    assert version == python_of_prefix(str(tmp_path))
    assert None is python_of_prefix(str(tmp_path / "none"))
