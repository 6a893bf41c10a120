"""EA125 to EA129: locked memory, /dev/shm, free space and open files."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

import pytest

from envaudit.model import Fingerprint
from envaudit.model.section import Section
from envaudit.rules import Policy
from tests.diff.nodes import fingerprint
from tests.rules.fleets import edited, findings, fleet, node_of, told

GIB = 1 << 30
HCAS = {"MT4123 InfiniBand": {"cards": 1, "ports": 1, "active": 1, "each": {}, "devices": {}}}


def node(
    name: str = "n1",
    *,
    launch: str = "slurm",
    memlock: Any = "unlimited",
    may_lock: Optional[bool] = False,
    nofile: Any = 65536,
    shm_bytes: Optional[int] = 64 * GIB,
    shm_free: int = 63 * GIB,
    tmp_free: int = 100 * GIB,
    hcas: Optional[Dict[str, Any]] = None,
    gpus: int = 8,
    storage: Optional[Dict[str, Any]] = None,
) -> Fingerprint:
    """A node that has enough of everything, but for what a test changes."""
    facts: Dict[str, Any] = {
        "memlock_bytes": {"soft": memlock, "hard": memlock},
        "nofile": {"soft": nofile, "hard": 1048576},
        "cap_ipc_lock": may_lock,
        "dev_shm_gib": None if shm_bytes is None else (shm_bytes + GIB // 2) // GIB,
    }
    notes = {"tmp_free_bytes": tmp_free, "dev_shm_free_bytes": shm_free, "dev_shm_bytes": shm_bytes}
    kept: Dict[str, Any] = {key: value for key, value in notes.items() if value is not None}
    return fingerprint(
        name,
        host={"launch": launch},
        gpu={"count": gpus},
        network={"hcas": HCAS if hcas is None else hcas},
        storage=storage or {},
        limits=Section("limits", 1, "ok", facts, kept),
    )


def test_limits_that_are_enough_raise_nothing() -> None:
    """Made by hand, and those of fake nodes that the probe has read."""
    assert [] == told([node()])
    for fixture in ("healthy-h100", "slurm-a", "roce-h100", "pod-a"):
        assert [] == told([node_of(fixture)]), fixture


@pytest.mark.parametrize(("memlock", "severity"), [(8 << 20, "error"), (2 * GIB, "warning")])
def test_memlock_that_is_finite_on_a_node_with_an_hca(memlock: int, severity: str) -> None:
    """Below a GiB nothing can be registered; above it depends on the model."""
    (finding,) = findings([node("n1", memlock=memlock), node("n2", memlock=memlock)])
    assert ("EA125", severity, ("n1", "n2")) == (finding.rule, finding.severity, finding.nodes)
    assert "no CAP_IPC_LOCK" in finding.evidence[0]


@pytest.mark.parametrize(
    "harmless", [{"may_lock": True}, {"may_lock": None}, {"hcas": {}}, {"memlock": "unlimited"}]
)
def test_memlock_without_need_or_knowledge_raises_nothing(harmless: Dict[str, Any]) -> None:
    """CAP_IPC_LOCK, no HCA, or a right that is not known."""
    assert [] == told([node(**{"memlock": 8 << 20, **harmless})])


def test_memlock_threshold_is_the_policy_s() -> None:
    """A site that trains small models says so."""
    policy = Policy(thresholds={"EA125": {"error_below_bytes": 1 << 20}})
    assert [("EA125", "warning", ("n1",))] == told([node(memlock=8 << 20)], policy)


@pytest.mark.parametrize(
    ("launch", "megabytes", "gpus", "severity"),
    [
        ("exec", 64, 2, "error"),
        ("slurm", 512, 8, "error"),
        ("inband", 512, 8, "error"),
        ("local", 64, 2, "error"),
        ("local", 512, 2, "warning"),
        ("exec", 64, 1, "warning"),
        ("exec", 512, 0, "warning"),
        ("ssh", 64, 8, "info"),
        ("ssh", 512, 8, "info"),
    ],
)
def test_small_shared_memory_by_launch_and_gpus(
    launch: str, megabytes: int, gpus: int, severity: str
) -> None:
    """What training is given matters; a session over ssh is another's."""
    size_bytes = megabytes << 20
    nodes = [node(launch=launch, shm_bytes=size_bytes, shm_free=size_bytes, gpus=gpus)]
    assert [("EA126", severity, ("n1",))] == told(nodes)


def test_shared_memory_of_a_container_is_read_by_the_probe() -> None:
    """A Docker container with its default of 64 MiB and two GPUs."""
    found = [each for each in findings([node_of("container-small-shm")]) if each.rule == "EA126"]
    assert ["/dev/shm has 64 MiB for 2 GPUs"] == [each.message for each in found]
    assert "error" == found[0].severity


def test_shared_memory_that_was_not_seen_raises_nothing() -> None:
    """No note, no judgement."""
    assert [] == told([node(shm_bytes=None)])


@pytest.mark.parametrize(
    ("changes", "severity", "message"),
    [
        ({"tmp_free": 2 * GIB}, "warning", "less than 5 GiB is free in /tmp"),
        ({"tmp_free": 0}, "error", "/tmp is full"),
        ({"shm_free": GIB // 2}, "warning", "less than 1 GiB is free in /dev/shm"),
        ({"shm_free": 4096}, "error", "/dev/shm is full"),
        ({"storage": {"tmp": {"access": "ro"}}}, "error", "/tmp is read-only"),
        ({"storage": {"root": {"access": "ro"}, "tmp": "as root"}}, "error", "/tmp is read-only"),
    ],
)
def test_space_that_is_short_or_full_or_read_only(
    changes: Dict[str, Any], severity: str, message: str
) -> None:
    """One finding a place, for all nodes of which it holds."""
    found = findings([node("n1", **changes), node("n2", **changes), node("n3")])
    (finding,) = [each for each in found if each.rule == "EA127"]
    assert ("EA127", severity, ("n1", "n2"), message) == (
        finding.rule,
        finding.severity,
        finding.nodes,
        finding.message,
    )
    assert message.endswith("read-only") is ("Mount /tmp writable" in finding.hint)


@pytest.mark.parametrize(("place", "key"), [("/dev/shm", "shm"), ("/tmp", "tmp")])
def test_place_that_is_read_only_on_one_node_is_one_finding(place: str, key: str) -> None:
    """That it is writable on the others says nothing more."""
    nodes = [node(name, storage={key: {"access": "rw"}}) for name in ("n1", "n2")]
    found = findings([*nodes, node("n3", storage={key: {"access": "ro"}})])
    assert [("EA127", ("n3",), f"{place} is read-only")] == [
        (each.rule, each.nodes, each.message) for each in found
    ]


def test_free_space_of_each_node_stands_in_the_evidence() -> None:
    """Nodes that differ by a file are still one finding."""
    (finding,) = findings([node("n1", tmp_free=2 * GIB), node("n2", tmp_free=GIB)])
    assert ("n1: 2 GiB free", "n2: 1 GiB free") == finding.evidence


def test_few_open_files_are_a_warning() -> None:
    """1024 is the default of many distributions."""
    (finding,) = findings([node(nofile=1024)])
    assert ("EA128", "warning", "only 1024 files may be open") == (
        finding.rule,
        finding.severity,
        finding.message,
    )
    assert [] == told([node(nofile="unlimited")])


def test_limits_that_differ_are_one_warning() -> None:
    """Open files and processes of one node."""
    (finding,) = findings([node("n1"), node("n2"), edited(node("n3"), "limits/nofile/soft", 32768)])
    assert ("EA129", "warning", ("n3",), "limit of open files differs") == (
        finding.rule,
        finding.severity,
        finding.nodes,
        finding.message,
    )


def test_shared_memory_that_differs_says_what_gives_a_container_more() -> None:
    """A pod with Docker's default beside others that were given more."""
    (finding,) = findings([node("n1"), node("n2"), node("n3", shm_bytes=64 << 20, shm_free=64 << 20)])
    assert ("EA129", "size of /dev/shm differs") == (finding.rule, finding.message)
    assert "--shm-size" in finding.hint


@pytest.mark.parametrize(("one", "other", "rules"), [(503, 504, []), (63, 64, []), (500, 512, ["EA129"])])
def test_shared_memory_that_follows_the_memory_to_the_page_is_alike(
    one: int, other: int, rules: List[str]
) -> None:
    """Half of a memory of which each firmware keeps some pages more: 503.49 and 503.51 GiB."""
    nodes = [node(f"n{number}", shm_bytes=size * GIB) for number, size in enumerate([one, other, other])]
    assert rules == [finding.rule for finding in findings(nodes)]


@pytest.mark.parametrize("far_off", [None, 128 * GIB])
def test_shared_memory_far_off_on_one_node_names_that_one_alone(far_off: Optional[int]) -> None:
    """Those that are alike within the tolerance are well; of two halves nobody can tell which is."""
    nodes = [node(f"n{place}", shm_bytes=size) for place, size in enumerate((64 * GIB, 65 * GIB, far_off))]
    assert [("EA129", ("n2",))] == [(one.rule, one.nodes) for one in findings(nodes)]
    (undecided,) = findings([*nodes, node("n3", shm_bytes=far_off)])
    assert ("EA129", ("n0", "n1", "n2", "n3")) == (undecided.rule, undecided.nodes)


def test_right_to_lock_memory_that_one_node_lacks_is_one_error_with_its_consequence() -> None:
    """The limit is everywhere as low, and matters there alone."""
    nodes = fleet("slurm-a")
    nodes = [edited(one, "limits/memlock_bytes", {"soft": 8 << 20, "hard": 8 << 20}) for one in nodes]
    (finding,) = findings([*nodes[:2], edited(nodes[2], "limits/cap_ipc_lock", False)])
    assert ("EA129", "error", ("n3",)) == (finding.rule, finding.severity, finding.nodes)
    assert ("n3: only 8 MiB of memory may be locked, and there is an HCA",) == finding.evidence


def test_memlock_that_differs_is_one_error_with_its_consequence() -> None:
    """The difference and what is wrong with the node are one cause, and one finding."""
    nodes = fleet("twin-a")
    odd = edited(nodes[2], "limits/memlock_bytes", {"soft": 8 << 20, "hard": 8 << 20})
    (finding,) = findings([*nodes[:2], odd])
    assert ("EA129", "error", ("n3",)) == (finding.rule, finding.severity, finding.nodes)
    assert ("n3: only 8 MiB of memory may be locked, and there is an HCA",) == finding.evidence


def test_node_rule_speaks_where_the_difference_is_silenced() -> None:
    """A policy that switches the differences off does not hide what is wrong."""
    nodes = [node("n1"), node("n2"), node("n3", memlock=8 << 20)]
    assert [("EA125", "error", ("n3",))] == told(nodes, Policy(levels={"EA129": "off"}))
