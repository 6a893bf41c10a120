"""EA310 to EA315 and EA350 to EA354: whether the GPUs of a node are well."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import pytest

from envaudit.rules import Policy
from tests.diff.nodes import fingerprint
from tests.rules.gpunodes import Fakes, brief, found, words


def test_gpu_that_the_driver_does_not_hold_fell_off_the_bus(fakes: Fakes) -> None:
    """Two on the bus, one in /proc/driver/nvidia/gpus."""
    gone = {"/proc/driver/nvidia/gpus/0000:2b:00.0": None}
    findings = found([fakes.node("a", system={"count": 1}, files=gone)])
    message = "a GPU fell off the bus: 2 on the PCI bus, and the driver has 1"
    assert [("EA310", "error", message)] == words(findings)


def test_gpu_that_the_driver_calls_lost_fell_off_the_bus(fakes: Fakes) -> None:
    """By its state, with its number."""
    findings = found([fakes.node("a", facts={"1": {"state": "lost"}})])
    assert [("EA310", "error", "GPU 1 fell off the bus: the driver has lost it")] == words(findings)


def test_gpu_of_another_driver_did_not_fall_off(fakes: Fakes) -> None:
    """A display card that nouveau holds is where it should be."""
    gpu = {"platform": "linux", "driver": "550.54.15", "count": 7, "inventory": {"pci": 8, "proc": 7}}
    node = fingerprint("a", gpu=gpu)
    node.sections["gpu"].notes["other_drivers"] = {"0000:01:00.0": "nouveau"}  # type: ignore[index]
    assert [] == found([node])


def test_gpus_that_a_job_was_given_of_a_node_did_not_fall_off(fakes: Fakes) -> None:
    """Slurm's device cgroups leave NVML fewer than the module has."""
    assert [] == found([fakes.node("a", system={"count": 1})])


@pytest.mark.parametrize(
    ("facts", "message", "hint"),
    [
        ({"recovery_action": "gpu_reset"}, "GPU 1 waits for a reset", "Reset the GPU"),
        ({"recovery_action": "node_reboot"}, "GPU 1 waits for a reboot of the node", "Reboot the node"),
        ({"state": "reset_required"}, "GPU 1 waits for a reset", "Reset it"),
    ],
)
def test_gpu_that_waits_for_a_reset_is_an_error(
    fakes: Fakes, facts: Dict[str, Any], message: str, hint: str
) -> None:
    """With what the driver wants done."""
    (finding,) = found([fakes.node("a", facts={"1": facts})])
    assert ("EA311", "error", message) == words([finding])[0]
    assert finding.hint.startswith(hint)


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        (["gpu_idle"], []),
        (["sw_power_cap", "applications_clocks_setting", "sw_thermal_slowdown"], []),
        (["hw_slowdown"], ["GPU 1 is slowed down: hardware slowdown"]),
        (["hw_slowdown", "hw_thermal_slowdown"], ["GPU 1 is slowed down: too hot"]),
        (
            ["hw_power_brake_slowdown"],
            ["GPU 1 is slowed down: power brake: the power supply or the rack asks for less"],
        ),
    ],
)
def test_gpu_slowdown_is_told_where_the_hardware_makes_it(
    fakes: Fakes, reasons: List[str], expected: List[str]
) -> None:
    """A power cap by software is how a busy GPU runs."""
    findings = found([fakes.node("a", notes={"1": {"throttle_reasons": reasons}})])
    assert expected == [one.message for one in findings]
    assert {("EA312", "warning")} >= {(one.rule, one.severity) for one in findings}


def test_gpu_slowdown_of_many_nodes_is_one_finding(fakes: Fakes) -> None:
    """Temperatures differ; each line then names its node."""
    nodes = [
        fakes.node(
            name, notes={"*": {"throttle_reasons": ["hw_thermal_slowdown"], "temperature_c": 80 + index}}
        )
        for index, name in enumerate("abcdef")
    ]
    (finding,) = found(nodes)
    assert tuple("abcdef") == finding.nodes
    assert "a: hw_thermal_slowdown, at 80, 80 °C" == finding.evidence[0]
    assert "and 2 more nodes" == finding.evidence[-1]


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"ecc_pending": "disabled"}, "both GPUs: ECC is enabled, and disabled after a reset"),
        ({"mig_pending": "enabled"}, "both GPUs: MIG is disabled, and enabled after a reset"),
    ],
)
def test_mode_that_waits_for_a_reboot_is_a_warning(fakes: Fakes, facts: Dict[str, str], message: str) -> None:
    """The next reset changes the node."""
    assert [("EA313", "warning", message)] == words(found([fakes.node("a", facts={"*": facts})]))


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        *((number, [("EA314", "error")]) for number in ("48", "74", "79", "95", "119", "120")),
        *((number, []) for number in ("13", "31", "43")),
        ("63", [("EA314", "info")]),
    ],
)
def test_xid_is_judged_by_its_number(fakes: Fakes, number: str, expected: List[Tuple[str, str]]) -> None:
    """Faults of the card are errors, faults of programs nothing."""
    text = f"6,1,3000000,-;NVRM: Xid (PCI:0000:2b:00): {number}, pid=77, name=python, text\n"
    (node,) = [fakes.node("a", files={"/dev/kmsg": text})]
    findings = found([node])
    assert expected == [(one.rule, one.severity) for one in findings]
    assert [] == [one for one in findings if "GPU 1" not in f"{one.message}{one.evidence}"]


def test_xid_of_a_lost_gpu_is_told_once(fakes: Fakes) -> None:
    """Xid 79 is what the driver says when the card falls off."""
    text = "6,1,3000000,-;NVRM: Xid (PCI:0000:2b:00): 79, GPU has fallen off the bus.\n"
    node = fakes.node("a", facts={"1": {"state": "lost"}}, files={"/dev/kmsg": text})
    assert [("EA310", "error", ("a",))] == brief(found([node]))


def test_pcie_link_below_its_width_is_a_warning(fakes: Fakes) -> None:
    """The generation is not looked at: it drops on every idle GPU."""
    node = fakes.node("a", facts={"1": {"pcie_width": 8}}, notes={"*": {"pcie_generation": 1}})
    assert [("EA315", "warning", "GPU 1: PCIe link has 8 lanes of 16")] == words(found([node]))


@pytest.mark.parametrize(
    ("rule", "severity", "fact", "words_of"),
    [
        ("EA351", "error", "sram_threshold_exceeded", "uncorrectable SRAM errors beyond the limit"),
        ("EA352", "error", "remapped_failure", "a bad memory row could not be remapped"),
        ("EA353", "warning", "remapped_pending", "a bad memory row is remapped at the next reset"),
        ("EA354", "warning", "retired_pending", "a bad memory page is retired at the next reboot"),
    ],
)
def test_bad_memory_of_one_gpu_is_told_once(
    fakes: Fakes, rule: str, severity: str, fact: str, words_of: str
) -> None:
    """Of the node alone, although other nodes do not have it; null is not known, and silent."""
    nodes = [fakes.node("a"), fakes.node("b"), fakes.node("c", facts={"1": {fact: True}})]
    (finding,) = found(nodes)
    assert (rule, severity, f"GPU 1: {words_of}") == words([finding])[0]
    assert (("c",), f"gpu/devices/1/{fact}") == (finding.nodes, finding.path)
    assert [] == found([fakes.node("d", facts={"*": {fact: None}})])


def test_bad_memory_of_all_gpus_has_the_path_of_them_all(fakes: Fakes) -> None:
    """A waiver for that path is one for all."""
    (finding,) = found([fakes.node("a", facts={"*": {"remapped_failure": True}})])
    assert ("gpu/each/remapped_failure", "both GPUs: a bad memory row could not be remapped") == (
        finding.path,
        finding.message,
    )


def test_uncorrectable_errors_since_boot_are_a_warning(fakes: Fakes) -> None:
    """Those of the card's whole life are none, and a policy may ask for more."""
    node = fakes.node("a", notes={"1": {"ecc_uncorrected": 3}, "0": {"ecc_uncorrected_aggregate": 9}})
    (finding,) = found([node])
    assert ("EA350", "warning", "GPU 1: uncorrectable ECC errors since boot") == words([finding])[0]
    assert ("GPU 1: 3",) == finding.evidence
    assert [] == found([node], Policy(thresholds={"EA350": {"errors": 4}}))


def test_uncorrectable_error_with_its_xid_is_told_once(fakes: Fakes) -> None:
    """The driver's report is the better word."""
    text = "6,1,3000000,-;NVRM: Xid (PCI:0000:2b:00): 48, DBE\n"
    node = fakes.node("a", notes={"1": {"ecc_uncorrected": 1}}, files={"/dev/kmsg": text})
    assert [("EA314", "error", ("a",))] == brief(found([node]))
