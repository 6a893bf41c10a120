"""`envaudit check` between nodes: over ssh, under torchrun on each, and as a job step of Slurm."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.cluster import Cluster
from tests.lab.command import Command, over_ssh
from tests.lab.requirements import missing
from tests.lab.slurm import Slurm
from tests.lab.torch_nodes import TORCH, show_torch

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(TORCH is None, reason="needs torch beside the tests: nox -s checks"),
]

BOTH = ("check", "--nodes", "node[01-02]", "--format", "json")
FEW = ("--ops", "all_reduce/sum/fp32,barrier")


@pytest.fixture(scope="module")
def nodes(lab: None) -> Iterator[Cluster]:
    """Two nodes whose environment has torch."""
    with Cluster(2) as cluster:
        show_torch(cluster)
        cluster.set_environment({"OMP_NUM_THREADS": "1"})
        yield cluster


@pytest.fixture
def command(nodes: Cluster, tmp_path: Path) -> Command:
    """The command over ssh to the two."""
    return over_ssh(nodes, tmp_path)


@pytest.fixture(scope="module")
def one_file(nodes: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The one-file form, where every node sees it."""
    path = os.path.join(nodes.folder, "envaudit.pyz")
    ended = over_ssh(nodes, tmp_path_factory.mktemp("bundle"))("bundle", "-o", path)
    assert 0 == ended.code, ended.text
    return path


def left_over(nodes: Cluster) -> list[str]:
    """What still runs on the nodes, or lies in their /tmp."""
    found = [process.command_line for name in nodes.names for process in nodes.node(name).work_after(5)]
    for name in nodes.names:
        listed = nodes.node(name).run(["sh", "-c", "ls /tmp"]).stdout.split()
        found += [path for path in listed if path.startswith("envaudit")]
    return found


def run_of(envelope: dict[str, Any]) -> dict[str, Any]:
    """The one run that the nodes tell of, all of them the same."""
    (run,) = envelope["collectives"]
    assert ["node01", "node02"] == sorted(run["said_by"])
    return dict(run)


def statuses(run: dict[str, Any]) -> set[str]:
    """What its collectives came to, but for those that gloo does not have."""
    cases = run["cases"].values()
    return {case["status"] for case in cases if not case["reason"].startswith("gloo of")}


def test_nodes_over_ssh_meet_at_the_first_and_pass(nodes: Cluster, command: Command) -> None:
    """Two ranks on each; nothing is left on them."""
    ended = command(*BOTH, "--nproc-per-node", "2", *FEW, "--only", "collectives", timeout_s=120)
    assert 0 == ended.code, ended.text
    run = run_of(ended.envelope)
    assert (4, "gloo", "done", True) == (
        run["world"],
        run["backend"],
        run["ended"]["kind"],
        run["authenticated"],
    )
    assert ["node01", "node01", "node02", "node02"] == [rank["node"] for rank in run["ranks"]]
    assert {"ok"} == statuses(run)
    assert [] == ended.alarms, ended.text
    assert [] == left_over(nodes)


def test_mtu_that_one_node_has_smaller_is_a_black_hole_with_its_size(
    nodes: Cluster, command: Command
) -> None:
    """A virtual cable drops what its other end does not take, and says so to nobody.

    It lets the four bytes of a VLAN's tag pass beyond the MTU (is_skb_forwardable).
    """
    nodes.node("node02").run(["ip", "link", "set", "eth0", "mtu", "1400"])
    try:
        ended = command(*BOTH, "--only", "mtu", timeout_s=60)
    finally:
        nodes.node("node02").run(["ip", "link", "set", "eth0", "mtu", "1500"])
    assert 1 == ended.code, ended.text
    (finding,) = [each for each in ended.findings if each["rule"] == "EA613"]
    assert ["node01", "node02"] == finding["nodes"]
    assert re.match(r"packets above 140[0-4] bytes vanish \(eth0, MTU 1500\)", finding["message"])
    assert ["node01 to node02"] == finding["evidence"]


def test_equal_mtu_passes(command: Command) -> None:
    """And says which."""
    ended = command("check", "--nodes", "node[01-02]", "--only", "mtu", "--format", "plain", timeout_s=60)
    assert 0 == ended.code, ended.text
    assert "path MTU 1500 from node[01-02] to all that it was tried to" in ended.stdout


def test_torchrun_on_two_nodes_ends_everywhere_with_the_code_of_the_first(
    nodes: Cluster, one_file: str
) -> None:
    """Rank 0 alone prints."""
    first, second = (_torchrun(nodes, one_file, node) for node in (0, 1))
    (out, err), (other_out, other_err) = (each.communicate(timeout=120) for each in (first, second))
    assert (0, 0) == (first.returncode, second.returncode), err + other_err
    run = run_of(json.loads(out))
    assert (2, {"ok"}) == (run["world"], statuses(run))
    assert "" == other_out
    assert [] == left_over(nodes)


@pytest.fixture(scope="module")
def slurm(nodes: Cluster) -> Slurm:
    """Slurm on the same nodes."""
    if missing("slurm"):
        pytest.skip("; ".join(missing("slurm")))
    made = Slurm(nodes)
    made.start()
    return made


def test_srun_step_starts_the_ranks_of_each_node(nodes: Cluster, slurm: Slurm, one_file: str) -> None:
    """One task a node, the hub on the first node of the step by its name."""
    words = ["srun", "-N2", "--ntasks-per-node=1", "--export=NONE", nodes.python, one_file, "check"]
    ended = slurm.run([*words, *FEW, "--nproc-per-node", "2", "--format", "json"], timeout_s=120)
    assert 0 == ended.returncode, ended.stdout + ended.stderr
    run = run_of(json.loads(ended.stdout))
    assert (4, 2, {"ok"}) == (run["world"], run["supervisors"], statuses(run))


def _torchrun(nodes: Cluster, one_file: str, rank: int) -> subprocess.Popen[str]:
    node = nodes.node(nodes.names[rank])
    address = nodes.node(nodes.names[0]).place.address
    argv = [nodes.python, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
    argv += [f"--node-rank={rank}", f"--master-addr={address}", "--master-port=29400", one_file, "check"]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1", "CI": "1"}
    return subprocess.Popen(
        node.enter([*argv, *FEW, "--format", "json"]),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
