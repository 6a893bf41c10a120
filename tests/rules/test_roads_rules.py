"""EA610 to EA614: how ranks reach each other, judged."""

from __future__ import annotations

from typing import Any, Dict, List

import pytest

from envaudit.model import Finding, Fingerprint
from envaudit.model.collective import collective_runs
from envaudit.report.collectives import collective_lines
from envaudit.rules import Evidence, Policy, judge
from tests.rules.collectiveruns import NODES, result, telling

THREE = ("node01", "node02", "node03")
IB = {"version": "2.27.5+cuda12.9", "network": "IB", "devices": ["mlx5_0:1/IB"], "nvls": None}
SOCKET = {**IB, "network": "Socket", "devices": ["eth0:10.0.0.1"]}


def findings(nodes: List[Fingerprint]) -> List[Finding]:
    """All that is said of a run that was asked for this section alone."""
    return list(judge(Evidence(tuple(nodes), sections=("collectives",), comparing=False)))


def over(row: Dict[str, Any], local: str = "P2P/CUMEM", remote: str = "NET/IB/GDRDMA") -> Dict[str, Any]:
    """A rank's road."""
    return {**row, "local": {local: 4}, "remote": {remote: 2}}


def test_all_ranks_on_the_best_road_raise_nothing() -> None:
    """InfiniBand between, NVLink inside."""
    road = {node: {str(rank): over(IB)} for rank, node in enumerate(NODES)}
    assert [] == findings(telling(result(), road=road))


@pytest.mark.parametrize("name", ["²", "9" * 5000, "-1", "rank0", ""])
def test_rank_that_is_none_has_no_road_and_no_link(name: str) -> None:
    """What a node says is held to be a number before it is read as one: `"²".isdigit()` is true."""
    figures = {**result()["figures"], "links": {f"{name}-1": 5, f"0-{name}": 5}}
    nodes = telling(result(figures=figures), road={"node01": {name: over(SOCKET, remote="NET/Socket")}})
    assert [] == findings(nodes)
    (run,) = collective_runs(nodes)
    assert ({}, {}) == (run.road, run.links)
    assert collective_lines((run,), True)


def test_bandwidth_below_what_it_is_counted_in_is_not_called_none() -> None:
    """Megabits a second, over a link that has lost its speed."""
    figures = result()["figures"]
    slow = {name: {**row, "algbw": 0, "busbw": 0} for name, row in figures["items"].items() if row["busbw"]}
    (run,) = collective_runs(telling(result(figures={**figures, "items": slow})))
    shown = "\n".join("".join(span.text for span in row) for row in collective_lines((run,), False))
    assert "busbw under 0.001 GB/s, algbw under 0.001 GB/s at 256 KiB" in shown


def test_sockets_where_another_rank_has_infiniband_are_a_fall_back() -> None:
    """NCCL does not say so."""
    road = {"node01": {"0": over(IB)}, "node02": {"1": over(SOCKET, remote="NET/Socket")}}
    (finding,) = findings(telling(result(), road=road))
    assert ("EA611", "error", ("node02",)) == (finding.rule, finding.severity, finding.nodes)
    assert "NCCL sends by sockets over eth0:10.0.0.1" == finding.message


def test_sockets_on_nodes_with_an_adapter_are_a_fall_back() -> None:
    """Also where no rank took it."""
    hcas = {"MT4129 InfiniBand": {"cards": 1, "ports": 1, "active": 1, "each": {}, "devices": {}}}
    road = {node: {str(rank): over(SOCKET, remote="NET/Socket")} for rank, node in enumerate(NODES)}
    nodes = telling(result(), road=road, network={"hcas": hcas})
    assert [("EA611", "node01"), ("EA611", "node02")] == [(f.rule, f.nodes[0]) for f in findings(nodes)]


def test_sockets_on_nodes_without_an_adapter_are_what_there_is() -> None:
    """Ethernet is no fault."""
    road = {node: {str(rank): over(SOCKET, remote="NET/Socket")} for rank, node in enumerate(NODES)}
    assert [] == findings(telling(result(), road=road))


def test_node_whose_gpus_go_through_host_memory_is_named_among_others() -> None:
    """The others use NVLink."""
    ways = {"node01": "P2P/CUMEM", "node02": "SHM", "node03": "P2P/CUMEM"}
    road = {node: {str(rank): over(IB, local=ways[node])} for rank, node in enumerate(THREE)}
    (finding,) = findings(telling(result(nodes=THREE), THREE, road=road))
    assert ("EA612", "warning", ("node02",)) == (finding.rule, finding.severity, finding.nodes)
    assert "ranks reach each other by shared memory, on others by P2P" == finding.message


def row(**peers: Any) -> Dict[str, Any]:
    """What a node's probes found."""
    equal = 2 - len(peers)
    return {"interface": "eth0", "address": "10.0.0.1", "mtu": 9000, "equal": equal, "peers": peers}


@pytest.mark.parametrize(
    ("state", "severity", "words"),
    [
        ("black_hole", "error", "packets above 1500 bytes vanish (eth0, MTU 9000)"),
        ("less", "warning", "the path takes 1500 bytes (eth0, MTU 9000)"),
    ],
)
def test_path_that_takes_less_names_the_node_that_all_odd_ones_lead_to(
    state: str, severity: str, words: str
) -> None:
    """Two others find the same of it."""
    odd = {"state": state, "mtu": 1500}
    mtu = {"node01": row(node02=odd), "node02": row(), "node03": row(node02=odd)}
    (finding,) = findings(telling(result(nodes=THREE), THREE, mtu=mtu))
    assert ("EA613", severity, ("node02",)) == (finding.rule, finding.severity, finding.nodes)
    assert (words, ("node01 to node02", "node03 to node02")) == (finding.message, finding.evidence)


def test_silent_path_is_not_tested() -> None:
    """A firewall that drops UDP says nothing of the MTU."""
    mtu = {"node01": row(node02={"state": "silent", "mtu": None}), "node02": row()}
    (finding,) = findings(telling(result(), mtu=mtu))
    assert ("EA613", "incomplete", NODES) == (finding.rule, finding.severity, finding.nodes)


def test_one_node_has_no_path() -> None:
    """Asked for and not there to be tried."""
    made = result(nodes=("node01",), ranks_each=2)
    (finding,) = findings(telling(made, ["node01"], mtu={}))
    assert ("EA613", "incomplete", ("node01",)) == (finding.rule, finding.severity, finding.nodes)


@pytest.mark.parametrize(("late_ns", "rules"), [(40_000_000, ["EA610"]), (400_000, [])])
def test_rank_that_comes_late_is_named_beyond_the_threshold(late_ns: int, rules: List[str]) -> None:
    """Five milliseconds by default."""
    made = result(backend="nccl")
    made["figures"]["straggler"] = {"rank": 1, "items": 40, "of": 50, "late_ns": late_ns}
    found = findings(telling(made))
    assert rules == [finding.rule for finding in found]
    for finding in found:
        assert ("node02",) == finding.nodes
        assert "rank 1 (node02) comes 40.0 ms after the others in 40 of 50 collectives" == finding.message


def test_slow_link_is_named_against_the_median_of_all() -> None:
    """A quarter less by default."""
    made = result(nodes=THREE, backend="nccl")
    made["figures"]["links"] = {"0-1": 10_000, "0-2": 9_800, "1-2": 7_000}
    (finding,) = findings(telling(made, THREE))
    assert ("EA610", "warning", ("node02", "node03")) == (finding.rule, finding.severity, finding.nodes)
    assert ("7 GB/s, the median of 3 links is 9.8 GB/s",) == finding.evidence


def test_rank_whose_links_are_slow_is_one_finding() -> None:
    """Not one for each link."""
    nodes = (*THREE, "node04")
    made = result(nodes=nodes, backend="nccl")
    made["figures"]["links"] = {"0-1": 9, "0-2": 9, "0-3": 3, "1-2": 9, "1-3": 4, "2-3": 4}
    (finding,) = findings(telling(made, nodes))
    assert ("EA610", ("node04",)) == (finding.rule, finding.nodes)
    assert "3 links of rank 3 (node04) are slow" == finding.message


def test_ranks_of_gloo_are_judged_by_a_policy_s_number_alone() -> None:
    """Who shares a core with whom says nothing of a rank or of a link."""
    made = result(nodes=THREE)
    made["figures"]["straggler"] = {"rank": 1, "items": 40, "of": 50, "late_ns": 40_000_000}
    made["figures"]["links"] = {"0-1": 10_000, "0-2": 9_800, "1-2": 7_000}
    assert [] == findings(telling(made, THREE))
    policy = Policy(thresholds={"EA610": {"late_ms": 30}})
    nodes = tuple(telling(made, THREE))
    found = judge(Evidence(nodes, sections=("collectives",), comparing=False), policy)
    assert ["EA610", "EA610"] == [finding.rule for finding in found]


def test_hub_without_a_token_is_told_between_nodes_alone() -> None:
    """On one machine nobody else comes to its loopback."""
    (finding,) = findings(telling(result(authenticated=False)))
    assert ("EA614", "info") == (finding.rule, finding.severity)
    assert [] == findings(telling(result(authenticated=False, nodes=("node01",), ranks_each=2), ["node01"]))
