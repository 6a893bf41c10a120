"""The lab itself: what the tests of envaudit rely on must be so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.lab import leftovers
from tests.lab.cluster import Cluster
from tests.lab.faults import Faults
from tests.lab.processes import runs, start_time
from tests.lab.slurm import Slurm

pytestmark = pytest.mark.lab

PROJECT = Path(__file__).resolve().parents[2]


def test_nodes_over_ssh_are_machines_of_their_own(cluster: Cluster) -> None:
    """Host name, machine id, boot id, network, processes and /tmp differ from node to node."""
    command = (
        "hostname; cat /etc/machine-id /proc/sys/kernel/random/boot_id; "
        "ls /sys/class/net | xargs; ls /tmp | wc -l"
    )
    answers = [cluster.ssh(name, command).stdout.splitlines() for name in cluster.names]
    assert cluster.names == [answer[0] for answer in answers]
    assert 4 == len({answer[1] for answer in answers}) == len({answer[2] for answer in answers})
    assert {"eth0 lo"} == {answer[3] for answer in answers}
    assert {"0"} == {answer[4] for answer in answers}


def test_nodes_python_is_the_shared_environment_on_each(cluster: Cluster) -> None:
    """python3 on the PATH is the same virtual environment everywhere."""
    answers = {
        cluster.ssh(name, "python3 -c 'import sys; print(sys.prefix)'").stdout for name in cluster.names
    }
    assert {cluster.environment_path + "\n"} == answers


def test_link_down_costs_the_connect_timeout_and_comes_back(cluster: Cluster, faults: Faults) -> None:
    """A pulled cable is rc 255 after ConnectTimeout, and only for that node."""
    faults.link_down("node02")
    assert 255 == cluster.ssh("node02", "true").returncode
    assert 0 == cluster.ssh("node01", "true").returncode
    faults.mend()
    assert 0 == cluster.ssh("node02", "true").returncode


def test_sshd_stopped_is_refused_at_once(cluster: Cluster, faults: Faults) -> None:
    """A stopped sshd is rc 255 and says so."""
    faults.sshd_stopped("node03")
    answer = cluster.ssh("node03", "true")
    assert 255 == answer.returncode
    assert "Connection refused" in answer.stderr


def test_faults_on_one_node_are_unseen_on_the_others_and_mended(cluster: Cluster, faults: Faults) -> None:
    """Files, variables, folders and the interpreter change on one node, for one test."""
    command = "cat /etc/lab-test; echo $LAB_TEST; touch /tmp/x; python3 -c 'print(1)'"
    healthy = cluster.ssh("node04", command).stdout
    faults.file("node04", "/etc/lab-test", "text\n")
    faults.variable("node04", "LAB_TEST", "two words")
    faults.empty_folder("node04", "/tmp", read_only=True)
    faults.python("node04", 'echo noise; exec "$REAL" "$@"')
    assert "text\ntwo words\nnoise\n1\n" == cluster.ssh("node04", command).stdout
    assert healthy == cluster.ssh("node03", command).stdout
    faults.mend()
    assert healthy == cluster.ssh("node04", command).stdout


def test_sshd_that_has_just_started_is_no_work_left(cluster: Cluster) -> None:
    """Mending ends what is left on a node; a listener that has not set its title yet must outlive it."""
    node = cluster.node("node03")
    for _ in range(20):
        node.restart_sshd()
        assert [] == node.work()


def test_work_left_on_a_node_is_seen_and_ended(cluster: Cluster, faults: Faults) -> None:
    """A process that outlives its session is listed; mending ends it."""
    cluster.node("node01").run(["sh", "-c", "setsid sleep 60 >/dev/null 2>&1 </dev/null &"])
    assert cluster.node("node01").loads("/sleep", 30.0)
    assert ["sleep 60"] == [process.command_line for process in cluster.node("node01").work()]
    faults.mend()
    assert [] == cluster.node("node01").work()


def test_two_labs_side_by_side_do_not_meet(cluster: Cluster) -> None:
    """A second lab has its own bridge and addresses, and takes only itself down."""
    with Cluster(1) as other:
        assert 0 == other.ssh("node01", "true").returncode
        assert 0 == cluster.ssh("node01", "true").returncode
    assert 0 == cluster.ssh("node01", "true").returncode


@pytest.mark.usefixtures("lab")
def test_controller_killed_leaves_nothing_after_the_next_up() -> None:
    """Nodes end with their controller even at kill -9; bridge and folder go with the next sweep."""
    script = (
        "import time; from tests.lab.cluster import Cluster; cluster = Cluster(2); cluster.up(); "
        "pids = [node.pid for node in cluster.nodes.values()]; "
        "print(cluster.folder, cluster.netns('node01'), *pids, flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=PROJECT, stdout=subprocess.PIPE, text=True
    ) as victim:
        assert victim.stdout is not None
        folder, label, *pids = victim.stdout.readline().split()
        identities = [(int(pid), start_time(int(pid))) for pid in pids]
        victim.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10.0
    while any(runs(identity) for identity in identities) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [False, False] == [runs(identity) for identity in identities]
    assert folder in leftovers.sweep()
    bridge = label.rpartition("-")[0]
    assert (False, False, False) == tuple(
        os.path.exists(path) for path in (folder, f"/sys/class/net/{bridge}", f"/run/netns/{label}")
    )


def test_chrony_nodes_follow_the_clock(chrony_cluster: Cluster) -> None:
    """Every node's chronyd has the lab's clock as its source."""
    for name in chrony_cluster.names:
        tracking = chrony_cluster.node(name).run(["chronyc", "-c", "tracking"]).stdout.split(",")
        assert ("11", "Normal") == (tracking[2], tracking[-1].strip())


def test_slurm_runs_a_task_on_the_node_that_is_asked_for(slurm: Slurm) -> None:
    """A step reaches the nodes through Slurm itself."""
    answer = slurm.run(["srun", "--overlap", "--export=NONE", "-N1", "-n1", "-w", "node02", "/bin/hostname"])
    assert (0, "node02\n", "") == (answer.returncode, answer.stdout, answer.stderr)
