"""EA135 to EA137: memory, threads and processors that control groups allow."""

from __future__ import annotations

from typing import Any, List

import pytest

from envaudit.model import Fingerprint
from envaudit.rules import Policy
from tests.rules.fleets import edited, findings, fleet, node_of, told

GIB = 1 << 30
HEALTHY = ("healthy-h100", "twin-a", "pod-a", "slurm-a", "roce-h100", "a100-mig", "cpu-only", "wsl", "jetson")


def limited(node: Fingerprint, name: str, value: Any) -> Fingerprint:
    """The node with another limit of its control group."""
    return edited(node, f"limits/control_group/{name}", value, notes=True)


def with_gpus(count: int, *, launch: str = "slurm", quota: Any = "unlimited", cpus: int = 64) -> Fingerprint:
    """A node that is started with so many GPUs and so few processors."""
    node = edited(node_of("slurm-a", "n1"), "host/launch", launch)
    node = edited(edited(node, "gpu/count", 8), "gpu/visible", {"count": count, "form": "index"})
    node = edited(node, "limits/cpu_quota_millicpus", quota)
    return limited(node, "cpus", cpus)


@pytest.mark.parametrize("fixture", HEALTHY)
def test_control_groups_of_healthy_nodes_raise_nothing(fixture: str) -> None:
    """Nor do two of them, or nodes whose limit follows their memory to the page."""
    assert [] == [each for each in told(fleet(fixture)) if each[0] in ("EA135", "EA136", "EA137")]


@pytest.mark.parametrize(("one", "twin"), [("slurm-a", "slurm-b"), ("pod-a", "pod-b"), ("twin-a", "twin-b")])
def test_other_processors_and_pages_of_twins_raise_nothing(one: str, twin: str) -> None:
    """Slurm gives each node those processors that are free there."""
    assert [] == told([node_of(one), node_of(twin)])


@pytest.mark.parametrize("name", ["memory_max_bytes", "memory_high_bytes"])
def test_less_memory_on_one_node_is_a_warning_with_both_sizes(name: str) -> None:
    """A drained job's slice, or a pod of another template."""
    nodes: List[Fingerprint] = fleet("slurm-a")
    (finding,) = findings([*nodes[:2], limited(nodes[2], name, 64 * GIB)])
    assert ("EA135", "warning", ("n3",)) == (finding.rule, finding.severity, finding.nodes)
    assert ("n3: 64 GiB; the median is 900 GiB",) == finding.evidence


def test_limit_that_one_node_lacks_names_it_or_both() -> None:
    """Of two, nobody knows which is right: one keeps to its job's memory, the other has all."""
    first, second = fleet("slurm-a", 2)
    (finding,) = findings([first, limited(second, "memory_max_bytes", "unlimited")])
    assert ("EA135", ("n1", "n2")) == (finding.rule, finding.nodes)
    assert ("n1: 900 GiB", "n2: all of its 1.9 TiB, no limit") == finding.evidence


@pytest.mark.parametrize(
    "value", [None, "unlimited", 900 * GIB + 4096, 890 * GIB], ids=["unknown", "none", "a page", "near"]
)
def test_memory_that_is_alike_or_not_known_raises_nothing(value: object) -> None:
    """Without a limit on any node, all have what the machine has; EA100 compares that."""
    nodes = fleet("slurm-a")
    if value == "unlimited":
        nodes = [limited(node, "memory_max_bytes", value) for node in nodes]
    else:
        nodes[2] = limited(nodes[2], "memory_max_bytes", value)
    assert [] == told(nodes)


def test_session_over_ssh_is_not_held_against_a_launch() -> None:
    """Its control group is another."""
    nodes = fleet("slurm-a", 2)
    assert [] == told([nodes[0], edited(limited(nodes[1], "memory_max_bytes", GIB), "host/launch", "ssh")])


def test_fewer_threads_on_one_node_are_a_warning() -> None:
    """The kubelet's podPidsLimit on some nodes."""
    nodes = fleet("pod-a")
    (finding,) = findings([*nodes[:2], limited(nodes[2], "pids_max", 1024)])
    assert ("EA136", "warning", ("n3",)) == (finding.rule, finding.severity, finding.nodes)
    assert finding.evidence[0].startswith("n3: 1024; the median is ")


def test_thread_limits_that_follow_the_memory_raise_nothing() -> None:
    """The third of the kernel's threads that systemd allows a user follows the memory."""
    nodes = fleet("twin-a", 2)
    assert [] == told([limited(nodes[0], "pids_max", 54000), limited(nodes[1], "pids_max", 54017)])


@pytest.mark.parametrize(
    ("node", "message", "evidence"),
    [
        (with_gpus(8, cpus=1), "1 processor for 8 GPUs", "the processors of the control group"),
        (with_gpus(2, quota=1500, cpus=8), "1.5 processors for 2 GPUs", "a quota of the control group"),
        (with_gpus(1, quota=500), "0.5 processors for 1 GPU", "a quota of the control group"),
    ],
)
def test_fewer_processors_than_gpus_is_a_warning(node: Fingerprint, message: str, evidence: str) -> None:
    """A step without --cpus-per-task, a pod with a small CPU limit."""
    (finding,) = findings([node])
    assert ("EA137", "warning", message) == (finding.rule, finding.severity, finding.message)
    assert (evidence,) == finding.evidence


@pytest.mark.parametrize(
    "node",
    [
        with_gpus(8, cpus=8),
        with_gpus(1, cpus=1),
        with_gpus(8, cpus=1, launch="ssh"),
        with_gpus(8),
        with_gpus(8, quota=None),
        edited(with_gpus(1, cpus=8), "limits/cpus", 1),
    ],
    ids=["enough", "one of each", "ssh", "no limit", "unknown", "a task of several"],
)
def test_processors_that_are_enough_or_not_the_launchs_raise_nothing(node: Fingerprint) -> None:
    """One task of several is bound to its own processor; the others have theirs."""
    assert [] == told([node])


def renamed(nodes: List[Fingerprint]) -> List[Fingerprint]:
    """The same as n0, n1, ..."""
    return [
        Fingerprint(f"n{number}", one.source, one.captured_at, one.tool, one.sections)
        for number, one in enumerate(nodes)
    ]


def test_quota_of_one_node_is_one_finding_with_its_consequence() -> None:
    """The difference says what follows from it; where it is off, the node's own rule speaks."""
    quotas = (64000, 64000, 4000)
    nodes = renamed([edited(with_gpus(8), "limits/cpu_quota_millicpus", quota) for quota in quotas])
    (finding,) = findings(nodes)
    assert ("EA129", ("n2",), "limit of CPU time differs") == (finding.rule, finding.nodes, finding.message)
    assert ("n2: 4 processors for 8 GPUs",) == finding.evidence
    assert [("EA137", "warning", ("n2",))] == told(nodes, Policy(levels={"EA129": "off"}))


def test_processors_of_one_node_are_one_finding_with_their_consequence() -> None:
    """A step that was given one processor on one node."""
    nodes = renamed([edited(with_gpus(8, cpus=cpus), "limits/cpus", cpus) for cpus in (64, 64, 1)])
    (finding,) = findings(nodes)
    assert ("EA129", ("n2",), "limit of processors differs") == (
        finding.rule,
        finding.nodes,
        finding.message,
    )
    assert ("n2: 1 processor for 8 GPUs",) == finding.evidence


def test_number_of_processors_that_differs_is_a_limit_that_differs() -> None:
    """A launch that binds on one node alone."""
    nodes = fleet("twin-a")
    (finding,) = findings([*nodes[:2], edited(nodes[2], "limits/cpus", 1)])
    assert ("EA129", "warning", "limit of processors differs") == (
        finding.rule,
        finding.severity,
        finding.message,
    )


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("limits/address_space_bytes/soft", 8 << 30, "limit of address space differs"),
        ("limits/cpu_s/hard", 3600, "limit of seconds on a processor differs"),
        ("limits/umask", "0077", "umask differs"),
    ],
)
def test_limit_of_one_node_alone_is_told_by_its_name(path: str, value: object, message: str) -> None:
    """What a shell's start-up file or limits.conf says on one node."""
    nodes = fleet("twin-a")
    (finding,) = findings([*nodes[:2], edited(nodes[2], path, value)])
    assert ("EA129", "warning", ("n3",), message) == (
        finding.rule,
        finding.severity,
        finding.nodes,
        finding.message,
    )


@pytest.mark.parametrize(
    ("path", "value", "severity"),
    [
        ("limits/nice", 10, "warning"),
        ("limits/memory_policy", "interleave", "warning"),
        ("limits/seccomp", "filter", "info"),
    ],
)
def test_what_is_no_limit_is_plain_drift(path: str, value: object, severity: str) -> None:
    """What whoever starts the work has chosen on one node alone."""
    nodes = fleet("twin-a")
    assert [("EA299", severity, ("n3",))] == told([*nodes[:2], edited(nodes[2], path, value)])
