"""`envaudit check` over ssh: two nodes run the same operations, and on one of them a bit is flipped.

The nodes' environment finds the torch of the interpreter that runs the tests; the fault is armed by a file
that one node has (tests/checks/armed), not by anything in the product.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.cluster import Cluster
from tests.lab.command import Command, over_ssh
from tests.lab.torch_nodes import TORCH, show_torch

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(TORCH is None, reason="needs torch beside the tests: nox -s checks"),
]

ARMED = Path(__file__).parents[1] / "checks" / "armed"
ODD = "node02"
BOTH = ("check", "--nodes", "node[01-02]", "--format", "json")


@pytest.fixture(scope="module")
def torch_nodes(lab: None) -> Iterator[Cluster]:
    """Two nodes whose environment has torch, and the start-up file that a test may arm."""
    with Cluster(2) as nodes:
        site = show_torch(nodes)
        shutil.copy(ARMED / "sitecustomize.py", site)
        shutil.copytree(ARMED / "operations", Path(nodes.folder, "operations"))
        nodes.set_environment({"OMP_NUM_THREADS": "1"})
        yield nodes


@pytest.fixture
def command(torch_nodes: Cluster, tmp_path: Path) -> Command:
    """The command over ssh to the two."""
    return over_ssh(torch_nodes, tmp_path)


def left_over(nodes: Cluster) -> list[str]:
    """What still runs on the nodes, or lies in their /tmp."""
    found = [process.command_line for name in nodes.names for process in nodes.node(name).work()]
    for name in nodes.names:
        listed = nodes.node(name).run(["sh", "-c", "ls /tmp"]).stdout.split()
        found += [path for path in listed if path.startswith("envaudit")]
    return found


def test_healthy_nodes_pass_with_the_same_digests(torch_nodes: Cluster, command: Command) -> None:
    """Nothing is installed on them, and nothing is left behind."""
    ended = command(
        "check", "--nodes", "node[01-02]", "--ops", "gemm/fp32", "--budget", "60", "--format", "json"
    )
    assert 0 == ended.code, ended.text
    checks = ended.envelope["checks"]
    digests = [checks[name]["0"]["cases"]["gemm/fp32/spread"]["digest"] for name in ("node01", "node02")]
    assert digests[0] == digests[1] != ""
    assert "cpu" == checks["node01"]["0"]["kind"]
    assert [] == left_over(torch_nodes)


def test_node_with_a_flipped_bit_is_named_with_the_operation_and_the_bit(
    torch_nodes: Cluster, command: Command
) -> None:
    """And one on which an operation hangs and crashes goes on behind them."""
    armed = "/etc/envaudit-test-armed"
    torch_nodes.node(ODD).write(armed, os.path.join(torch_nodes.folder, "operations"))
    try:
        ops = "gemm/fp32,faulty/flip,faulty/segfault,faulty/after"
        ended = command(*BOTH, "--ops", ops, "--budget", "90", timeout_s=120)
    finally:
        torch_nodes.node(ODD).write(armed, None)
    assert 1 == ended.code, ended.text
    errors = {each["rule"]: each for each in ended.envelope["findings"] if each["severity"] == "error"}
    assert {"EA500", "EA502"} == set(errors), ended.text
    assert [[ODD], [ODD]] == [each["nodes"] for each in errors.values()]
    (line,) = errors["EA500"]["evidence"]
    assert "faulty/flip: 1 of " in line
    assert "flipped bit 9" in line
    assert "SIGSEGV" in errors["EA502"]["evidence"][0]
    cases = ended.envelope["checks"][ODD]["0"]["cases"]
    assert "ok" == cases["faulty/after"]["status"] == cases["gemm/fp32/spread"]["status"]
    assert [] == left_over(torch_nodes)


def test_check_that_is_cancelled_leaves_nothing_on_the_nodes(torch_nodes: Cluster, command: Command) -> None:
    """A node that is given up while torch is imported is cleared."""
    with command.running(*BOTH, "--ops", "gemm/fp64") as process:
        assert torch_nodes.node("node01").loads("libtorch_cpu.so", within_s=60)
        process.terminate()
        ended = command.finish(process, 20)
    assert 130 == ended.code, ended.text
    assert [[], []] == [torch_nodes.node(name).work_after(5) for name in torch_nodes.names]
    assert [] == left_over(torch_nodes)
