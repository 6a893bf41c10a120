"""Fake nodes that are well: alone and beside their like, through the real probe, nothing alarms."""

from __future__ import annotations

from typing import List, Tuple

import pytest

from envaudit.diff import compare
from envaudit.model import Finding
from envaudit.rules import Evidence, judge
from tests.rules.fleets import node_of

# What is true of a fake node by its own account: 1,024 open files, a clock that nothing keeps, MIG,
# the 64 MiB that Docker gives /dev/shm.
TRUE = {
    "a100-mig": ["EA128", "EA153", "EA325"],
    "conda-static-nccl": ["EA154"],
    "cpu-only": ["EA128"],
    "jetson": ["EA128", "EA153"],
    "ngc-cuda-compat": ["EA126"],
    "rocm-mi300": ["EA154"],
    "wsl": ["EA128", "EA153"],
}

HEALTHY = (
    "a100-mig",
    "conda-static-nccl",
    "cpu-only",
    "healthy-h100",
    "jetson",
    "ngc-cuda-compat",
    "pod-a",
    "pod-b",
    "rocm-mi300",
    "roce-h100",
    "slurm-a",
    "slurm-b",
    "twin-a",
    "twin-b",
    "wsl",
)


def alarms(found: List[Finding]) -> List[Tuple[str, str]]:
    """Errors and warnings, with their messages."""
    return [(each.rule, each.message) for each in found if each.severity in ("error", "warning")]


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_node_alone_raises_no_alarm(name: str) -> None:
    """But for what a node says of itself."""
    found = list(judge(Evidence((node_of(name, "n1"),), comparing=False)))
    assert TRUE.get(name, []) == [rule for rule, _ in alarms(found)]


@pytest.mark.parametrize(
    "names",
    [("twin-a", "twin-b"), ("pod-a", "pod-b"), ("slurm-a", "slurm-b"), ("healthy-h100", "twin-a", "twin-b")],
    ids="-".join,
)
def test_alike_nodes_have_no_finding_at_all(names: Tuple[str, ...]) -> None:
    """Whatever differs by nature: names, addresses, serial numbers, counters, times."""
    nodes = [node_of(name, f"n{number}") for number, name in enumerate(names)]
    assert () == judge(Evidence(tuple(nodes), drifts=compare(nodes)))
