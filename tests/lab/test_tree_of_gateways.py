"""ClusterShell's tree: node[02-04] are reached through node01, as large clusters do it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from pathlib import Path

import ClusterShell
import pytest

from tests.lab.cluster import Cluster
from tests.lab.command import Command, over_ssh
from tests.lab.faults import Faults
from tests.lab.node import base_python

pytestmark = pytest.mark.lab

GATEWAY = "node01"
LEAVES = ("node02", "node03", "node04")


@pytest.fixture
def through_gateway(cluster: Cluster, tmp_path: Path) -> Command:
    """The command with a topology.conf of the user's own; the gateway has a Python with ClusterShell."""
    packages = Path(cluster.folder, "gateway-packages")
    if not packages.exists():
        shutil.copytree(Path(ClusterShell.__file__).parent, packages / "ClusterShell")
    python = Path(cluster.folder, "bin", "gateway-python")
    python.write_text(f'#!/bin/sh\nPYTHONPATH={packages} exec {base_python()} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    settings = tmp_path / "config" / "clustershell"
    settings.mkdir(parents=True, exist_ok=True)
    # The root of the tree must be this machine's short name.
    this = socket.gethostname().split(".")[0]
    (settings / "topology.conf").write_text(
        f"[routes]\n{this}: {GATEWAY}\n{GATEWAY}: {','.join(LEAVES)}\n", encoding="utf-8"
    )
    return over_ssh(cluster, tmp_path, environ={"CLUSTERSHELL_GW_PYTHON_EXECUTABLE": str(python)})


def test_diff_through_a_gateway_reads_all_nodes(cluster: Cluster, through_gateway: Command) -> None:
    """The leaves see a connection from the gateway alone, and answer as ever."""
    before = {name: _connections(cluster, name) for name in LEAVES}
    ended = through_gateway("diff", "node[01-04]")
    assert 0 == ended.code, ended.text
    for name in LEAVES:
        new = _connections(cluster, name)[len(before[name]) :]
        assert [cluster.node(GATEWAY).place.address] == new, name


def test_clocks_behind_a_gateway_are_told_as_not_known(through_gateway: Command) -> None:
    """A gateway passes no pings on: no pass where clocks were asked for, a word in a comparison."""
    for command, code, rule in (("clock", 3, "EA156"), ("diff", 0, "EA157")):
        nodes = ["--nodes", "node[01-04]"] if command == "clock" else ["node[01-04]"]
        ended = through_gateway(command, *nodes, "--format", "json")
        assert code == ended.code, ended.text
        (finding,) = [each for each in ended.envelope["findings"] if each["rule"] == rule]
        assert [f"node{number:02d}" for number in range(1, 5)] == finding["nodes"]
        assert "gateways pass no pings on" in finding["message"]


def test_leaf_that_is_down_is_named_through_the_gateway(
    cluster: Cluster, through_gateway: Command, faults: Faults
) -> None:
    """One leaf's fault is that leaf's alone."""
    faults.sshd_stopped("node03")
    ended = through_gateway("diff", "node[01-04]", "--format", "json")
    assert 3 == ended.code, ended.text
    assert ["node03"] == list(ended.envelope["missing"]), ended.text
    assert [] == ended.envelope["drifts"], ended.text


def test_gateway_that_is_down_ends_the_run_in_time(
    cluster: Cluster, through_gateway: Command, faults: Faults
) -> None:
    """Without its gateway no leaf can be reached; every one of them is named, and nothing hangs."""
    faults.sshd_stopped(GATEWAY)
    ended = through_gateway("diff", "node[01-04]", "--format", "json")
    assert 3 == ended.code, ended.text
    assert sorted([GATEWAY, *LEAVES]) == sorted(ended.envelope["missing"]), ended.text


def _connections(cluster: Cluster, name: str) -> list[str]:
    """The addresses whose keys the node's sshd accepted, oldest first."""
    path = os.path.join(cluster.node(name).place.folder, "sshd.log")
    with open(path, encoding="utf-8", errors="replace") as stream:
        accepted = [line.split() for line in stream if line.startswith("Accepted publickey")]
    return [words[words.index("from") + 1] for words in accepted]


def test_ctrl_c_through_a_gateway_leaves_nothing_running(
    cluster: Cluster, through_gateway: Command, faults: Faults
) -> None:
    """The gateway ends with its channel, and the leaves' probes with the gateway's connections."""
    for name in cluster.names:
        faults.file(name, "/etc/fakenvml.conf", "return.nvmlInit = hang\n")
    with through_gateway.running("snapshot", "--nodes", "node[01-04]") as process:
        assert all(cluster.node(name).loads("libnvidia-ml.so", 30.0) for name in LEAVES)
        process.send_signal(signal.SIGINT)
        ended = through_gateway.finish(process, 15.0)
    assert 130 == ended.code, ended.text
    assert {name: [] for name in cluster.names} == {
        name: cluster.node(name).work_after(5.0) for name in cluster.names
    }
