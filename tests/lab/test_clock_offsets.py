"""Clocks that are really apart, measured over real ssh: right to a millisecond, inside their bounds."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Dict, Iterator, List, Tuple

import pytest

from tests.lab import chrony, faketime
from tests.lab.cluster import Cluster
from tests.lab.command import Command, Ended, over_exec, over_ssh
from tests.lab.slurm import Slurm

pytestmark = pytest.mark.lab

ODD = "node08"
AHEAD_NS = 3_200_000_000
MS_NS = 1_000_000

# Passes on what it is told at once, and what the node says a while later.
_SLOW_BACK = """
import os, select, socket, sys, threading, time
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def back():
    while data := connection.recv(65536):
        time.sleep(float(sys.argv[3]))
        os.write(1, data)
    os._exit(0)
threading.Thread(target=back).start()
while data := os.read(0, 65536):
    connection.sendall(data)
connection.shutdown(socket.SHUT_WR)
"""


def offsets(ended: Ended) -> Dict[str, Tuple[int, int]]:
    """Each node's offset and bound."""
    nodes = ended.envelope["clocks"]["nodes"]
    return {node: (clock["offset_ns"], clock["bound_ns"]) for node, clock in nodes.items()}


def found(ended: Ended) -> List[Tuple[str, List[str]]]:
    """Rules with their nodes."""
    return [(each["rule"], each["nodes"]) for each in ended.findings]


@pytest.fixture
def odd_clock(clock_cluster: Cluster) -> Iterator[None]:
    """One clock that is 3.2 seconds ahead."""
    faketime.set_apart(clock_cluster, ODD, "+3.2s")
    yield
    faketime.set_apart(clock_cluster, ODD, "+0")


@pytest.mark.usefixtures("odd_clock")
def test_clock_that_is_ahead_is_measured_to_a_millisecond(clock_cluster: Cluster, tmp_path: Path) -> None:
    """Sixteen nodes in less than three seconds, each offset inside its own bound, one clock named."""
    envaudit = over_ssh(clock_cluster, tmp_path)
    took_s = []
    for _ in range(2):
        began = time.monotonic()
        ended = envaudit("clock", "--nodes", "node[01-16]", "--format", "json")
        took_s.append(time.monotonic() - began)
        assert 1 == ended.code, ended.text
        assert [("EA150", [ODD])] == found(ended), ended.text
        measured = offsets(ended)
        assert 16 == len(measured)
        for node, (offset_ns, bound_ns) in measured.items():
            error_ns = abs(offset_ns - (AHEAD_NS if node == ODD else 0))
            assert error_ns <= min(bound_ns, MS_NS), (node, offset_ns, bound_ns)
    # What a machine takes that is busy with something else says nothing of the promise.
    assert min(took_s) < 3.0 or os.getloadavg()[0] > 2 * len(os.sched_getaffinity(0)), took_s


@pytest.mark.usefixtures("odd_clock")
def test_diff_names_a_clock_that_is_off_and_finds_no_drift(clock_cluster: Cluster, tmp_path: Path) -> None:
    """An offset is measured along the way; it is a finding, and no fact of two nodes differs for it."""
    ended = over_ssh(clock_cluster, tmp_path)("diff", "node[06-10]", "--format", "json")
    assert 1 == ended.code, ended.text
    assert ([], [("EA150", [ODD])]) == (ended.envelope["drifts"], found(ended)), ended.text


@pytest.mark.usefixtures("odd_clock")
def test_two_clocks_are_held_against_each_other(clock_cluster: Cluster, tmp_path: Path) -> None:
    """Of two nodes neither is called the wrong one."""
    ended = over_ssh(clock_cluster, tmp_path)("clock", "--nodes", "node[07-08]", "--format", "json")
    assert [("EA150", ["node07", ODD])] == found(ended), ended.text
    (line,) = ended.findings[0]["evidence"]
    assert line.startswith("node08 is +3.200 s ± "), line
    assert "ahead of node07" in line


def test_way_back_that_is_slow_widens_the_bound_around_the_truth(
    clock_cluster: Cluster, tmp_path: Path
) -> None:
    """Twenty milliseconds in one direction look like an offset of ten: the bound says so."""
    (tmp_path / "slow_back.py").write_text(_SLOW_BACK)
    way = f"{sys.executable} {tmp_path}/slow_back.py %h %p 0.02"
    (tmp_path / "ssh_config").write_text(
        f"Match originalhost node02\n  ProxyCommand {way}\nMatch all\n  Include {clock_cluster.ssh_config}\n"
    )
    envaudit = over_ssh(clock_cluster, tmp_path)
    settings = (tmp_path / "lab.toml").read_text()
    (tmp_path / "lab.toml").write_text(
        settings.replace(json.dumps(clock_cluster.ssh_config), json.dumps(f"{tmp_path}/ssh_config"))
    )
    ended = envaudit("clock", "--nodes", "node[01-04]", "--format", "json")
    assert 0 == ended.code, ended.text
    offset_ns, bound_ns = offsets(ended)["node02"]
    assert 5 * MS_NS < abs(offset_ns) <= bound_ns < 30 * MS_NS, (offset_ns, bound_ns)


def test_clock_that_moves_while_it_is_measured_is_not_known(clock_cluster: Cluster, tmp_path: Path) -> None:
    """It runs twice as fast: its pings contradict each other, and no number is made up from them."""
    faketime.set_apart(clock_cluster, ODD, "+0 x2.0")
    try:
        ended = over_ssh(clock_cluster, tmp_path)("clock", "--nodes", "node[06-10]", "--format", "json")
    finally:
        faketime.set_apart(clock_cluster, ODD, "+0")
    assert 3 == ended.code, ended.text
    assert [("EA156", [ODD])] == found(ended), ended.text
    assert "set while it was measured" in ended.findings[0]["message"]
    assert ended.envelope["clocks"]["nodes"][ODD]["offset_ns"] is None


def test_clocks_over_srun_are_measured_too(slurm: Slurm, tmp_path: Path) -> None:
    """A job step passes the pings on like any other channel."""
    command = "srun --overlap --export=NONE -N1 -n1 -w {node} {python}"
    envaudit = over_exec(slurm.cluster, tmp_path, command, environ=slurm.variables)
    ended = envaudit("clock", "--nodes", "node[01-02]", "--format", "json")
    assert 0 == ended.code, ended.text
    assert all(abs(offset) <= bound < 50 * MS_NS for offset, bound in offsets(ended).values()), ended.text


def test_unsynchronised_chrony_is_not_read_as_good(chrony_cluster: Cluster, tmp_path: Path) -> None:
    """It says offset 0.0, which is true of a clock that nobody has looked at."""
    odd = "node02"
    subnet = chrony_cluster.node(odd).place.address.rpartition(".")[0]
    chrony.start_on(chrony_cluster, odd, f"server {subnet}.99 iburst\n")
    envaudit: Command = over_ssh(chrony_cluster, tmp_path)
    try:
        ended = envaudit("clock", "--nodes", "node[01-03]", "--format", "json")
        strict = envaudit("clock", "--nodes", "node[01-03]", "--fail-on", "warning")
    finally:
        chrony.start_on(chrony_cluster, odd, chrony.follow(chrony_cluster))
        chrony.wait_synchronised(chrony_cluster, odd)
    assert [("EA153", [odd])] == found(ended), ended.text
    states = {node: clock["synchronised"] for node, clock in ended.envelope["clocks"]["nodes"].items()}
    assert {"node01": True, odd: False, "node03": True} == states
    assert (0, 1) == (ended.code, strict.code), strict.text


def test_clocks_in_order_are_one_line(chrony_cluster: Cluster, tmp_path: Path) -> None:
    """Healthy nodes yield no finding, and are folded."""
    ended = over_ssh(chrony_cluster, tmp_path)("clock", "--nodes", "node[01-03]")
    assert 0 == ended.code, ended.text
    assert ended.last_line.startswith("PASS 3 clocks within "), ended.text
    assert 1 == sum("node" in line for line in ended.stdout.splitlines()), ended.text
    assert "chrony, synchronised" in ended.stdout
