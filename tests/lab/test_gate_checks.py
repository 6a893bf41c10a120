"""A gate with kernels and collectives over four nodes: in time where all is well, and wrong numbers named."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.lab.cluster import Cluster
from tests.lab.command import Command, over_ssh
from tests.lab.gating import Said, gate
from tests.lab.node import Node
from tests.lab.torch_nodes import TORCH, show_torch

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(TORCH is None, reason="needs torch beside the tests: nox -s checks"),
]

CHECKS = Path(__file__).parents[1] / "checks"
ODD = "node03"
ARMED = "/etc/envaudit-test-armed"
# Both sitecustomize of the tests, kernels' and collectives', on every node; a file of one node arms them.
_BOTH = """\
import os
try:
    with open("/etc/envaudit-test-collective") as _file:
        os.environ["ENVAUDIT_TEST_COLLECTIVE"] = _file.read().strip()
except OSError:
    pass
import armed_kernels
import armed_collectives
"""
# Operations that every node has, and with the same pattern the faulty one that only an armed node has.
KERNELS = ("--only", "kernels", "--ops", "[fg][ae][um][lm]*/f[lp]*")
COLLECTIVES = (
    "--only",
    "collectives",
    "--ops",
    "all_reduce/sum/fp32,all_gather/fp32",
    "--sizes",
    "1021,4097",
)


@pytest.fixture(scope="module")
def torch_nodes(lab: None) -> Iterator[Cluster]:
    """Four nodes whose environment has torch, and start-up files that a test may arm on one of them."""
    with Cluster(4) as nodes:
        site = show_torch(nodes)
        shutil.copy(CHECKS / "armed" / "sitecustomize.py", site / "armed_kernels.py")
        shutil.copy(
            CHECKS / "collectives_session" / "armed" / "sitecustomize.py", site / "armed_collectives.py"
        )
        (site / "sitecustomize.py").write_text(_BOTH)
        shutil.copytree(CHECKS / "armed" / "operations", Path(nodes.folder, "operations"))
        nodes.set_environment({"OMP_NUM_THREADS": "1"})
        yield nodes


@pytest.fixture
def command(torch_nodes: Cluster, tmp_path: Path) -> Command:
    """The command over ssh to the four."""
    return over_ssh(torch_nodes, tmp_path)


@contextmanager
def armed(nodes: Cluster, path: str, text: str) -> Iterator[None]:
    """A file that one node has."""
    nodes.node(ODD).write(path, text)
    try:
        yield
    finally:
        nodes.node(ODD).write(path, None)


def left_over(nodes: Cluster) -> list[str]:
    """What still runs on the nodes."""
    return [process.command_line for name in nodes.names for process in nodes.node(name).work_after(5.0)]


def test_four_healthy_nodes_pass_in_time_with_kernels_and_collectives(
    torch_nodes: Cluster, command: Command
) -> None:
    """Twenty seconds on a machine that has two cores to itself."""
    began = time.monotonic()
    gated = gate(command, timeout_s=120)
    took_s = time.monotonic() - began
    gated.holds_in_all_formats(("run",))
    assert 0 == gated.ended.code, gated.ended.text
    assert not [each for each in gated.findings if each.severity != "info"], gated.ended.text
    (text,) = [stage["text"] for stage in gated.envelope["stages"] if stage["name"] == "checks"]
    assert text.startswith("4 CPUs on 4 nodes, "), text
    assert "4 ranks, " in text
    assert [] == left_over(torch_nodes)
    # What a machine takes that is busy with something else says nothing of the promise.
    assert took_s < 20 or os.getloadavg()[0] > 2 * len(os.sched_getaffinity(0)), took_s


def test_wrong_kernel_on_one_node_is_its_own_finding_alone(torch_nodes: Cluster, command: Command) -> None:
    """One bit of one operation."""
    with armed(torch_nodes, ARMED, os.path.join(torch_nodes.folder, "operations")):
        gated = gate(command, *KERNELS, timeout_s=120)
    gated.holds_in_all_formats(("run",))
    loud = [each for each in gated.findings if each.severity != "info"]
    assert ([Said("EA500", "error", (ODD,))], 1) == (loud, gated.ended.code), gated.ended.text


def test_wrong_result_at_one_rank_is_its_own_finding_alone(torch_nodes: Cluster, command: Command) -> None:
    """A sum that is off by one on the rank of one node."""
    with armed(torch_nodes, "/etc/envaudit-test-collective", "wrong"):
        gated = gate(command, *COLLECTIVES, timeout_s=120)
    gated.holds_in_all_formats(("run",))
    loud = [each for each in gated.findings if each.severity != "info"]
    assert ([Said("EA600", "error", (ODD,))], 1) == (loud, gated.ended.code), gated.ended.text
    assert [] == left_over(torch_nodes)


def test_ctrl_c_while_kernels_run_leaves_nothing(torch_nodes: Cluster, command: Command) -> None:
    """130, and no report of half a run."""
    with command.running("gate", "--nodes", "node[01-04]", "--report", "json=gate.json") as process:
        assert torch_nodes.node("node01").loads("libtorch_cpu.so", within_s=60)
        process.send_signal(signal.SIGINT)
        ended = command.finish(process, 20)
    assert 130 == ended.code, ended.text
    assert not (command.folder / "gate.json").exists()
    assert [] == left_over(torch_nodes)


def test_first_node_that_stops_holds_the_gate_no_longer_than_another(
    torch_nodes: Cluster, command: Command
) -> None:
    """It runs the hub, and all others say that they do not hear it any more."""
    first = torch_nodes.node("node01")
    words = ("--only", "collectives", "--stall", "3")
    with command.running("gate", "--nodes", "node[01-04]", *words) as process:
        until = time.monotonic() + 60
        while not _has_rank(torch_nodes.node("node02")) and time.monotonic() < until:
            time.sleep(0.02)
        began = time.monotonic()
        stopped = [each.pid for each in first.work() if each.name.startswith("python")]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            ended = command.finish(process, 90)
        finally:
            for pid in stopped:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    assert (1, True) == (ended.code, "E EA604  the hub was not heard" in ended.stdout), ended.text
    assert "the others did not hear it, and" in ended.stdout, ended.text
    assert 40 > time.monotonic() - began
    assert [] == left_over(torch_nodes)


def _has_rank(node: Node) -> bool:
    """Whether a rank of the collectives was started there, so that all have met."""
    return any("envaudit.checks.collectives.rank" in process.command_line for process in node.work())
