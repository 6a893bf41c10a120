"""A run that is cancelled, killed or too slow leaves nothing running on the nodes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.lab.cluster import Cluster
from tests.lab.command import Command, over_ssh
from tests.lab.faults import Faults

pytestmark = pytest.mark.lab

END_S = 5.0
NVML = "libnvidia-ml.so"


@pytest.fixture
def busy(cluster: Cluster, faults: Faults) -> Faults:
    """All nodes have an NVML that never answers, as after a GPU has fallen off the bus."""
    for name in cluster.names:
        faults.file(name, "/etc/fakenvml.conf", "return.nvmlInit = hang\n")
    return faults


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name
)
def test_cancelled_snapshot_leaves_nothing_running(
    cluster: Cluster, busy: Faults, envaudit: Command, number: signal.Signals
) -> None:
    """Ctrl-C, a polite end and kill -9 of the controller while all nodes work."""
    with envaudit.running("snapshot", "--nodes", "node[01-04]") as process:
        assert all(cluster.node(name).loads(NVML, 10.0) for name in cluster.names)
        process.send_signal(number)
        ended = envaudit.finish(process, 10.0)
    assert (-9 if number == signal.SIGKILL else 130) == ended.code, ended.text
    assert {name: [] for name in cluster.names} == {
        name: cluster.node(name).work_after(END_S) for name in cluster.names
    }


def test_ctrl_c_stores_nothing(envaudit: Command, cluster: Cluster, busy: Faults) -> None:
    """A cancelled snapshot is none; the store has no half of it."""
    with envaudit.running("snapshot", "--nodes", "node[01-04]", "--tag", "half") as process:
        assert cluster.node("node01").loads(NVML, 10.0)
        process.send_signal(signal.SIGINT)
        ended = envaudit.finish(process, 10.0)
    assert 130 == ended.code, ended.text
    assert [] == sorted(path.name for path in envaudit.folder.rglob("*.json.gz"))
    assert 2 == envaudit("show", "node01@half").code


def test_hung_section_costs_the_section_not_the_node(cluster: Cluster, busy: Faults, tmp_path: Path) -> None:
    """NVML that hangs is an error of the gpu section; everything else is read and compared."""
    ended = over_ssh(cluster, tmp_path, timeout_s=5)("diff", "node[01-04]", "--format", "json")
    assert 3 == ended.code, ended.text
    assert {} == ended.envelope["missing"], ended.text
    (finding,) = ended.findings
    assert ("gpu", cluster.names) == (finding["path"], finding["nodes"]), ended.text
    assert ["not read within 4 s"] == finding["evidence"], ended.text


def test_timed_out_run_is_ended_on_the_node_too(cluster: Cluster, busy: Faults, tmp_path: Path) -> None:
    """A probe that is stopped cannot end itself; what watches over it does, at the same timeout."""
    envaudit = over_ssh(cluster, tmp_path, timeout_s=5)
    with envaudit.running("snapshot", "--nodes", "node01", "--format", "json") as process:
        assert cluster.node("node01").loads(NVML, 10.0)
        stopped = _stop_youngest_but_the_watch(cluster, "node01")
        ended = envaudit.finish(process, 20.0)
    assert stopped
    assert 3 == ended.code, ended.text
    assert "timeout" == ended.envelope["missing"]["node01"]["kind"], ended.text
    assert [] == cluster.node("node01").work_after(END_S)


def _stop_youngest_but_the_watch(cluster: Cluster, name: str) -> bool:
    """Stops every Python of the run but the oldest, which watches over the others."""
    pythons = [process for process in cluster.node(name).work() if "python" in process.name]
    others = sorted(pythons, key=lambda process: process.pid)[1:]
    for process in others:
        os.kill(process.pid, signal.SIGSTOP)
    return bool(others)
