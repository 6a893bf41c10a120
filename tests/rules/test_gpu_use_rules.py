"""EA320 to EA328: whether a launch can use the GPUs, and has them for itself."""

from __future__ import annotations

from typing import Any, Dict, List

import pytest

from envaudit.rules import Policy
from envaudit.rules.policy import Waiver
from tests.rules.gpunodes import Fakes, brief, found, words

STRANGER = {
    "pid": 4711,
    "kind": "compute",
    "user": "bob",
    "name": "python",
    "memory_bytes": 12 << 30,
    "own": False,
}
ALL = {"CUDA_VISIBLE_DEVICES": None}


def taken(**changes: Any) -> Dict[str, Any]:
    """Notes of a GPU on which one process runs."""
    return {"1": {"processes": [{**STRANGER, **changes}]}}


def test_busy_gpu_is_a_remark_and_an_error_before_a_launch(fakes: Fakes) -> None:
    """With the process, its owner and what it has."""
    node = fakes.node("a", notes=taken(), environ=ALL)
    (finding,) = found([node])
    assert ("EA320", "info", "GPU 1 is in use already") == words([finding])[0]
    assert ("GPU 1: python of bob, pid 4711, 12.0 GiB",) == finding.evidence
    assert [("EA320", "error", ("a",))] == brief(found([node], gate=True))


@pytest.mark.parametrize(
    "changes",
    [
        {"own": True},
        {"name": "nvidia-cuda-mps-server"},
        {"name": "nvidia-cuda-mps"},
        {"kind": "graphics", "name": "Xorg"},
        {"kind": "compute+graphics", "name": "gnome-shell"},
    ],
)
def test_busy_gpu_is_fine_where_it_is_ones_own_or_a_service(fakes: Fakes, changes: Dict[str, Any]) -> None:
    """The own tree, the MPS server, a display."""
    assert [] == found([fakes.node("a", notes=taken(**changes), environ=ALL)], gate=True)


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        ("0", []),
        ("1", ["EA320"]),
        ("GPU-1a2b3c4d-0000-4000-8000-000000000000", []),
        ("GPU-1a2b3c4d-0000-4000-8000-000000000001", ["EA320"]),
    ],
)
def test_busy_gpu_outside_the_allocation_is_fine(fakes: Fakes, variable: str, expected: List[str]) -> None:
    """By number and by UUID."""
    node = fakes.node("a", notes=taken(), environ={"CUDA_VISIBLE_DEVICES": variable})
    assert expected == [one.rule for one in found([node], gate=True)]


def test_busy_gpus_of_many_nodes_are_one_finding(fakes: Fakes) -> None:
    """Each line names its node."""
    nodes = [fakes.node(name, notes=taken(pid=index), environ=ALL) for index, name in enumerate("ab")]
    (finding,) = found(nodes)
    assert ("a", "b") == finding.nodes
    assert "b: GPU 1: python of bob, pid 1, 12.0 GiB" == finding.evidence[1]


def test_memory_taken_by_nobody_is_a_warning_beyond_a_gibibyte(fakes: Fakes) -> None:
    """The limit is the policy's."""
    node = fakes.node("a", notes={"1": {"memory_hidden_bytes": 3 << 29}}, environ=ALL)
    (finding,) = found([node])
    assert ("EA321", "warning", "GPU 1: memory in use, and no process that has it") == words([finding])[0]
    assert ("GPU 1: 1.5 GiB",) == finding.evidence
    assert [] == found([node], Policy(thresholds={"EA321": {"hidden_bytes": 2 << 30}}))


@pytest.mark.parametrize(
    ("facts", "notes"),
    [
        ({}, {"memory_hidden_bytes": 1 << 30}),
        ({"addressing": "ats"}, {"memory_hidden_bytes": 40 << 30}),
        (
            {},
            {"memory_hidden_bytes": 40 << 30, "processes": [{**STRANGER, "memory_bytes": None, "own": True}]},
        ),
    ],
)
def test_memory_that_may_be_somebodys_raises_nothing(
    fakes: Fakes, facts: Dict[str, Any], notes: Dict[str, Any]
) -> None:
    """A process whose size is not told, memory that the processor addresses, and up to the limit."""
    assert [] == found([fakes.node("a", facts={"*": facts}, notes={"1": notes}, environ=ALL)])


def test_compute_mode_is_a_warning_on_all_nodes_and_an_error_on_one(fakes: Fakes) -> None:
    """One finding either way."""
    exclusive = {"*": {"compute_mode": "exclusive_process"}}
    odd = fakes.node("c", facts=exclusive)
    assert [("EA322", "error", ("c",))] == brief(found([*fakes.nodes(["a", "b"]), odd]))
    findings = found([odd])
    assert [("EA323", "warning", "both GPUs: compute mode is exclusive process")] == words(findings)


def test_persistence_off_is_a_warning_where_there_is_such_a_mode(fakes: Fakes) -> None:
    """Once, whatever the other nodes have; not in a virtual GPU, and not where it is not told."""
    off = {"persistence": "disabled"}
    findings = found([*fakes.nodes(["a", "b"]), fakes.node("c", facts={"*": off})])
    assert [("EA324", "warning", ("c",))] == brief(findings)
    assert [] == found([fakes.node("d", facts={"*": {**off, "virtualization": "vgpu"}})])
    assert [] == found([fakes.node("e", facts={"*": {"persistence": None}})])
    assert [] == found([fakes.node("f", "wsl", facts={"*": off})])


def test_mig_is_a_warning_with_its_slices(fakes: Fakes) -> None:
    """Two GPUs, each cut in two: counted apart."""
    node = fakes.node("a", "a100-mig")
    (finding,) = found([node])
    assert ("EA325", "warning", "MIG is enabled on both GPUs") == words([finding])[0]
    assert ("GPU 0: 2 x 3g.40gb", "GPU 1: 2 x 3g.40gb") == finding.evidence
    assert 2 == node.sections["gpu"].facts["count"]


def test_mig_on_one_of_two_nodes_is_an_error(fakes: Fakes) -> None:
    """Without a majority too; a variable that names a slice leaves no GPU where there is none."""
    off = {"mig": "disabled", "mig_pending": "disabled", "mig_instances": None}
    nodes = [fakes.node("a", "a100-mig"), fakes.node("b", "a100-mig", facts={"*": off})]
    assert [("EA302", "error", ("a", "b")), ("EA326", "warning", ("b",))] == brief(found(nodes))


@pytest.mark.parametrize("value", ["", "-1", "7"])
def test_variable_that_hides_all_gpus_is_a_warning(fakes: Fakes, value: str) -> None:
    """Empty, or no GPU of the node."""
    (finding,) = found([fakes.node("a", environ={"CUDA_VISIBLE_DEVICES": value})])
    message = "0 of 2 GPUs visible: CUDA_VISIBLE_DEVICES hides them"
    assert ("EA326", "warning", message) == words([finding])[0]


@pytest.mark.parametrize(
    ("value", "severity", "message"),
    [
        ("1", "warning", "another number of GPUs is visible"),
        ("0,1", "info", "the visible GPUs are named in another way"),
    ],
)
def test_variable_of_one_node_is_one_finding_with_its_text(
    fakes: Fakes, value: str, severity: str, message: str
) -> None:
    """How many, in which form, by which variable: all of it is one cause."""
    odd = fakes.node("c", environ={"CUDA_VISIBLE_DEVICES": value})
    findings = found([*fakes.nodes(["a", "b"], environ=ALL), odd])
    assert [("EA328", severity, message)] == words(findings)
    assert (("c",), (f"c: CUDA_VISIBLE_DEVICES='{value}'",)) == (findings[0].nodes, findings[0].evidence)


@pytest.mark.parametrize("others", [["a"], ["a", "b"]])
def test_variable_that_hides_all_gpus_of_one_node_takes_the_difference_along(
    fakes: Fakes, others: List[str]
) -> None:
    """Of two nodes as well, of which no majority says which is right."""
    odd = fakes.node("c", environ={"CUDA_VISIBLE_DEVICES": ""})
    findings = found([*fakes.nodes(others, environ=ALL), odd])
    assert [("EA326", "warning", ("c",))] == brief(findings)
    told = {drift.path for drift in findings[0].following}
    assert {"gpu/visible/count", "gpu/visible/form", "gpu/visible/variable"} == told


@pytest.mark.parametrize(
    "policy",
    [
        Policy(levels={"EA326": "off"}),
        Policy(levels={"EA326": "info"}),
        Policy(waivers=(Waiver("EA326", "2027-01-31", "a login node", "ops"),), today="2026-11-30"),
    ],
)
def test_visible_gpus_that_differ_are_told_where_their_cause_is_accepted(
    fakes: Fakes, policy: Policy
) -> None:
    """Nobody has accepted that."""
    odd = fakes.node("c", environ={"CUDA_VISIBLE_DEVICES": ""})
    findings = found([*fakes.nodes(["a", "b"], environ=ALL), odd], policy)
    assert ("EA328", "warning", ("c",)) in brief(findings)


def test_uvm_that_is_missing_is_an_error_and_one_not_seen_is_none(fakes: Fakes) -> None:
    """A container without the device files proves nothing."""
    findings = found([fakes.node("a", files={"/dev/nvidia-uvm": None})])
    assert [("EA327", "error", "/dev/nvidia-uvm is missing")] == words(findings)
    hidden = {"/dev/nvidia-uvm": None, "/dev/nvidiactl": None, "/proc/driver/nvidia": None}
    assert "EA327" not in [one.rule for one in found([fakes.node("b", files=hidden)])]
