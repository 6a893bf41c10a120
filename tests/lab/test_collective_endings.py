"""Collectives between nodes that have a network of their own, and what is said when it breaks.

What can be shown with several supervisors on one machine is in tests/checks/collectives_session.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import envaudit
from tests.lab.cluster import Cluster
from tests.lab.faults import Faults
from tests.lab.torch_nodes import TORCH, show_torch

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(TORCH is None, reason="needs torch beside the tests: nox -s checks"),
]

SESSION = Path(__file__).parents[1] / "checks" / "collectives_session"
LIMITS = {"join_s": 20.0, "start_s": 60.0, "stall_s": 3.0, "total_s": 60.0, "door_s": 1.0}
PORT = 29501


@pytest.fixture(scope="module")
def nodes(lab: None) -> Iterator[Cluster]:
    """Three nodes whose environment has torch; the package and a supervisor lie in the lab's folder."""
    with Cluster(3) as cluster:
        show_torch(cluster)
        for folder, name in ((Path(next(iter(envaudit.__path__))), "envaudit"), (SESSION / "armed", "armed")):
            shutil.copytree(folder, Path(cluster.folder, "code", name))
        shutil.copy(SESSION / "supervisor.py", Path(cluster.folder, "code"))
        yield cluster


class Run:
    """Supervisors of one run on the first so many nodes, one rank each."""

    def __init__(
        self,
        nodes: Cluster,
        count: int,
        environ: Mapping[str, Mapping[str, str]] = {},
        limits: Mapping[str, float] = {},
    ) -> None:
        self.nodes = nodes
        self.names = nodes.names[:count]
        code = Path(nodes.folder, "code")
        self.processes: dict[str, subprocess.Popen[str]] = {}
        for index, name in enumerate(self.names):
            mark = self.mark(name)
            mark.unlink(missing_ok=True)
            request = {
                "seat": [index, count, self.names[0], PORT, name],
                "plan": {"ops": ["all_reduce/sum/fp32"], "repeats": 3, "ddp": False},
                "limits": {**LIMITS, **limits},
                "environ": {
                    "PYTHONPATH": str(code / "armed"),
                    "ENVAUDIT_TEST_COLLECTIVE": "slow",
                    "ENVAUDIT_TEST_MARK": str(mark),
                    **environ.get(name, {}),
                },
            }
            path = code / f"{name}.json"
            path.write_text(json.dumps(request))
            argv = ["env", f"PYTHONPATH={code}", nodes.python, str(code / "supervisor.py"), str(path)]
            self.processes[name] = subprocess.Popen(
                nodes.node(name).enter(argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )

    def mark(self, name: str) -> Path:
        """Made by the node's rank in its third collective."""
        return Path(self.nodes.folder, "code", f"{name}.entered")

    def await_collectives(self, within_s: float = 60.0) -> None:
        """Waits until all ranks are in their midst."""
        ends = time.monotonic() + within_s
        while not all(self.mark(name).exists() for name in self.names):
            assert time.monotonic() < ends
            assert [None] * len(self.names) == [each.poll() for each in self.processes.values()]
            time.sleep(0.02)

    def results(self) -> list[dict[str, Any]]:
        """What each printed, in order; nothing is left on any node then."""
        found = []
        for process in self.processes.values():
            out, err = process.communicate(timeout=150)
            assert out, err
            found.append(json.loads(out))
        assert [[]] * len(self.names) == [self.nodes.node(name).work_after(5) for name in self.names]
        return found


def brief(result: dict[str, Any]) -> tuple[str, list[int], list[str], list[int]]:
    """How it ended, who is at fault, where, and whom it took along."""
    ended = result["ended"]
    return ended["kind"], ended["ranks"], ended["nodes"], ended["victims"]


@pytest.fixture
def faults(nodes: Cluster) -> Iterator[Faults]:
    """Breaks nodes for one test."""
    with Faults(nodes) as faults:
        yield faults


def test_healthy_nodes_agree_and_know_their_clocks(nodes: Cluster) -> None:
    """One result on all of them."""
    results = Run(nodes, 3).results()
    assert ("done", [], [], []) == brief(results[0]), results[0]["ended"]
    assert results[0] == results[1] == results[2]
    assert {"ok"} == {row["status"] for row in results[0]["cases"].values()}
    assert sorted(results[0]["clock"]) == nodes.names
    # They share one clock: the offset is within its bound.
    assert all(abs(offset) <= bound for offset, bound in results[0]["clock"].values())


def test_cable_that_is_pulled_in_a_collective_names_its_node(nodes: Cluster, faults: Faults) -> None:
    """No connection breaks, nobody complains: the node's port cannot be reached."""
    run = Run(nodes, 3)
    run.await_collectives()
    began = time.monotonic()
    faults.link_down("node03")
    first, second, cut = run.results()
    assert time.monotonic() - began < 12
    assert ("network", [2], ["node03"], [0, 1]) == brief(first)
    assert first == second
    assert ("hub_lost", ["node01"]) == (cut["ended"]["kind"], cut["ended"]["nodes"])
    assert "cannot be reached" in cut["ended"]["text"]


def test_cable_of_the_first_node_is_told_by_that_node_and_by_the_others(
    nodes: Cluster, faults: Faults
) -> None:
    """It reaches nobody, so it is the one; the others miss their hub."""
    run = Run(nodes, 3)
    run.await_collectives()
    faults.link_down("node01")
    first, *others = run.results()
    assert ("network", [0], ["node01"], [1, 2]) == brief(first)
    assert [("hub_lost", ["node01"])] * 2 == [(o["ended"]["kind"], o["ended"]["nodes"]) for o in others]


def test_cable_between_two_nodes_names_one_of_the_two(nodes: Cluster, faults: Faults) -> None:
    """With two nodes nothing tells which end it is."""
    run = Run(nodes, 2)
    run.await_collectives()
    faults.link_down("node02")
    first, _ = run.results()
    assert ("network", [0, 1], ["node01", "node02"], []) == brief(first)
    assert "one of node01, node02" in first["ended"]["text"]


@pytest.mark.slow
def test_wrong_interface_that_nobody_has_told_is_found_in_pairs(nodes: Cluster) -> None:
    """Gloo tells the others an address of that node at which nobody finds it."""
    wrong = nodes.node("node02")
    for words in ("link add wrong0 type bridge", "addr add 10.0.0.9/24 dev wrong0", "link set wrong0 up"):
        assert 0 == wrong.run(["ip", *words.split()]).returncode
    try:
        limits = {"start_s": 20.0, "total_s": 150.0}
        run = Run(nodes, 3, {"node02": {"GLOO_SOCKET_IFNAME": "wrong0"}}, limits)
        first, *others = run.results()
    finally:
        wrong.run(["ip", "link", "del", "wrong0"])
    assert ("network", [1], ["node02"], [0, 2]) == brief(first), first["ended"]
    assert [first, first] == others
