"""The network of nodes in namespaces of their own: alike, and one that is set otherwise."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from typing import Iterator

import pytest

from tests.lab.cluster import Cluster
from tests.lab.command import Command, drifted
from tests.lab.faults import Faults

pytestmark = pytest.mark.lab

NODES = "node[01-04]"
ODD = "node03"


def ip(cluster: Cluster, name: str, *arguments: str) -> None:
    """Changes a node's network."""
    argv = ["ip", "netns", "exec", cluster.netns(name), "ip", *arguments]
    subprocess.run(argv, check=True, timeout=10, capture_output=True)


@contextmanager
def mtu(cluster: Cluster, name: str, size_bytes: int) -> Iterator[None]:
    """Another MTU on one node's eth0, for a while."""
    ip(cluster, name, "link", "set", "eth0", "mtu", str(size_bytes))
    try:
        yield
    finally:
        ip(cluster, name, "link", "set", "eth0", "mtu", "1500")


def test_nodes_that_are_alike_differ_in_nothing(envaudit: Command) -> None:
    """Other addresses, MACs and interface numbers; each node shows its one virtual interface."""
    ended = envaudit("diff", NODES, "--only", "network")
    assert 0 == ended.code, ended.text
    envaudit("snapshot", "--nodes", "node01")
    shown = envaudit("show", "node01", "--section", "network")
    assert "ipv4/24" in shown.stdout, shown.text


def test_mtu_of_one_node_is_one_drift(cluster: Cluster, envaudit: Command) -> None:
    """9000 on one node of four is named with its path and that node, and nothing follows from it."""
    with mtu(cluster, ODD, 9000):
        ended = envaudit("diff", NODES, "--format", "json")
    assert 1 == ended.code, ended.text
    assert {("network/interfaces/virtual/none/each/mtu", (ODD,))} == drifted(ended), ended.text
    (drift,) = ended.envelope["drifts"]
    assert "majority 3/4" == drift["basis"], ended.text


def test_variable_that_names_nothing_here_is_said_beside_the_variable(
    envaudit: Command, faults: Faults
) -> None:
    """eth0 everywhere, ens5 on one node: the setting differs, and it resolves to nothing there."""
    for name in ("node01", "node02", "node04"):
        faults.variable(name, "NCCL_SOCKET_IFNAME", "eth0")
    faults.variable(ODD, "NCCL_SOCKET_IFNAME", "ens5")
    ended = envaudit("diff", NODES, "--only", "network", "--format", "json")
    assert 1 == ended.code, ended.text
    place = "network/selection/NCCL_SOCKET_IFNAME"
    found = drifted(ended)
    assert {(f"{place}/{key}", (ODD,)) for key in ("matched", "named", "idle")} <= found, ended.text
    assert all(path.startswith(place) for path, _ in found), ended.text
