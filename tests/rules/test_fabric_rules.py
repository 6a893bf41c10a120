"""EA345 to EA349: the NVLink fabric, its manager, and the links of each card."""

from __future__ import annotations

from typing import Any, Dict

import pytest

from tests.rules.gpunodes import Fakes, brief, found, words

MANAGER = "/usr/bin/nv-fabricmanager"
PID = {"/run/nvidia-fabricmanager": None, "/proc/2101": None}


def test_gpu_that_has_not_joined_the_fabric_is_an_error_and_the_driver_is_not_blamed(fakes: Fakes) -> None:
    """The driver is older than torch's CUDA asks for by default, and inside minor-version compatibility."""
    node = fakes.node("a", facts={"1": {"fabric_state": "in_progress"}}, torch={"cuda": "12.6"})
    findings = found([node])
    assert [("EA345", "error", "GPU 1: fabric state in_progress"), ("EA333", "info")] == [
        words(findings)[0],
        words(findings)[1][:2],
    ]
    assert ("GPU 0: completed",) == findings[0].evidence


def test_fabric_that_ended_with_an_error_is_an_error(fakes: Fakes) -> None:
    """Completed, and its status is no success."""
    findings = found([fakes.node("a", facts={"*": {"fabric_status": 999}})])
    assert [("EA345", "error", "both GPUs: fabric state completed, status 999")] == words(findings)


def test_fabric_that_is_not_healthy_is_an_error(fakes: Fakes) -> None:
    """With the words of NVML's mask."""
    findings = found([fakes.node("a", facts={"0": {"fabric_health": ["degraded_bandwidth"]}})])
    assert [("EA346", "error", "GPU 0: the fabric reports degraded bandwidth")] == words(findings)


def test_fabric_manager_of_another_release_is_the_only_error(fakes: Fakes) -> None:
    """What did not join for want of it is told by it."""
    said = {f"{MANAGER} --version": "Fabric Manager version is : 535.183.01\n"}
    for name, state in (("a", "completed"), ("b", "not_started")):
        node = fakes.node(name, commands=said, facts={"*": {"fabric_state": state}})
        (finding,) = found([node])
        message = "the fabric manager is 535.183.01, and the driver is 550.54.15"
        assert ("EA347", "error", message) == words([finding])[0]
        assert "gpu/fabric_manager/version" == finding.path


@pytest.mark.parametrize(
    ("state", "files", "severity", "message"),
    [
        ("not_started", PID, "error", "the fabric manager is not running"),
        ("completed", PID, "warning", "the fabric manager is not running"),
        (
            "not_started",
            {**PID, MANAGER: None},
            "error",
            "the node has NVSwitches, and no fabric manager is installed",
        ),
    ],
)
def test_fabric_manager_that_does_not_run_is_an_error_unless_all_have_joined(
    fakes: Fakes, state: str, files: Dict[str, Any], severity: str, message: str
) -> None:
    """The fabric state is the truth."""
    findings = found([fakes.node("a", facts={"*": {"fabric_state": state}}, files=files)])
    assert [("EA347", severity, message)] == words(findings)


def test_fabric_manager_of_pcie_cards_is_no_matter(fakes: Fakes) -> None:
    """Without NVSwitches nothing has to run, whatever is installed."""
    none = {"/proc/driver/nvidia-nvswitch": None, "/dev/nvidia-nvswitchctl": None}
    present = {path: text for path, text in none.items() if path.startswith("/proc")}
    pcie = {"fabric_state": None, "fabric_status": None, "fabric_health": None, "nvlinks_up": 0}
    said = {f"{MANAGER} --version": "Fabric Manager version is : 535.183.01\n"}
    node = fakes.node("a", files=present, commands=said, facts={"*": pcie})
    assert [] == found([node])


@pytest.mark.parametrize(
    ("up", "severity", "message"),
    [
        ({"1": 16}, "error", "GPU 1: 16 of 18 NVLinks are up"),
        ({"*": 17}, "error", "both GPUs: 17 of 18 NVLinks are up"),
    ],
)
def test_nvlinks_down_behind_switches_are_an_error(
    fakes: Fakes, up: Dict[str, int], severity: str, message: str
) -> None:
    """All links are wired there."""
    node = fakes.node("a", facts={ordinal: {"nvlinks_up": number} for ordinal, number in up.items()})
    assert [("EA348", severity, message)] == words(found([node]))


@pytest.mark.parametrize(
    ("up", "expected"),
    [((12, 12), []), ((4, 4), []), ((0, 0), []), ((12, 8), ["GPU 1: 8 of 12 NVLinks are up"])],
)
def test_nvlinks_of_bridges_are_held_against_the_other_cards(
    fakes: Fakes, up: tuple[int, int], expected: list[str]
) -> None:
    """A bridge may use a part of the links of both."""
    facts = {str(ordinal): {"nvlinks_up": number} for ordinal, number in enumerate(up)}
    off = {"mig": "disabled", "mig_pending": "disabled", "mig_instances": None}
    whole = {"CUDA_VISIBLE_DEVICES": None}
    findings = found([fakes.node("a", "a100-mig", facts={"*": off, **facts}, environ=whole)])
    assert expected == [one.message for one in findings]
    assert {("EA348", "warning")} >= {(one.rule, one.severity) for one in findings}


def test_nvlinks_that_differ_between_nodes_are_an_error(fakes: Fakes) -> None:
    """The whole node runs at another speed."""
    odd = fakes.node("c", facts={"*": {"nvlink_mbps": 25781, "nvlink_version": "3.1"}})
    assert [("EA349", "error", ("c",))] == brief(found([*fakes.nodes(["a", "b"]), odd]))


NONE = {"fabric_state": None, "fabric_status": None, "fabric_health": None}


def test_gpu_in_no_fabric_beside_one_that_is_in_one_is_an_error(fakes: Fakes) -> None:
    """A state that is not there is no state that is fine."""
    findings = found([fakes.node("a", facts={"1": NONE})])
    assert [("EA345", "error", "GPU 1: in no fabric, and its neighbours are in one")] == words(findings)


def test_gpu_that_mig_cuts_uses_no_links(fakes: Fakes) -> None:
    """On one card, or on one node: that MIG is on is the finding, and the only one."""
    on = {"mig": "enabled", "mig_pending": "enabled", "mig_instances": {"1g.10gb": 7}}
    cut = {**on, **NONE, "nvlinks_up": 0}
    assert ["EA307"] == [one.rule for one in found([fakes.node("a", facts={"1": cut})])]
    findings = found([*fakes.nodes(["b", "c"]), fakes.node("d", facts={"*": cut})])
    assert [("EA302", "error", ("d",))] == brief(findings)


def test_node_in_no_fabric_among_others_is_an_error(fakes: Fakes) -> None:
    """On that node alone nobody can tell that there should be one."""
    odd = fakes.node("c", facts={"*": NONE})
    (finding,) = found([*fakes.nodes(["a", "b"]), odd])
    assert ("EA349", "error", ("c",), "NVLink fabric differs") == (*brief([finding])[0], finding.message)
    assert [] == found([odd])


def test_gpu_that_has_not_joined_on_one_node_is_told_once(fakes: Fakes) -> None:
    """Of that node, not again as a difference."""
    odd = fakes.node("c", facts={"*": {"fabric_state": "not_started"}})
    assert [("EA345", "error", ("c",))] == brief(found([*fakes.nodes(["a", "b"]), odd]))
