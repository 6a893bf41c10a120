"""EA400 to EA429: adapters, ports, MTUs, bonds and subnets."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Dict

import pytest

from envaudit.rules.pernode import mapping
from tests.probe.conftest import NODES
from tests.rules.fleets import GONE, edited, findings, fleet, node_of, odd_of, probed, told

IB = "network/hcas/MT4129 InfiniBand"
ETHERNET = "network/hcas/MT4125 Ethernet"
BOND = "network/interfaces/bond/mlx5_core"


def test_network_of_healthy_fleets_raises_nothing() -> None:
    """Other names, addresses, GUIDs and places on the bus."""
    for names in (("twin-a", "twin-b"), ("slurm-a", "slurm-b"), ("pod-a", "pod-b"), ("roce-h100",)):
        assert [] == told([node_of(name) for name in names]), names


def test_node_without_its_adapters_is_one_error() -> None:
    """The selection, the tree of PCI devices and the interfaces follow."""
    *alike, odd = fleet("twin-a")
    odd = edited(odd, IB, GONE)
    odd = edited(odd, "network/interfaces/infiniband", GONE)
    odd = edited(odd, "network/selection/NCCL_IB_HCA/matched", 1)
    odd = edited(odd, "topology/nics", [])
    (finding,) = findings([*alike, odd])
    assert ("EA400", "error", ("n3",)) == (finding.rule, finding.severity, finding.nodes)
    assert ("n3: 0 ports of MT4129 InfiniBand",) == finding.evidence
    assert 3 == len(finding.following)


def test_missing_card_is_counted() -> None:
    """Seven of eight."""
    nodes = odd_of("twin-a", (f"{IB}/cards", 7), (f"{IB}/ports", 7), (f"{IB}/active", 7))
    (finding,) = findings(nodes)
    assert ("EA400", "error", ("n3: 7 ports of MT4129 InfiniBand",)) == (
        finding.rule,
        finding.severity,
        finding.evidence,
    )


def test_ethernet_adapter_missing_beside_infiniband_is_a_warning() -> None:
    """The rails are all there."""
    assert [("EA400", "warning", ("n3",))] == told(odd_of("twin-a", (ETHERNET, GONE)))


def test_other_link_layer_is_named_as_such() -> None:
    """A ConnectX card that was switched to Ethernet."""
    *alike, odd = fleet("slurm-a")
    group = mapping(odd.sections["network"].facts["hcas"])["MT4123 InfiniBand"]
    odd = edited(edited(odd, "network/hcas/MT4123 InfiniBand", GONE), "network/hcas/MT4123 Ethernet", group)
    found = findings([*alike, odd])
    assert [("EA400", "error", "link layer of HCAs differs")] == [
        (each.rule, each.severity, each.message) for each in found
    ]


def test_adapters_that_were_not_seen_on_a_node_are_no_missing_ones() -> None:
    """What is null nobody saw: only EA299 says that the facts differ."""
    assert ["EA299"] == [rule for rule, _, _ in told(odd_of("slurm-a", ("network/hcas", None)))]


def test_port_that_is_down_is_one_error_with_its_name(tmp_path: Path) -> None:
    """Read by the probe: the count of active ports, what deviates and the selection are one finding."""
    folder = tmp_path / "slurm-a"
    shutil.copytree(NODES / "slurm-a", folder, symlinks=True)
    port = folder / "root/sys/class/infiniband/mlx5_1/ports/1"
    (port / "state").write_text("1: DOWN\n")
    (port / "phys_state").write_text("2: Polling\n")
    down = probed(folder, "down")
    (finding,) = findings([*fleet("slurm-a"), down])
    assert ("EA401", "error", ("down",), "HCA port is down") == (
        finding.rule,
        finding.severity,
        finding.nodes,
        finding.message,
    )
    assert ("down: mlx5_1:1 (port 1 of MT4123 InfiniBand) is down, polling",) == finding.evidence
    assert any(drift.path.startswith("network/selection/") for drift in finding.following)


def test_port_that_is_up_on_one_node_alone_is_a_warning() -> None:
    """The others have it down as well: it was cabled there, and nothing is wrong with that node."""
    nodes = [edited(one, f"{IB}/devices/7", {"state": "down, polling"}) for one in fleet("twin-a")]
    nodes = [edited(one, f"{IB}/active", 7) for one in nodes]
    odd = edited(edited(nodes[2], f"{IB}/devices/7", GONE), f"{IB}/active", 8)
    assert [("EA401", "warning", ("n3",))] == told([*nodes[:2], odd])


@pytest.mark.parametrize(
    ("changes", "rule", "severity", "message"),
    [
        ([("network/interfaces/physical/mlx5_core/each/mtu", 1500)], "EA402", "error", "MTU differs"),
        ([(f"{ETHERNET}/each/active_mtu", 1024)], "EA402", "error", "MTU differs"),
        (
            [(f"{BOND}/each/mtu", 1500), (f"{ETHERNET}/each/active_mtu", 1024)],
            "EA402",
            "error",
            "MTU differs",
        ),
        ([(f"{IB}/each/rate", "200 Gb/sec (4X HDR)")], "EA403", "error", "HCA rate differs"),
        ([(f"{IB}/devices/3", {"rate": "100 Gb/sec (1X NDR)"})], "EA403", "error", "HCA rate differs"),
        ([(f"{IB}/each/firmware", "28.38.1002")], "EA404", "warning", "HCA firmware differs"),
        ([(f"{IB}/each/board", "MT_0000000000")], "EA404", "warning", "HCA board differs"),
        ([("network/ofed", "OFED-internal-23.10-0.5.5")], "EA405", "warning", "OFED differs"),
        ([("network/modules/mlx5_ib", "23.10")], "EA405", "warning", "network drivers differ"),
        ([("network/modules/mlx_compat", GONE)], "EA405", "warning", "network drivers differ"),
        (
            [("network/interfaces/physical/igb", GONE), ("network/modules/igb", GONE)],
            "EA424",
            "warning",
            "interfaces differ",
        ),
        (
            [("network/interfaces/infiniband/mlx5_core/count", 7)],
            "EA424",
            "warning",
            "number of interfaces differs",
        ),
        (
            [
                (f"{BOND}/each/speed_mbps", 25000),
                ("network/selection/NCCL_SOCKET_IFNAME/each/speed_mbps", 25000),
            ],
            "EA424",
            "warning",
            "speed of interfaces differs",
        ),
        ([(f"{BOND}/each/members_up", 1)], "EA422", "warning", "member of a bond is down"),
    ],
)
def test_fact_of_the_network_that_differs_on_one_node(
    changes: Any, rule: str, severity: str, message: str
) -> None:
    """One finding each, and what follows with it."""
    (finding,) = findings(odd_of("twin-a", *changes))
    assert (rule, severity, ("n3",), message) == (
        finding.rule,
        finding.severity,
        finding.nodes,
        finding.message,
    )


def test_firmware_that_differs_beside_a_port_that_is_down_is_told_too() -> None:
    """Two causes, two findings."""
    nodes = odd_of(
        "twin-a",
        (f"{IB}/devices/3", {"state": "down, polling"}),
        (f"{IB}/active", 7),
        (f"{IB}/each/firmware", "28.38.1002"),
    )
    assert ["EA401", "EA404"] == [rule for rule, _, _ in told(nodes)]


def test_interface_that_is_down_is_a_warning_and_an_error_where_it_is_chosen() -> None:
    """The bond has lost its carrier with its member."""
    down = [("network/interfaces/physical/igb/devices/0", {"state": "down"})]
    gone = [("network/interfaces/physical/igb/each/speed_mbps", GONE)]
    chosen = [("network/selection/NCCL_SOCKET_IFNAME/matched", 0)]
    assert [("EA420", "warning", ("n3",))] == told(odd_of("twin-a", *down, *gone))
    assert [("EA420", "error", ("n3",))] == told(odd_of("twin-a", *down, *gone, *chosen))


def test_interfaces_that_differ_say_what_is_there_and_hide_no_setting_that_matches_nothing() -> None:
    """The card of the network that a variable names is gone."""
    gone = [("network/interfaces/physical/igb", GONE), ("network/modules/igb", GONE)]
    chosen = [("network/selection/NCCL_SOCKET_IFNAME/matched", 0)]
    found = findings(odd_of("twin-a", *gone, *chosen))
    assert [("EA475", "error"), ("EA424", "warning")] == [(one.rule, one.severity) for one in found]
    there = "n3: 1 bond of mlx5_core, 8 infiniband of mlx5_core, 2 physical of mlx5_core"
    assert (there,) == found[1].evidence


def test_interface_that_is_slow_is_named() -> None:
    """One of that driver, or one of several."""
    (bond,) = findings(odd_of("twin-a", (f"{BOND}/each/speed_mbps", 25000)))
    slow = ("network/interfaces/physical/mlx5_core/devices/1", {"speed_mbps": 25000})
    (member,) = findings(odd_of("twin-a", slow))
    assert [1, 1] == [len(one.evidence) for one in (bond, member)]
    assert ["n3: bond", "n3: one of "] == [bond.evidence[0][:8], member.evidence[0][:11]]


def test_bond_with_a_member_down_on_all_nodes_is_a_warning() -> None:
    """No difference tells it; one finding for all nodes."""
    nodes = [edited(one, f"{BOND}/each/members_up", 1) for one in fleet("twin-a")]
    (finding,) = findings(nodes)
    assert ("EA421", "warning", ("n1", "n2", "n3"), "only 1 of 2 members of a bond are up") == (
        finding.rule,
        finding.severity,
        finding.nodes,
        finding.message,
    )


ROW = {"kind": "physical", "driver": "mlx5_core", "up": True}


@pytest.mark.parametrize(
    ("second", "taken", "expected"),
    [
        ({**ROW, "addresses": ["10.0.0.2/24"]}, ["eth0"], [("EA423", "info", ("pod-a",))]),
        ({**ROW, "addresses": ["10.0.0.2/24"]}, ["eth0", "eth1"], [("EA423", "warning", ("pod-a",))]),
        ({**ROW, "addresses": ["10.0.1.2/24"]}, ["eth0", "eth1"], []),
        ({**ROW, "addresses": ["10.0.0.2/32", "fe80::2/64", "?"]}, ["eth0"], []),
        ({**ROW, "addresses": ["10.0.0.2/24"], "up": False}, ["eth0"], []),
    ],
)
def test_two_interfaces_in_one_subnet(second: Dict[str, Any], taken: Any, expected: Any) -> None:
    """A warning only where NCCL takes both; single, link-local and idle addresses do not count."""
    rows = {"eth0": {**ROW, "addresses": ["10.0.0.1/24", "fe80::1/64"]}, "eth1": second}
    one = edited(node_of("pod-a"), "network/interfaces", rows, notes=True)
    one = edited(one, "network/selection/NCCL_SOCKET_IFNAME/names", taken, notes=True)
    assert expected == told([one])
