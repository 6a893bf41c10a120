"""EA100 to EA103: memory, processors and distributions that are not the same on all nodes."""

from __future__ import annotations

from typing import List

import pytest

from envaudit.model import Fingerprint
from envaudit.rules import Policy
from tests.rules.fleets import edited, findings, fleet, node_of, told

TIB = 1 << 40


def with_memory(*sizes: int) -> List[Fingerprint]:
    """Nodes that differ in nothing but their memory."""
    nodes = fleet("slurm-a", len(sizes))
    return [edited(one, "host/memory_bytes", size, notes=True) for one, size in zip(nodes, sizes)]


def test_hosts_of_healthy_fleets_raise_nothing() -> None:
    """Two twins differ in some pages of memory."""
    for pair in (("twin-a", "twin-b"), ("slurm-a", "slurm-b"), ("pod-a", "pod-b")):
        assert [] == told([node_of(name) for name in pair]), pair


def test_memory_of_one_node_that_differs_is_a_warning() -> None:
    """A module of 64 GiB that failed."""
    (finding,) = findings(with_memory(2 * TIB, 2 * TIB, 2 * TIB - (64 << 30)))
    assert ("EA100", "warning", ("n3",)) == (finding.rule, finding.severity, finding.nodes)
    assert ("n3: 1.9 TiB; the median of 3 is 2 TiB",) == finding.evidence


def test_memory_of_two_nodes_names_both() -> None:
    """Nobody can tell which of two is right."""
    assert [("EA100", "warning", ("n1", "n2"))] == told(with_memory(2 * TIB, TIB))


def test_memory_is_judged_within_a_role_and_by_the_policy() -> None:
    """A head node has less, and a site may allow more."""
    nodes = with_memory(2 * TIB, 2 * TIB, TIB)
    assert [] == told(nodes, Policy(roles={"n3": "head"}))
    assert [] == told(nodes, Policy(thresholds={"EA100": {"percent": 60}}))


def test_memory_that_was_not_seen_raises_nothing() -> None:
    """A note that is null is no amount."""
    nodes = with_memory(2 * TIB, 2 * TIB, TIB)
    unseen = edited(nodes[2], "host/memory_bytes", None, notes=True)
    assert [] == told([*nodes[:2], unseen])


def test_intel_beside_amd_is_a_warning_that_takes_the_wiring_along() -> None:
    """The counts of processors, and the tree of PCI devices, follow."""
    nodes = fleet("twin-a")
    odd = edited(nodes[2], "host/cpu/model", "AMD EPYC 9654 96-Core Processor")
    odd = edited(odd, "host/cpu/cores", 192)
    odd = edited(odd, "topology/gpus", [])
    (finding,) = findings([*nodes[:2], odd])
    assert ("EA101", "warning", ("n3",)) == (finding.rule, finding.severity, finding.nodes)
    assert ["host/cpu/cores", "topology/gpus"] == [drift.path for drift in finding.following]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("model", "Intel(R) Xeon(R) Platinum 8468", "processor differs"),
        ("cores", 3, "number of cores differs"),
        ("numa_nodes", 17, "number of NUMA nodes differs"),
    ],
)
def test_processors_of_one_vendor_that_differ(key: str, value: object, message: str) -> None:
    """Another model, SMT or another NUMA setting of the firmware."""
    nodes = fleet("twin-a")
    (finding,) = findings([*nodes[:2], edited(nodes[2], f"host/cpu/{key}", value)])
    assert ("EA102", "warning", ("n3",), message) == (
        finding.rule,
        finding.severity,
        finding.nodes,
        finding.message,
    )


def test_another_distribution_is_one_warning_that_takes_its_kernel_along() -> None:
    """One node was installed from another image: five facts of the host, and one cause."""
    nodes = fleet("twin-a")
    odd = edited(nodes[2], "host/distribution", {"id": "rocky", "version": "9.4", "name": "Rocky Linux 9.4"})
    odd = edited(edited(odd, "host/kernel", "5.14.0-427.el9.x86_64"), "host/glibc", "2.34")
    (finding,) = findings([*nodes[:2], odd])
    assert ("EA103", "warning", ("n3",)) == (finding.rule, finding.severity, finding.nodes)
    assert ["host/distribution/name"] == [drift.path for drift in finding.drifts]
    assert {"host/distribution/id", "host/glibc", "host/kernel"} <= {d.path for d in finding.following}


def test_another_kernel_of_one_distribution_is_told_as_itself() -> None:
    """Nobody else's symptom."""
    nodes = fleet("twin-a")
    (finding,) = findings([*nodes[:2], edited(nodes[2], "host/kernel", "6.8.0-1")])
    assert ("EA299", "host/kernel") == (finding.rule, finding.path)
