"""`envaudit clock` over real interpreters of this machine, whose clocks are one."""

from __future__ import annotations

import sys

from tests.cli.conftest import Folder

# Answers its pings as a clock would that is three seconds ahead, from the node's own Python.
_AHEAD = (
    "import os, subprocess, sys, threading, time\n"
    "node = subprocess.Popen(sys.argv[1:], stdin=0, stdout=subprocess.PIPE)\n"
    "for line in node.stdout:\n"
    "    mark, _, rest = line.partition(b' ')\n"
    "    if mark == b'@envaudit-pong':\n"
    "        said, word = rest.split()\n"
    "        line = b'%s %d %s\\n' % (mark, int(said) + 3_000_000_000, word)\n"
    "    os.write(1, line)\n"
)

# Passes on what announces the probe and the probe itself, and nothing of what comes after them.
_DEAF = (
    "import json, os, subprocess, sys\n"
    "line = b''\n"
    "while not line.endswith(b'\\n'):\n"
    "    line += os.read(0, 1)\n"
    "payload = b''\n"
    "while len(payload) < json.loads(line)['size']:\n"
    "    payload += os.read(0, 65536)\n"
    "node = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE)\n"
    "node.stdin.write(line + payload)\n"
    "node.stdin.flush()\n"
    "node.wait()\n"
)


def set_ahead(folder: Folder, node: str) -> None:
    """Put a node's clock three seconds ahead."""
    path = folder.path / "ahead.py"
    path.write_text(_AHEAD)
    folder.set_node(node, NCCL_ALGO="Ring", script=f'exec {sys.executable} {path} "$@"')


def test_clocks_in_step_pass(folder: Folder) -> None:
    """Three interpreters of one machine."""
    ended = folder.ask("clock", "--all")
    assert 0 == ended.code, ended.out
    assert ended.verdict.startswith("PASS 3 clocks within "), ended.out
    assert "Offsets from the median of the clocks." in ended.out
    assert "n[1-3]  within " in ended.out


def test_clock_that_is_ahead_fails_the_run_and_is_named(folder: Folder) -> None:
    """Exit 1, and the number in nanoseconds for programs."""
    set_ahead(folder, "n2")
    ended = folder.ask("clock", "--all", "--format", "json")
    assert (1, "FAIL") == (ended.code, ended.json["verdict"]), ended.out
    assert [["n2"]] == [each["nodes"] for each in ended.json["findings"] if each["rule"] == "EA150"]
    clocks = ended.json["clocks"]
    assert "median" == clocks["basis"]
    assert {"n1": False, "n2": True, "n3": False} == {
        node: clock["apart"] for node, clock in clocks["nodes"].items()
    }
    odd = clocks["nodes"]["n2"]
    assert abs(odd["offset_ns"] - 3_000_000_000) <= odd["bound_ns"] < 100_000_000


def test_diff_tells_a_clock_that_is_ahead_along_the_way(folder: Folder) -> None:
    """Its offset is no drift."""
    set_ahead(folder, "n2")
    ended = folder.ask("diff", "n[1-3]", "--format", "json")
    assert (1, []) == (ended.code, ended.json["drifts"]), ended.out
    assert "EA150" in ended.rules


def test_stored_offsets_are_judged_as_they_were_measured(folder: Folder) -> None:
    """Against those of their own run, not against those of today."""
    set_ahead(folder, "n2")
    folder.ask("snapshot", "--all", "--tag", "then")
    folder.set_node("n2", NCCL_ALGO="Ring")
    ended = folder.ask("diff", "n[1-3]@then", "--format", "json")
    assert "EA150" in ended.rules
    ended = folder.ask("diff", "n[1-3]@then", "n[1-3]", "--format", "json")
    assert (0, False) == (ended.code, "EA150" in ended.rules), ended.out


def test_clock_that_gives_no_answer_to_pings_is_incomplete(folder: Folder) -> None:
    """Exit 3: a clock that was not measured may be the one that is off; a comparison only tells it."""
    (folder.path / "deaf.py").write_text(_DEAF)
    folder.set_node("n3", NCCL_ALGO="Ring", script=f'exec {sys.executable} {folder.path}/deaf.py "$@"')
    ended = folder.ask("clock", "--all", "--format", "json")
    assert 3 == ended.code, ended.out
    assert [["n3"]] == [each["nodes"] for each in ended.json["findings"] if each["rule"] == "EA156"]
    assert {"offset_ns": None, "bound_ns": None}.items() <= ended.json["clocks"]["nodes"]["n3"].items()
    ended = folder.ask("diff", "n[1-3]", "--format", "json")
    assert (0, True) == (ended.code, "EA157" in ended.rules), ended.out


def test_this_machine_alone_has_no_offset(folder: Folder) -> None:
    """It is told so, with what keeps its clock."""
    ended = folder.run("clock")
    assert 0 == ended.code, ended.out
    assert "One clock, and no other one to hold it against." in ended.out
    assert "offset not known" in ended.out
    assert ended.verdict.startswith("PASS 1 clock")


def test_single_node_is_held_against_this_machine(folder: Folder) -> None:
    """There is no other clock, and which of the two is right nobody can tell."""
    set_ahead(folder, "n2")
    ended = folder.ask("clock", "--nodes", "n2")
    assert 0 == ended.code, ended.out
    assert "The offset from this machine's clock" in ended.out
    assert ended.verdict.startswith("PASS 1 clock, +3.000 s ± "), ended.out
    assert " from this machine's" in ended.verdict


def test_clock_of_a_node_that_does_not_answer_is_incomplete(folder: Folder) -> None:
    """Exit 3, and the others are measured."""
    folder.set_node("n1", script="exit 255")
    ended = folder.ask("clock", "--all", "--format", "json")
    assert (3, ["n1"]) == (ended.code, list(ended.json["missing"])), ended.out
    assert "pair" == ended.json["clocks"]["basis"]
    assert ["n2", "n3"] == sorted(ended.json["clocks"]["nodes"])
