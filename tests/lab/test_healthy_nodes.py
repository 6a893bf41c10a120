"""Four healthy nodes over real ssh: the main job when nothing is wrong."""

from __future__ import annotations

import pytest

from tests.lab.cluster import Cluster
from tests.lab.command import Command

pytestmark = pytest.mark.lab

NODES = "node[01-04]"


def test_diff_of_healthy_nodes_passes(envaudit: Command) -> None:
    """Nodes that are alike give the same digests, however the kernel and sshd number them."""
    ended = envaudit("diff", NODES)
    assert 0 == ended.code, ended.text
    assert ended.last_line.startswith("PASS"), ended.text


def test_healthy_nodes_raise_no_alarm(envaudit: Command) -> None:
    """Neither an error nor a warning, of no rule."""
    ended = envaudit("diff", NODES, "--format", "json")
    assert [] == ended.alarms, ended.text


def test_diff_against_a_tagged_snapshot_passes_while_nothing_changes(envaudit: Command) -> None:
    """Snapshot, tag, and compare node by node: the facts are the same a moment later."""
    taken = envaudit("snapshot", "--nodes", NODES, "--tag", "good")
    assert 0 == taken.code, taken.text
    compared = envaudit("diff", f"{NODES}@good", NODES)
    assert 0 == compared.code, compared.text


def test_show_and_log_read_back_what_was_stored(envaudit: Command) -> None:
    """The stored facts are shown by section, and the history names the snapshot."""
    envaudit("snapshot", "--nodes", "node01,node02", "--tag", "good")
    shown = envaudit("show", "node01@good", "--section", "gpu")
    assert 0 == shown.code, shown.text
    assert "580.95.05" in shown.stdout, shown.text
    logged = envaudit("log", "node01")
    assert 0 == logged.code, logged.text
    assert "good" in logged.stdout, logged.text


def test_snapshot_of_all_takes_the_configured_hosts(envaudit: Command) -> None:
    """`--all` and a host file name the same four nodes."""
    hosts = envaudit.folder / "hosts"
    hosts.write_text("node01 slots=8\nnode02:8\n# spare\nnode03\nnode04\n", encoding="utf-8")
    for way in (["--all"], ["--hostfile", str(hosts)]):
        ended = envaudit("snapshot", *way, "--format", "json")
        assert 0 == ended.code, ended.text
    compared = envaudit("diff", "--stored", NODES)
    assert 0 == compared.code, compared.text


def test_snapshot_leaves_nothing_on_the_nodes(cluster: Cluster, envaudit: Command) -> None:
    """No process, and no file where the probe might have put one."""
    before = {name: _files(cluster, name) for name in cluster.names}
    ended = envaudit("snapshot", "--nodes", NODES)
    assert 0 == ended.code, ended.text
    assert {name: [] for name in cluster.names} == {
        name: cluster.node(name).work_after(3.0) for name in cluster.names
    }
    assert before == {name: _files(cluster, name) for name in cluster.names}


def _files(cluster: Cluster, name: str) -> str:
    """Every file with its time where something may be written: temporary folders, home, environment."""
    places = ["/tmp", "/dev/shm", "/run", f"{cluster.folder}/home", cluster.environment_path]
    return cluster.node(name).run(["find", *places, "-type", "f", "-printf", "%p %T@\n"]).stdout
