"""The time service's word about the clock, from real chronyd on every node."""

from __future__ import annotations

from pathlib import Path
from typing import List, Tuple

import pytest

from tests.lab import chrony
from tests.lab.cluster import Cluster
from tests.lab.command import Ended, drifted, over_ssh

pytestmark = pytest.mark.lab

ODD = "node02"


def told(ended: Ended) -> List[Tuple[str, str, List[str]]]:
    """Severity, rule and nodes of each error and warning."""
    found = [each for each in ended.envelope["findings"] if each["severity"] != "info"]
    return [(each["severity"], each["rule"], each["nodes"]) for each in found]


def test_diff_of_nodes_that_follow_one_clock_passes(chrony_cluster: Cluster, tmp_path: Path) -> None:
    """Offsets differ from node to node and from second to second; they are no drift."""
    ended = over_ssh(chrony_cluster, tmp_path)("diff", "node[01-03]")
    assert 0 == ended.code, ended.text


def test_diff_with_an_unsynchronised_node_names_it(chrony_cluster: Cluster, tmp_path: Path) -> None:
    """A chronyd without an answering source says offset 0.0, which must not read as good."""
    subnet = chrony_cluster.node(ODD).place.address.rpartition(".")[0]
    chrony.start_on(chrony_cluster, ODD, f"server {subnet}.99 iburst\n")
    try:
        ended = over_ssh(chrony_cluster, tmp_path)("diff", "node[01-03]", "--format", "json")
    finally:
        chrony.start_on(chrony_cluster, ODD, chrony.follow(chrony_cluster))
        chrony.wait_synchronised(chrony_cluster, ODD)
    assert [("warning", "EA153", [ODD])] == told(ended), ended.text
    found = drifted(ended)
    assert ("clock/synchronised", (ODD,)) in found, ended.text
    assert {"clock"} == {path.partition("/")[0] for path, _nodes in found}, ended.text


def test_diff_with_a_stopped_time_service_names_it(chrony_cluster: Cluster, tmp_path: Path) -> None:
    """No time service is one finding, whatever else of the clock differs with it."""
    chrony.stop_on(chrony_cluster, ODD)
    try:
        ended = over_ssh(chrony_cluster, tmp_path)("diff", "node[01-03]", "--format", "json")
    finally:
        chrony.start_on(chrony_cluster, ODD, chrony.follow(chrony_cluster))
        chrony.wait_synchronised(chrony_cluster, ODD)
    assert [("warning", "EA154", [ODD])] == told(ended), ended.text
    assert ("clock/service", (ODD,)) in drifted(ended), ended.text
