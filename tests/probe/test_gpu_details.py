"""What NVML tells of one card beyond its versions: health, links, MIG, who is on it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

from envaudit.probe.nvml_device import throttle_reasons
from envaudit.probe.nvml_links import fabric_troubles
from envaudit.probe.nvml_processes import own_tree
from tests.probe.gpumachine import EACH, Machine


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A machine with eight GPUs, as far as NVML says."""
    return Machine(tmp_path_factory.mktemp("nvml"))


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ({"gsp_mode": "0,1"}, {"gsp_mode": "disabled"}),
        ({"virtualization": 2}, {"virtualization": "vgpu"}),
        ({"virtualization": 1}, {"virtualization": "passthrough"}),
        ({"addressing": 2}, {"addressing": "ats"}),
        ({"addressing": 9}, {"addressing": "9"}),
        ({"power_bounds_mw": "100000,500000"}, {"power_limit_min_mw": 100000, "power_limit_max_mw": 500000}),
        ({"sram_threshold_exceeded": 1}, {"sram_threshold_exceeded": True}),
        ({"recovery_action": 1}, {"recovery_action": "gpu_reset"}),
        ({"recovery_action": 42}, {"recovery_action": "42"}),
        ({"retired_pending": 1}, {"retired_pending": True}),
        ({"nvlink_version": 7}, {"nvlink_version": "5.0"}),
        ({"fabric": "2,0"}, {"fabric_state": "in_progress"}),
        ({"fabric": "3,999"}, {"fabric_status": 999}),
        ({"fabric_health": "0x11"}, {"fabric_health": ["degraded_bandwidth", "route_unhealthy"]}),
        ({"compute_mode": 3}, {"compute_mode": "exclusive_process"}),
    ],
    ids=lambda value: "",
)
def test_value_of_all_cards_is_told_once(
    machine: Machine, state: Dict[str, Any], told: Dict[str, Any]
) -> None:
    """What NVML says by number is named, one without a name keeps its number, and nothing else changes."""
    answer = machine.read(**state)
    assert ("ok", {**EACH, **told}, {}) == (answer.status, answer.facts["each"], answer.facts["devices"])


@pytest.mark.parametrize(
    ("state", "action"),
    [
        ({"reset_status": 0, "drain_status": 0}, "none"),
        ({"reset_status": 1, "drain_status": 0}, "gpu_reset"),
        ({"reset_status": 0, "drain_status": 1}, "drain_and_reset"),
    ],
    ids=lambda value: "",
)
def test_reset_that_an_older_driver_asks_for_is_a_recovery_action(
    machine: Machine, state: Dict[str, Any], action: str
) -> None:
    """Two fields said before driver 550 what one says since."""
    answer = machine.read(recovery_action="none", **state)
    assert action == answer.facts["each"]["recovery_action"]


@pytest.mark.parametrize(
    ("state", "word"), [("0,0,0", "disabled"), ("1,1,0", "enabled"), ("1,1,1", "devtools"), ("none", None)]
)
def test_confidential_computing_is_a_fact_of_the_node(machine: Machine, state: str, word: Any) -> None:
    """One fact for all cards, null where the driver does not know of it."""
    assert word == machine.read(confidential=state).facts["confidential"]


def test_mig_instances_are_counted_and_named_apart_from_gpus(machine: Machine) -> None:
    """Eight GPUs stay eight; what an instance is called is a note."""
    answer = machine.read(mig="1,1", mig_instances=2, mig_profile="3g.40gb")
    assert (8, {"3g.40gb": 2}) == (answer.facts["count"], answer.facts["each"]["mig_instances"])
    assert [
        {"uuid": f"MIG-5eed0000-0000-4000-8000-{64 + index:012d}", "profile": "3g.40gb"} for index in (0, 1)
    ] == answer.notes["devices"]["1"]["mig_devices"]


def test_nvlink_that_is_down_is_named_in_the_notes(machine: Machine) -> None:
    """The fact is how many are up; which one is down is for the one who repairs it."""
    answer = machine.read(gpu5__nvlinks="18,16")
    assert {"5": {"nvlinks_up": 16}} == answer.facts["devices"]
    assert [16, 17] == answer.notes["devices"]["5"]["nvlinks_down"]
    assert "nvlinks_down" not in answer.notes["devices"]["0"]


def test_nvlinks_that_are_not_wired_are_not_counted(machine: Machine) -> None:
    """A bridge takes some of a card's links; the others are no links that are down."""
    each = machine.read(nvlinks="12,12", nvlinks_unwired=1).facts["each"]
    assert (11, 11) == (each["nvlinks"], each["nvlinks_up"])


def test_nvlinks_that_are_all_down_have_no_version(machine: Machine) -> None:
    """The version is asked of a link that is up."""
    answer = machine.read(gpu0__nvlinks="18,0")
    assert {"0": {"nvlinks_up": 0}} == answer.facts["devices"]
    assert "4.0" == answer.facts["each"]["nvlink_version"]


def test_nvlinks_are_counted_where_the_driver_tells_no_number(machine: Machine) -> None:
    """Without field values the links are asked one by one until there is none."""
    answer = machine.read(return__nvmlDeviceGetFieldValues=13, nvlinks="12,12")
    each = answer.facts["each"]
    assert ("ok", 12, 12) == (answer.status, each["nvlinks"], each["nvlinks_up"])
    assert not {"nvlink_mbps", "recovery_action"} & set(each)


def test_fabric_of_an_older_driver_has_a_state_without_health(machine: Machine) -> None:
    """The first form of the call, which driver 535 has, is asked where the second is not there."""
    answer = machine.read(return__nvmlDeviceGetGpuFabricInfoV=13, fabric="3,0")
    each = answer.facts["each"]
    assert ("completed", 0, False) == (each["fabric_state"], each["fabric_status"], "fabric_health" in each)
    assert "ab" * 16 == answer.notes["devices"]["0"]["fabric_cluster"]


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (0, []),
        (0b10_10_10_10, []),
        (0x1002 | 0x4000 | 0x100, []),
        (0b01, ["degraded_bandwidth"]),
        (0b0101_0100, ["route_recovery", "route_unhealthy", "access_timeout_recovery"]),
        (5 << 8, ["incorrect_configuration_5"]),
        (2 << 12 | 2 << 14, ["no_partition", "manager_disconnected"]),
    ],
)
def test_fabric_health_mask_is_words_for_what_is_wrong(mask: int, words: List[str]) -> None:
    """Two bits are "yes", "no" or "not told"; only trouble is named."""
    assert words == fabric_troubles(mask)


def test_throttle_reasons_have_the_names_of_nvidia_smi() -> None:
    """Bit by bit; one that is new keeps its number."""
    assert [] == throttle_reasons(0)
    assert ["gpu_idle", "hw_slowdown", "hw_thermal_slowdown"] == throttle_reasons(0x1 | 0x8 | 0x40)
    assert ["sw_power_cap", "bit_12"] == throttle_reasons(0x4 | 1 << 12)


def test_card_before_ampere_tells_of_retired_pages(machine: Machine) -> None:
    """How many is a note, that some wait is a fact."""
    answer = machine.read(remapped="none", retired="3,1", retired_pending=0)
    note = answer.notes["devices"]["4"]
    assert (3, 1) == (note["retired_pages_single_bit"], note["retired_pages_double_bit"])
    assert answer.facts["each"]["retired_pending"] is False


def test_counts_of_errors_are_notes(machine: Machine) -> None:
    """Since boot and for the card's life; remapped rows as well."""
    answer = machine.read(ecc_errors="3,1", ecc_errors_aggregate="40,2", remapped="4,1,0,0")
    note = answer.notes["devices"]["0"]
    told = {
        "ecc_corrected": 3,
        "ecc_uncorrected": 1,
        "ecc_corrected_aggregate": 40,
        "ecc_uncorrected_aggregate": 2,
        "remapped_correctable": 4,
        "remapped_uncorrectable": 1,
    }
    assert told == {name: note[name] for name in told}
    assert EACH == answer.facts["each"]


def test_card_that_waits_for_a_reset_is_named_and_the_others_are_read(machine: Machine) -> None:
    """RESET_REQUIRED of every call is one error, as a lost card is."""
    answer = machine.read(gpu2__return__nvmlDeviceGetHandleByIndex=16)
    assert {"2": {"state": "reset_required"}} == answer.facts["devices"]
    assert ["GPU 2: nvmlDeviceGetHandleByIndex: GPU requires restart (NVML 16)"] == answer.errors
    assert EACH == answer.facts["each"]


@pytest.mark.parametrize("code", [2, 26, 999])
def test_call_that_few_cards_answer_makes_nothing_partial(machine: Machine, code: int) -> None:
    """What is told by some drivers only is left out where another refuses it, in whatever way."""
    calls = ("GspFirmwareMode", "VirtualizationMode", "AddressingMode", "SramEccErrorStatus")
    answer = machine.read(**{f"return__nvmlDeviceGet{call}": code for call in calls})
    assert ("ok", []) == (answer.status, answer.errors)
    assert not {"gsp_mode", "virtualization", "addressing"} & set(answer.facts["each"])


def test_guest_whose_ecc_is_the_hosts_is_healthy(machine: Machine) -> None:
    """A virtual GPU answers VGPU_ECC_NOT_SUPPORTED: null, no error."""
    answer = machine.read(return__nvmlDeviceGetEccMode=22, virtualization=2)
    assert ("ok", "vgpu", False) == (
        answer.status,
        answer.facts["each"]["virtualization"],
        "ecc" in answer.facts["each"],
    )


def test_function_that_a_driver_gave_up_is_not_supported(machine: Machine) -> None:
    """Application clocks are deprecated (NVML 26) in recent drivers: null, no error."""
    answer = machine.read(return__nvmlDeviceGetApplicationsClock=26)
    assert ("ok", False) == (answer.status, "clock_application_graphics_mhz" in answer.facts["each"])


def test_process_on_a_gpu_has_its_user_name_kind_and_memory(machine: Machine) -> None:
    """One that computes and draws is one; one that this test's process tree did not start is not own."""
    answer = machine.read(
        gpu0__process=f"{os.getpid()},300",
        gpu0__graphics_process=f"{os.getpid()},300",
        gpu1__mps_process="4194303,200",
        memory_used_mib=2000,
        memory_reserved_mib=600,
    )
    (mine,) = answer.notes["devices"]["0"]["processes"]
    assert (os.getpid(), "compute+graphics", 300 << 20, True) == (
        mine["pid"],
        mine["kind"],
        mine["memory_bytes"],
        mine["own"],
    )
    with open("/proc/self/comm", encoding="ascii") as file:
        assert file.read().strip() == mine["name"]
    hidden = {"pid": 4194303, "kind": "mps", "memory_bytes": 200 << 20, "user": None, "name": None}
    assert [{**hidden, "own": False}] == answer.notes["devices"]["1"]["processes"]


def test_memory_that_no_process_explains_is_hidden(machine: Machine) -> None:
    """Used beyond the driver's reserve and the processes: somebody in another pid namespace."""
    answer = machine.read(memory_used_mib=2000, memory_reserved_mib=600, gpu0__process=f"{os.getpid()},300")
    devices = answer.notes["devices"]
    assert (1100 << 20, 1400 << 20) == tuple(devices[number]["memory_hidden_bytes"] for number in "01")
    assert (2000 << 20, 600 << 20) == (
        devices["0"]["memory_used_bytes"],
        devices["0"]["memory_reserved_bytes"],
    )


def test_memory_without_a_reserve_or_a_list_hides_nothing(machine: Machine) -> None:
    """Where the driver does not tell what it keeps, or who runs, nothing is claimed."""
    answer = machine.read(memory_reserved_mib="none", memory_used_mib=900)
    assert "memory_hidden_bytes" not in answer.notes["devices"]["0"]
    denied = machine.read(return__nvmlDeviceGetComputeRunningProcesses=4, memory_used_mib=900)
    assert ("ok", False) == (denied.status, "memory_hidden_bytes" in denied.notes["devices"]["0"])
    assert "GPU 0: nvmlDeviceGetComputeRunningProcesses" in denied.notes["not_examined"]


def test_own_tree_has_parents_and_what_they_started() -> None:
    """A sibling started by the same launcher is one's own work; init is above everybody's."""
    sibling = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        asked = subprocess.run(
            [
                sys.executable,
                "-c",
                "from envaudit.probe.nvml_processes import own_tree; print(*own_tree())",
            ],
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
        )
        assert {str(os.getpid()), str(sibling.pid)} <= set(asked.stdout.split())
    finally:
        sibling.communicate(b"\n", timeout=10)
    assert os.getpid() in own_tree()


def test_own_tree_ends_at_the_shell_of_a_terminal() -> None:
    """What the same shell started beside the probe is another job: it must count as busy."""
    asked = "from envaudit.probe.nvml_processes import own_tree; print(os.getppid(), *own_tree())"
    script = f"sleep 30 & echo $!; {sys.executable} -c 'import os; {asked}'; kill $!"
    ran = subprocess.run(
        ["sh", "-c", script],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
        start_new_session=True,
    )
    other, shell, *own = ran.stdout.split()
    assert shell in own
    assert other not in own


def test_pynvml_that_is_old_leaves_out_what_it_does_not_know(machine: Machine) -> None:
    """A pynvml of years ago lacks functions and structures: null or left out, never an error."""
    newer = [
        "nvmlSystemGetConfComputeState",
        "nvmlDeviceGetGspFirmwareMode",
        "nvmlDeviceGetGspFirmwareVersion",
        "nvmlDeviceGetAddressingMode",
        "nvmlDeviceGetSramEccErrorStatus",
        "c_nvmlEccSramErrorStatus_v1_t",
        "c_nvmlGpuFabricInfo_v2_t",
        "c_nvmlGpuFabricInfo_t",
        "nvmlDeviceGetMPSComputeRunningProcesses",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlMemory_v2",
    ]
    answer = machine.read(without=newer)
    gone = {
        *("gsp_mode", "gsp_firmware", "addressing", "sram_threshold_exceeded"),
        *("fabric_state", "fabric_status", "fabric_health"),
    }
    kept = {name: value for name, value in EACH.items() if name not in gone}
    assert ("ok", kept) == (answer.status, answer.facts["each"])
    assert ["gpu_idle"] == answer.notes["devices"]["0"]["throttle_reasons"]
