"""The exec transport through real programs: the same facts as over ssh, save those of the launch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.cluster import Cluster
from tests.lab.command import Command, Ended, over_exec, over_ssh
from tests.lab.slurm import Slurm

pytestmark = pytest.mark.lab


def test_exec_through_nsenter_reads_the_facts_that_ssh_reads(cluster: Cluster, tmp_path: Path) -> None:
    """A template that enters the node's namespaces."""
    _snapshot(over_ssh(cluster, tmp_path), cluster)
    ended = _against_snapshot(over_exec(cluster, tmp_path, cluster.enter_command), cluster)
    assert 0 == ended.code, ended.text
    assert {drift["kind"] for drift in ended.envelope["drifts"]} <= {"unknown"}, ended.text
    assert [] == ended.alarms, ended.text


def test_exec_through_ip_netns_reads_every_node(cluster: Cluster, tmp_path: Path) -> None:
    """`ip netns exec` enters the network only: four times this machine, four times the same."""
    for name in cluster.names:
        cluster.netns(name)
    command = f"ip netns exec {cluster.netns_prefix}{{node}} {{python}}"
    # The machine's own name is what it is: at the loopback on many.
    envaudit = over_exec(cluster, tmp_path, command, silent=["EA473"])
    ended = envaudit("diff", ",".join(cluster.names), "--format", "json")
    assert 0 == ended.code, ended.text
    assert [] == ended.envelope["drifts"], ended.text


def test_srun_reads_the_facts_that_ssh_reads(slurm: Slurm, tmp_path: Path) -> None:
    """A job step a node, through slurmctld and slurmd."""
    cluster = slurm.cluster
    _snapshot(over_ssh(cluster, tmp_path), cluster)
    command = "srun --overlap --export=NONE -N1 -n1 -w {node} {python}"
    ended = _against_snapshot(over_exec(cluster, tmp_path, command, environ=slurm.variables), cluster)
    assert 0 == ended.code, ended.text
    assert {drift["kind"] for drift in ended.envelope["drifts"]} <= {"unknown"}, ended.text
    assert [] == ended.alarms, ended.text


def test_srun_launch_is_slurm(slurm: Slurm, tmp_path: Path) -> None:
    """Facts of the launch are compared between steps of Slurm only, so the fingerprint says so."""
    command = "srun --overlap --export=NONE -N1 -n1 -w {node} {python}"
    envaudit = over_exec(slurm.cluster, tmp_path, command, environ=slurm.variables)
    ended = envaudit("diff", "node[01-02]")
    assert 0 == ended.code, ended.text
    shown = envaudit("show", "node01", "--section", "host")
    assert "slurm" in shown.stdout, shown.text


def test_srun_to_a_node_that_slurm_does_not_know_is_named(slurm: Slurm, tmp_path: Path) -> None:
    """The cause is the complaint of srun itself."""
    command = "srun --overlap --export=NONE -N1 -n1 -w {node} {python}"
    envaudit = over_exec(slurm.cluster, tmp_path, command, environ=slurm.variables)
    ended = envaudit("diff", "node[01-02],node77", "--format", "json")
    assert 3 == ended.code, ended.text
    assert ["node77"] == list(ended.envelope["missing"]), ended.text
    assert ended.envelope["missing"]["node77"]["why"], ended.text


def _snapshot(envaudit: Command, cluster: Cluster) -> None:
    ended = envaudit("snapshot", "--nodes", ",".join(cluster.names), "--tag", "ssh")
    assert 0 == ended.code, ended.text


def _against_snapshot(envaudit: Command, cluster: Cluster) -> Ended:
    nodes = f"node[01-{len(cluster.names):02d}]"
    return envaudit("diff", f"{nodes}@ssh", nodes, "--format", "json")
