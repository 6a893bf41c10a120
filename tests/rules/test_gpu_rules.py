"""EA300 to EA309: GPUs that are not the same on all nodes, or not on all cards of one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List

import pytest

from envaudit.rules import Policy
from tests.diff.nodes import fingerprint
from tests.rules.gpunodes import Fakes, brief, found, words

# What the bus of the fixtures, where all cards are, says of a card that the driver has lost.
BUS = ("EA310",)
A100 = {"product": "NVIDIA A100-SXM4-80GB", "compute_capability": "8.0", "memory_bytes": 85899345920}


@pytest.mark.parametrize(
    "fixture",
    [
        *("healthy-h100", "twin-a", "twin-b", "pod-a", "pod-b", "slurm-a", "slurm-b", "roce-h100"),
        *("cpu-only", "rocm-mi300", "ngc-cuda-compat", "conda-static-nccl", "wsl", "jetson"),
        "container-small-shm",
    ],
)
def test_gpus_of_a_healthy_node_raise_nothing(fakes: Fakes, fixture: str) -> None:
    """No alarm on a node that is well, whatever it is."""
    assert [] == found([fakes.node("node01", fixture)])


def test_gpus_of_twins_raise_nothing(fakes: Fakes) -> None:
    """Three machines of one kind, with serials, temperatures and counts of their own."""
    assert [] == found([fakes.node(name, name) for name in ("healthy-h100", "twin-a", "twin-b")])


def test_gpu_count_that_differs_is_an_error_with_both_numbers(fakes: Fakes) -> None:
    """The node that has fewer is named; what it may see follows."""
    nodes = [*fakes.nodes(["a", "b"]), fakes.node("c", system={"count": 1})]
    (finding,) = found(nodes)
    assert ("EA300", "error", ("c",), "GPU count differs") == (*brief([finding])[0], finding.message)
    assert [2, 1] == [group.value for group in finding.drifts[0].groups]


def test_node_whose_driver_counts_no_gpu_has_no_other_model(fakes: Fakes) -> None:
    """All cards are gone: that they are no cards of the others' model is not another fault."""
    bare = fakes.node("c", system={"count": 0})
    gpu = bare.sections["gpu"]
    without = replace(gpu, facts={**gpu.facts, "each": {}, "devices": {}})
    nodes = [*fakes.nodes(["a", "b"]), replace(bare, sections={**bare.sections, "gpu": without})]
    assert [("EA300", "error", ("c",))] == brief(found(nodes, beside=BUS))
    silenced = Policy(levels={"EA300": "off"})
    assert [("EA301", "error", ("c",))] == brief(found(nodes, silenced, beside=BUS))


def test_gpu_count_of_a_node_whose_card_fell_off_says_so(fakes: Fakes) -> None:
    """The bus has the card, the driver has lost it: one cause, one finding."""
    gone = {"/proc/driver/nvidia/gpus/0000:2b:00.0": None}
    nodes = [*fakes.nodes(["a", "b"]), fakes.node("c", system={"count": 1}, files=gone)]
    (finding,) = found(nodes)
    assert ("EA300", ("c",)) == (finding.rule, finding.nodes)
    assert ("a GPU fell off the bus: 2 on the PCI bus, and the driver has 1",) == finding.evidence


def test_node_without_gpus_among_others_is_an_error_and_no_matter_of_another_role(fakes: Fakes) -> None:
    """A head node has none on purpose: then it has a role."""
    nodes = [*fakes.nodes(["a", "b"]), fakes.node("head", "cpu-only")]
    (finding,) = found(nodes)
    assert ("EA300", "error", ("head",)) == brief([finding])[0]
    assert "no GPU is seen, and other nodes have some" == finding.message


def test_gpu_model_that_differs_is_one_error_with_all_that_follows(fakes: Fakes) -> None:
    """Another card has other memory, clocks and firmware: one finding."""
    odd = fakes.node("c", facts={"*": {**A100, "vbios": "92.00.45.00.03", "power_limit_mw": 400000}})
    (finding,) = found([*fakes.nodes(["a", "b"]), odd])
    assert ("EA301", "error", ("c",), "GPU model differs") == (*brief([finding])[0], finding.message)
    assert ["gpu/each/product"] == [drift.path for drift in finding.drifts]
    assert "gpu/each/vbios" in [drift.path for drift in finding.following]


def test_gpu_model_of_one_card_is_an_error_beside_other_nodes(fakes: Fakes) -> None:
    """The card stands in a row of its own."""
    (finding,) = found([*fakes.nodes(["a", "b"]), fakes.node("c", facts={"1": A100})])
    assert ("EA308", "error", ("c",)) == brief([finding])[0]


def test_gpu_models_mixed_on_purpose_are_a_warning(fakes: Fakes) -> None:
    """All nodes have the same two cards: each is told that they differ, once for all."""
    nodes = fakes.nodes(["a", "b"], facts={"1": A100})
    (finding,) = found(nodes)
    assert ("EA308", "warning", ("a", "b")) == brief([finding])[0]
    assert ("GPU 0: NVIDIA H100 80GB HBM3", "GPU 1: NVIDIA A100-SXM4-80GB") == finding.evidence


def test_gpu_memory_that_differs_by_itself_is_an_error(fakes: Fakes) -> None:
    """One model, one driver, less memory."""
    odd = fakes.node("c", facts={"*": {"memory_bytes": 42 << 30}})
    assert [("EA305", "error", ("c",))] == brief(found([*fakes.nodes(["a", "b"]), odd]))


def test_gpu_ecc_mode_that_differs_takes_its_memory_along(fakes: Fakes) -> None:
    """GDDR cards keep the codes in their memory."""
    odd = fakes.node(
        "c", facts={"*": {"ecc": "disabled", "ecc_pending": "disabled", "memory_bytes": 91 << 30}}
    )
    (finding,) = found([*fakes.nodes(["a", "b"]), odd])
    assert ("EA306", "warning", ("c",)) == brief([finding])[0]
    assert ["gpu/each/ecc_pending", "gpu/each/memory_bytes"] == [one.path for one in finding.following]


def test_mig_on_one_node_is_one_error(fakes: Fakes) -> None:
    """The slices follow from the mode, and the warning that MIG is on is not told besides."""
    on = {"mig": "enabled", "mig_pending": "enabled", "mig_instances": {"3g.40gb": 2}}
    (finding,) = found([*fakes.nodes(["a", "b"]), fakes.node("c", facts={"*": on})])
    assert ("EA302", "error", ("c",), "MIG mode differs") == (*brief([finding])[0], finding.message)


def test_mig_on_one_card_of_one_node_is_an_error(fakes: Fakes) -> None:
    """Its row says it, and no other finding repeats it."""
    on = {"mig": "enabled", "mig_pending": "enabled", "mig_instances": {"3g.40gb": 2}}
    (finding,) = found([*fakes.nodes(["a", "b"]), fakes.node("c", facts={"1": on})])
    assert ("EA307", "error", "MIG is enabled on GPU 1 alone") == words([finding])[0]


@pytest.mark.parametrize(
    ("facts", "rule", "message"),
    [
        ({"vbios": "96.00.89.00.99"}, "EA303", "GPU VBIOS differs"),
        ({"inforom": "G520.0200.00.06"}, "EA303", "GPU InfoROM differs"),
        ({"power_limit_mw": 600000}, "EA304", "GPU power limit differs"),
        (
            {"clock_application_graphics_mhz": 1500, "power_limit_mw": 600000},
            "EA304",
            "GPU clock application graphics, power limit differ",
        ),
    ],
)
def test_gpu_setting_that_differs_is_a_warning(
    fakes: Fakes, facts: Dict[str, Any], rule: str, message: str
) -> None:
    """On all cards of one node."""
    findings = found([*fakes.nodes(["a", "b"]), fakes.node("c", facts={"*": facts})])
    assert [(rule, "warning", message)] == words(findings)
    assert ("c",) == findings[0].nodes


def test_gpu_of_another_vbios_after_a_repair_is_one_remark_for_all_nodes(fakes: Fakes) -> None:
    """Each node with what its cards have."""
    nodes = [
        fakes.node("a"),
        fakes.node("b", facts={"1": {"vbios": "96.00.99.00.01"}}),
        fakes.node("c", facts={"1": {"inforom": "G520.0200.00.06"}}),
    ]
    (finding,) = found(nodes)
    assert ("EA309", "info", ("b", "c")) == brief([finding])[0]
    assert "b: GPU 1 has VBIOS 96.00.99.00.01, others have 96.00.89.00.01" == finding.evidence[0]


def test_gpu_set_otherwise_than_its_neighbours_is_a_warning_once(fakes: Fakes) -> None:
    """Told of the node, not again as a difference between nodes."""
    nodes = [*fakes.nodes(["a", "b"]), fakes.node("c", facts={"1": {"power_limit_mw": 500000}})]
    (finding,) = found(nodes)
    assert ("EA307", "warning", ("c",)) == brief([finding])[0]
    assert "GPU 1 of the node: other power limit" == finding.message
    assert ("GPU 1: power limit 500000, others have 700000",) == finding.evidence


def test_gpus_set_otherwise_on_several_nodes_are_told_of_each(fakes: Fakes) -> None:
    """Rows that are not the same are one difference without values; nothing is lost."""
    nodes = [
        fakes.node("a"),
        fakes.node("b", facts={"1": {"power_limit_mw": 500000}}),
        fakes.node("c", facts={"1": {"clock_max_sm_mhz": 1000}}),
    ]
    assert [("EA307", ("b",)), ("EA307", ("c",))] == [(one.rule, one.nodes) for one in found(nodes)]


def test_amd_gpus_are_compared_too(fakes: Fakes) -> None:
    """Another architecture and another count on one node each."""

    def node(name: str, count: int = 8, gfx: str = "gfx942") -> Any:
        amd = {"driver": "6.8.5", "count": count, "each": {"gfx": gfx}, "devices": {}}
        return fingerprint(name, gpu={"amd": amd})

    nodes: List[Any] = [*(node(name) for name in "abc"), node("d", count=7), node("e", gfx="gfx90a")]
    assert [("EA300", ("d",)), ("EA301", ("e",))] == [(one.rule, one.nodes) for one in found(nodes)]


@pytest.mark.parametrize(
    "gpu",
    [
        {"count": "8", "each": [], "devices": {"x": 1, "0": 3}},
        {"count": 10**9, "each": {"product": 3, "fabric_state": 1, "nvlinks": "x"}},
        {"count": 2, "devices": {"99999": {}}, "inventory": 3, "visible": [], "fabric_manager": "x"},
        {"amd": 3, "driver": 5, "module": [], "nvml": {}, "cuda": 12},
    ],
)
def test_gpu_rules_take_any_shape(gpu: Dict[str, Any]) -> None:
    """A node that answers nonsense ends no run."""
    nodes = [
        fingerprint("a", gpu=gpu, torch={"cuda": 3, "architectures": [1, "sm_"]}, cuda={"libcuda": "x"}),
        fingerprint("b", gpu={"count": 8}, torch={"cuda": "12.4", "architectures": "x"}, cuda={}),
    ]
    assert all(one.rule for one in found(nodes, Policy(profile="strict"), gate=True))
