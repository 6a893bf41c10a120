"""`import envaudit` over real ssh: in one process, again and again, as a notebook does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.lab.command import PROJECT, Command
from tests.lab.faults import Faults

pytestmark = pytest.mark.lab

# What a notebook does in the course of a day, and once from a thread of its own.
PROGRAM = """
import json, threading, envaudit

given = {"config": "lab.toml", "store": "store"}
first = envaudit.snapshot("node[01-04]", tags="good", **given)
second = envaudit.snapshot(["node01", "node02"], config="lab.toml")
said = {
    "nodes": [each.node for each in first.fingerprints],
    "missing": {node: gone.kind for node, gone in first.missing.items()},
    "second": [each.node for each in second.fingerprints],
    "between": envaudit.diff(first, config="lab.toml").verdict.name,
    "since": envaudit.diff("node[01-02]@good", second, **given).reference,
}

def gate():
    result = envaudit.gate("node[01-04]", no_check=True, baseline="good", **given)
    said["gate"] = [result.verdict.name, result.exit_code, sorted({each.rule for each in result.findings})]

thread = threading.Thread(target=gate)
thread.start()
thread.join()
print(json.dumps(said))
"""


def said_by(envaudit: Command) -> Any:
    """What the program came to; it writes nothing else, to neither of its outputs."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(envaudit.folder),
        "XDG_CONFIG_HOME": str(envaudit.folder / "config"),
        "XDG_STATE_HOME": str(envaudit.folder / "state"),
        "PYTHONPATH": str(PROJECT),
    }
    command = [sys.executable, "-c", PROGRAM]
    ended = subprocess.run(
        command, cwd=envaudit.folder, env=environment, capture_output=True, text=True, timeout=90, check=False
    )
    assert (0, "") == (ended.returncode, ended.stderr)
    (line,) = ended.stdout.splitlines()
    return json.loads(line)


def test_calls_ask_healthy_nodes_again_and_again(envaudit: Command) -> None:
    """Each call brings its own answer, from any thread."""
    said = said_by(envaudit)
    assert ["node01", "node02", "node03", "node04"] == said["nodes"]
    assert ({}, ["node01", "node02"]) == (said["missing"], said["second"])
    assert "node[01-02]@good" == said["since"]
    assert {"FAIL"}.isdisjoint((said["between"], said["gate"][0])), said


def test_calls_tell_of_a_node_that_is_down(envaudit: Command, faults: Faults) -> None:
    """It is missing in the snapshot, and no gate passes over it."""
    faults.link_down("node03")
    said = said_by(envaudit)
    assert ["node01", "node02", "node04"] == said["nodes"]
    assert ["node03"] == list(said["missing"])
    assert "EA901" in said["gate"][2]
    assert said["gate"][1] in (1, 3)
