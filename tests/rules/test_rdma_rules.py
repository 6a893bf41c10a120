"""EA430 to EA449: verbs, GIDs, lanes and GPUDirect."""

from __future__ import annotations

from typing import Any, Tuple

import pytest

from envaudit.model import Fingerprint
from tests.rules.fleets import edited, findings, fleet, node_of, odd_of, set_variable, told

IB = "network/hcas/MT4129 InfiniBand"
GID = "network/selection/roce_gid"


def with_facts(node: Fingerprint, *changes: Tuple[str, Any]) -> Fingerprint:
    """A node with other facts."""
    for path, value in changes:
        node = edited(node, path, value)
    return node


@pytest.mark.parametrize(
    ("fixture", "container", "severity"),
    [
        ("slurm-a", "none", "error"),
        ("slurm-a", "kubernetes", "warning"),
        ("roce-h100", "none", "warning"),
    ],
)
def test_adapter_without_verbs(fixture: str, container: str, severity: str) -> None:
    """A pod sees its host's cards; an Ethernet card is often there for Ethernet alone."""
    one = with_facts(node_of(fixture), ("network/verbs", False), ("host/container", container))
    assert [("EA430", severity, (fixture,))] == told([one])


def test_verbs_that_were_not_seen_raise_nothing() -> None:
    """null, and a node without adapters."""
    assert [] == told([with_facts(node_of("slurm-a"), ("network/verbs", None))])
    assert [] == told([with_facts(node_of("slurm-a"), ("network/verbs", False), ("network/hcas", {}))])


def test_verbs_of_fewer_adapters_on_one_node_are_one_error() -> None:
    """A container that was given one of two devices."""
    (finding,) = findings(odd_of("slurm-a", ("network/verbs_lacking", 1)))
    assert ("EA431", "error", ("n3",)) == (finding.rule, finding.severity, finding.nodes)
    assert "the number of HCAs without verbs differs" == finding.message


def test_verbs_on_some_nodes_only_is_one_error() -> None:
    """The difference is told, not the node as well."""
    assert [("EA431", "error", ("n3",))] == told(odd_of("slurm-a", ("network/verbs", False)))


@pytest.mark.parametrize(
    ("each", "devices", "word"),
    [
        ({"roce": 1, "family": "ipv6", "address": False}, {}, "is RoCE v1"),
        ({}, {"0": {"state": "no such GID"}}, "is not there"),
        ({"roce": 2, "family": "ipv4", "address": True}, {"5": {"roce": 1}}, "is RoCE v1"),
    ],
)
def test_gid_index_that_names_a_wrong_gid_is_an_error(each: Any, devices: Any, word: str) -> None:
    """NCCL_IB_GID_INDEX=3 where the table is another."""
    one = with_facts(node_of("roce-h100"), (f"{GID}/each", each), (f"{GID}/devices", devices))
    (finding,) = findings([one])
    assert ("EA432", "error", f"GID 3, which NCCL_IB_GID_INDEX names, {word}") == (
        finding.rule,
        finding.severity,
        finding.message,
    )


@pytest.mark.parametrize(
    ("nccl", "expected"),
    [("2.20.5", [("EA432", "warning", ("roce-h100",))]), ("2.21.5", []), (None, [])],
)
def test_gid_of_an_nccl_that_does_not_choose(nccl: Any, expected: Any) -> None:
    """Before 2.21 it is the first one; with an unknown NCCL nothing is said."""
    one = with_facts(node_of("roce-h100"), (f"{GID}/by", "own choice"), ("libraries/nccl/version", nccl))
    assert expected == told([one])


def test_gid_of_another_kind_on_one_node_is_one_error() -> None:
    """The same index, another version of RoCE: the node's own fault is not told twice."""
    (finding,) = findings(odd_of("roce-h100", (f"{GID}/each/roce", 1), (f"{GID}/each/family", "ipv6")))
    assert ("EA433", "error", ("n3",)) == (finding.rule, finding.severity, finding.nodes)
    assert ("n3: GID 3: RoCE v1, ipv6",) == finding.evidence


def test_gid_index_that_differs_and_leads_to_the_same_is_told_only() -> None:
    """Each node has its GID at another place of the table."""
    *alike, odd = fleet("roce-h100")
    assert [("EA451", "info", ("n3",))] == told([*alike, set_variable(odd, "NCCL_IB_GID_INDEX", "5")])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            [(f"{IB}/devices/3", {"rate": "200 Gb/sec (2X NDR)"})],
            "port 3 of MT4129 InfiniBand has 200 Gb/sec (2X NDR), the others 400 Gb/sec (4X NDR)",
        ),
        (
            [(f"{IB}/each/rate", "100 Gb/sec (1X NDR)")],
            "ports of MT4129 InfiniBand came up with one lane: 100 Gb/sec (1X NDR)",
        ),
    ],
)
def test_port_that_is_slower_than_it_could_be(changes: Any, message: str) -> None:
    """Slower than its siblings, or with one lane of four."""
    (finding,) = findings([with_facts(node_of("healthy-h100"), *changes)])
    assert ("EA434", "warning", message) == (finding.rule, finding.severity, finding.message)


def test_ethernet_port_of_one_lane_is_healthy() -> None:
    """25 Gb/s Ethernet has one lane."""
    path = "network/hcas/MT4125 Ethernet/each/rate"
    assert [] == told([with_facts(node_of("healthy-h100"), (path, "25 Gb/sec (1X EDR)"))])


@pytest.mark.parametrize(
    ("gdr", "severity"), [("none", "error"), ("dmabuf", "error"), ("dmabuf+peermem", "warning")]
)
def test_gpudirect_that_differs(gdr: str, severity: str) -> None:
    """A way that all have in common is only another way on some."""
    assert [("EA440", severity, ("n3",))] == told(odd_of("twin-a", ("topology/gdr", gdr)))


def test_gpudirect_that_was_not_seen_is_no_difference_of_its_own() -> None:
    """Only the rule about unknown facts speaks."""
    assert ["EA299"] == [rule for rule, _, _ in told(odd_of("twin-a", ("topology/gdr", None)))]


@pytest.mark.parametrize(
    ("nccl", "gdr", "fires"),
    [("2.22.3", "peermem", True), ("2.23.4", "peermem", False), ("2.22.3", "dmabuf+peermem", False)],
)
def test_nvidia_peermem_under_an_older_nccl(nccl: str, gdr: str, fires: bool) -> None:
    """The fake node has nvidia_peermem loaded, as the probe's note says."""
    one = with_facts(node_of("healthy-h100"), ("libraries/nccl/version", nccl), ("topology/gdr", gdr))
    assert ([("EA441", "warning", ("healthy-h100",))] if fires else []) == told([one])


def test_older_peermem_module_raises_nothing() -> None:
    """Every NCCL knows nv_peer_mem."""
    one = with_facts(node_of("healthy-h100"), ("libraries/nccl/version", "2.22.3"))
    assert [] == told([edited(one, "topology/peermem", ["nv_peer_mem"], notes=True)])


@pytest.mark.parametrize(
    ("acs", "virtualisation", "message"),
    [
        (
            {"each": "SrcValid ReqRedir CmpltRedir UpstreamFwd", "devices": {}},
            "none",
            "ACS is enabled above GPUs and NICs",
        ),
        ({"each": "off", "devices": {"gpu1": "ReqRedir"}}, "none", "ACS is enabled above gpu1"),
        ({"each": "ReqRedir", "devices": {}}, "kvm", None),
        ({"each": "SrcValid", "devices": {}}, "none", None),
        ({"each": "off", "devices": {}}, "none", None),
        (None, "none", None),
    ],
)
def test_acs(acs: Any, virtualisation: str, message: Any) -> None:
    """Bits that redirect, on bare metal; unreadable is unknown."""
    one = with_facts(node_of("healthy-h100"), ("topology/acs", acs), ("host/virtualisation", virtualisation))
    assert ([] if message is None else [("EA442", message)]) == [
        (each.rule, each.message) for each in findings([one])
    ]


@pytest.mark.parametrize(
    ("iommu", "virtualisation", "fires"), [("DMA-FQ", "none", True), ("DMA", "vm", False)]
)
def test_iommu_that_translates(iommu: str, virtualisation: str, fires: bool) -> None:
    """Told of bare metal alone; the healthy node's is passed through."""
    one = with_facts(
        node_of("healthy-h100"), ("topology/iommu", iommu), ("host/virtualisation", virtualisation)
    )
    assert ([("EA443", "info", ("healthy-h100",))] if fires else []) == told([one])


def test_wiring_that_differs_is_a_warning_with_the_links() -> None:
    """A NIC that came up with eight lanes."""
    *alike, odd = fleet("twin-a")
    nics = odd.sections["topology"].facts["nics"]
    assert isinstance(nics, list)
    nics = [*nics[:2], {**nics[2], "pcie": "x8 32 GT/s"}, *nics[3:]]
    (finding,) = findings([*alike, edited(odd, "topology/nics", nics)])
    assert ("EA444", "warning", ("n3",)) == (finding.rule, finding.severity, finding.nodes)
    assert "x8 32 GT/s" in finding.evidence[0]
