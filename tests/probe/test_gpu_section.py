"""The GPUs of nodes healthy and broken: the real pynvml on a small library, and fake nodes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest

from envaudit.probe.context import Context
from envaudit.probe.pci_gpus import KernelModule, gfx_name, kernel_module, pci_cards
from envaudit.probe.sections import gpu
from envaudit.probe.visible_gpus import visible
from tests.probe.gpumachine import EACH, PROC, VERSION, Machine, lines, pci, proc

MakeNode = Callable[..., Context]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A machine with eight GPUs, as far as NVML says."""
    return Machine(tmp_path_factory.mktemp("nvml"))


def test_gpus_that_are_healthy_take_one_row(machine: Machine) -> None:
    """Eight equal cards in a namespace without PCI and /proc: ok, one row, the inventory unknown."""
    answer = machine.read()
    assert ("ok", []) == (answer.status, answer.errors)
    assert {
        "platform": "linux",
        "driver": "550.54.15",
        "confidential": "disabled",
        "fabric_manager": None,
        "cuda": "12.4",
        "module": None,
        "flavour": None,
        "nvml": "as driver",
        "count": 8,
        "inventory": {"pci": None, "proc": None},
        "visible": {"count": 8, "form": "all", "variable": None},
        "uvm": None,
        "each": EACH,
        "devices": {},
    } == answer.facts
    assert ["0", "1", "2", "3", "4", "5", "6", "7"] == sorted(answer.notes["devices"])
    assert "GPU-5eed0000-0000-4000-8000-000000000003" == answer.notes["devices"]["3"]["uuid"]


def test_gpus_that_differ_by_nature_have_equal_facts(machine: Machine) -> None:
    """Serials, UUIDs, temperatures, clocks, counters and memory in use are notes."""
    other = machine.read(
        serial="99", uuid="1", temperature_c=71, clocks_mhz="1980,1980,2619,9", ecc_errors="3,0",
        throttle_reasons="0x4", pcie_generation=1, memory_used_mib=512, process=f"{os.getpid()},300",
    )  # fmt: skip
    assert machine.read().facts == other.facts
    assert {
        "serial": "99",
        "ecc_corrected": 3,
        "throttle_reasons": ["sw_power_cap"],
        "pcie_generation": 1,
    } == {
        name: other.notes["devices"]["0"][name]
        for name in ("serial", "ecc_corrected", "throttle_reasons", "pcie_generation")
    }
    (process,) = other.notes["devices"]["0"]["processes"]
    assert (os.getpid(), 300 << 20) == (process["pid"], process["memory_bytes"])


def changed(first: Any, second: Any, path: str = "") -> List[str]:
    """The paths of the leaves that differ."""
    if isinstance(first, dict) and isinstance(second, dict):
        keys = sorted({*first, *second})
        return [leaf for key in keys for leaf in changed(first.get(key), second.get(key), f"{path}/{key}")]
    return [] if first == second else [path]


@pytest.mark.parametrize(
    ("state", "paths"),
    [
        ({"driver": "550.54.14"}, ["/driver"]),
        ({"gpu3__ecc": "0,0"}, ["/devices/3"]),
        ({"ecc": "0,1"}, ["/each/ecc"]),
        ({"vbios": "96.00.88.00.01"}, ["/each/vbios"]),
        ({"count": 7}, ["/count", "/visible/count"]),
        ({"gpu0__remapped": "0,1,1,0"}, ["/devices/0"]),
        ({"gpu7__nvlinks": "18,17"}, ["/devices/7"]),
        ({"gpu2__pcie_width": "8"}, ["/devices/2"]),
        ({"gsp": "535.1"}, ["/each/gsp_firmware"]),
        ({"gpu1__mig": "1,1", "gpu1__mig_instances": 7}, ["/devices/1"]),
    ],
    ids=lambda value: "" if isinstance(value, list) else " ".join(value),
)
def test_one_cause_on_a_gpu_is_one_difference(
    machine: Machine, state: Dict[str, Any], paths: List[str]
) -> None:
    """What changes on one card shows at that card, what changes on all shows once."""
    answer = machine.read(**state)
    assert ("ok", paths) == (answer.status, changed(machine.read().facts, answer.facts))


def test_gpu_with_mig_counts_its_instances(machine: Machine) -> None:
    """Instances are counted by profile, on the card that has them."""
    answer = machine.read(gpu1__mig="1,1", gpu1__mig_instances=3, mig_profile="2g.20gb")
    expected = {"mig": "enabled", "mig_instances": {"2g.20gb": 3}, "mig_pending": "enabled"}
    assert {"1": expected} == answer.facts["devices"]


def test_gpu_that_supports_little_is_healthy(machine: Machine) -> None:
    """A card without ECC, MIG, NVLink, fabric and row remapping is ok: nothing of that is an error."""
    state = dict.fromkeys(("ecc", "mig", "nvlinks", "fabric", "remapped", "serial", "inforom", "gsp"), "none")
    answer = machine.read(name="NVIDIA GeForce RTX 4090", **state)
    assert ("ok", [], {}) == (answer.status, answer.errors, answer.facts["devices"])
    absent = {"ecc", "mig", "nvlinks", "nvlinks_up", "fabric_state", "remapped_failure", "gsp_firmware"}
    assert not absent & set(answer.facts["each"])
    assert "NVIDIA GeForce RTX 4090" == answer.facts["each"]["product"]


def test_gpu_function_that_the_driver_lacks_is_healthy(machine: Machine) -> None:
    """FUNCTION_NOT_FOUND of an older driver is like NOT_SUPPORTED."""
    answer = machine.read(return__nvmlDeviceGetRemappedRows=13)
    assert ("ok", False) == (answer.status, "remapped_failure" in answer.facts["each"])


def test_gpu_that_is_lost_is_named_and_the_others_are_read(machine: Machine) -> None:
    """One card off the bus: partial, seven cards known, one error for all its calls."""
    answer = machine.read(gpu3__lost=1)
    assert ("partial", {"3": {"state": "lost"}}) == (answer.status, answer.facts["devices"])
    assert ["GPU 3: nvmlDeviceGetHandleByIndex: GPU is lost (NVML 15)"] == answer.errors
    assert EACH == answer.facts["each"]


def test_gpu_lost_while_it_is_asked_takes_one_error(machine: Machine) -> None:
    """A card that falls off between two calls is lost as well, and its many refusals are one line."""
    calls = ("EccMode", "Name", "MigMode", "PersistenceMode")
    answer = machine.read(**{f"gpu3__return__nvmlDeviceGet{call}": 15 for call in calls})
    assert ["GPU 3: nvmlDeviceGetName: GPU is lost (NVML 15), and 3 more calls"] == answer.errors
    assert "lost" == answer.facts["devices"]["3"]["state"]


def test_gpu_value_that_cannot_be_read_is_unknown_not_deviating(machine: Machine) -> None:
    """An unknown error on one value makes partial, and no drift on that card."""
    answer = machine.read(gpu5__return__nvmlDeviceGetVbiosVersion=999)
    assert ("partial", {}) == (answer.status, answer.facts["devices"])
    assert "GPU 5: nvmlDeviceGetVbiosVersion: " in answer.errors[0]


def test_gpu_value_that_needs_root_is_not_examined(machine: Machine) -> None:
    """NO_PERMISSION is no fault of a node: it is noted, and the answer stays ok."""
    answer = machine.read(return__nvmlDeviceGetInforomImageVersion=4)
    assert "ok" == answer.status
    assert "GPU 0: nvmlDeviceGetInforomImageVersion" in answer.notes["not_examined"]


def test_driver_and_library_that_do_not_match_are_no_absent_gpu(machine: Machine) -> None:
    """Error 18 after an upgrade without reboot: partial, with the number that can be seen."""
    answer = machine.read(return__nvmlInit=18, nvml="12.550.54.15")
    assert ("partial", "12.550.54.15") == (answer.status, answer.facts["nvml"])
    assert "driver" not in answer.facts
    assert "libnvidia-ml 12.550.54.15 do not match" in answer.errors[0]


@pytest.mark.parametrize(("how", "cause"), [("hang", "no answer within 1 s"), ("crash", "ended by SIGSEGV")])
def test_nvml_that_breaks_at_one_gpu_costs_that_one_alone(machine: Machine, how: str, cause: str) -> None:
    """The cards before and after it are known, and the text says where it broke and how."""
    answer = machine.read(stall_s=1, gpu3__return__nvmlDeviceGetVbiosVersion=how)
    assert ("partial", 8, EACH) == (answer.status, answer.facts["count"], answer.facts["each"])
    assert [f"GPU 3: NVML: {cause}"] == answer.errors
    assert ["0", "1", "2", "4", "5", "6", "7"] == sorted(answer.notes["devices"])


def test_nvml_that_breaks_at_several_gpus_names_each(machine: Machine) -> None:
    """The first and the last of eight hang: six are known."""
    state = {f"gpu{number}__return__nvmlDeviceGetSerial": "hang" for number in (0, 7)}
    answer = machine.read(stall_s=1, **state)
    assert [f"GPU {number}: NVML: no answer within 1 s" for number in (0, 7)] == answer.errors
    assert ("partial", EACH, 6) == (answer.status, answer.facts["each"], len(answer.notes["devices"]))


def test_nvml_that_counts_more_gpus_than_there_can_be_is_not_asked_for_all(machine: Machine) -> None:
    """-1 as the number of GPUs would otherwise cost the section all its time, and then its facts."""
    answer = machine.read(count="4294967295")
    assert "NVML counts 4294967295 GPUs; 256 are asked" in answer.errors
    assert ("partial", 256) == (answer.status, len(answer.notes["devices"]))
    assert "550.54.15" == answer.facts["driver"]


def test_nvml_that_hangs_everywhere_ends_with_the_time(machine: Machine) -> None:
    """No card is waited for once all the time is gone."""
    answer = machine.read(timeout_s=2, stall_s=1, return__nvmlDeviceGetName="hang")
    assert ("partial", 8, {}) == (answer.status, answer.facts["count"], answer.notes["devices"])
    assert "GPU 0: NVML: no answer within 1 s" == answer.errors[0]
    assert len(answer.errors) < 4


@pytest.mark.parametrize(("how", "cause"), [("hang", "no answer within 1 s"), ("crash", "ended by SIGSEGV")])
def test_nvml_that_breaks_at_once_is_an_error(machine: Machine, how: str, cause: str) -> None:
    """Nothing is known, and nothing is claimed."""
    answer = machine.read(timeout_s=1, return__nvmlInit=how)
    assert ("error", [f"NVML: {cause}"]) == (answer.status, answer.errors)
    assert "count" not in answer.facts


def test_nvml_that_is_garbage_is_an_error(machine: Machine, tmp_path: Path) -> None:
    """A damaged library is told from an absent one by the loader's words."""
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"\x7fELF garbage")
    answer = machine.read(environ={"LD_LIBRARY_PATH": str(tmp_path)})
    assert "error" == answer.status
    assert "does not load" in answer.errors[0]


def test_node_without_gpus_is_absent(machine: Machine) -> None:
    """No library, no card on the bus, no kernel module; and a library that waits for a driver."""
    assert ("absent", {}) == machine.read(environ={"LD_LIBRARY_PATH": "/nowhere"})[:2]
    assert ("absent", {}) == machine.read(return__nvmlInit=9)[:2]


def test_gpus_of_a_whole_node_have_their_inventory(make_node: MakeNode) -> None:
    """Module, PCI, /proc and the device file of a node that shows all of them."""
    files = {**pci(8), **proc(8), "/dev/nvidiactl": "", "/dev/nvidia-uvm": ""}
    facts = gpu.read(make_node(files, nvml=lines(8))).facts
    assert ({"pci": 8, "proc": 8}, True) == (facts["inventory"], facts["uvm"])
    assert ("as driver", "proprietary") == (facts["module"], facts["flavour"])


def test_gpu_that_fell_off_the_bus_shows_in_the_inventory(make_node: MakeNode) -> None:
    """Seven on the bus, eight held by the module, and no uvm device."""
    facts = gpu.read(make_node({**pci(7), **proc(8)}, nvml=lines(7))).facts
    assert ({"pci": 7, "proc": 8}, 7, False) == (facts["inventory"], facts["count"], facts["uvm"])


def test_gpus_without_the_driver_library_are_an_error(make_node: MakeNode) -> None:
    """Cards on the bus and no libnvidia-ml: never read as a node without GPUs."""
    answer = gpu.read(make_node({**pci(8), **PROC}))
    assert ("error", "550.54.15") == (answer.status, answer.facts["module"])
    assert "the driver's library does not load: libnvidia-ml.so.1" in answer.errors[0]


def test_gpus_of_the_host_in_a_container_without_any_are_absent(make_node: MakeNode) -> None:
    """/proc and /sys show the host's cards in every container; one that was given none has none."""
    answer = gpu.read(make_node({**pci(8), **proc(8), "/.dockerenv": ""}))
    assert ("absent", {"pci": 8, "proc": 8}) == (answer.status, answer.notes["host_gpus"])


def test_driver_and_module_that_do_not_match_tell_both_numbers(make_node: MakeNode) -> None:
    """The module from /proc and the library from its file name."""
    answer = gpu.read(
        make_node(
            {
                **pci(8),
                "/proc/driver/nvidia/version": VERSION.format("x86_64 Kernel Module").replace("15", "14"),
            },
            nvml=lines(0, init=18, values={"nvml": "12.550.54.15"}),
        )
    )
    assert "partial" == answer.status
    assert "kernel module 550.54.14 and libnvidia-ml 550.54.15 do not match" in answer.errors[0]


def test_module_that_is_garbled_has_no_version(make_node: MakeNode) -> None:
    """The file is there, so the module is loaded; what it says is not understood."""
    garbled = make_node({"/proc/driver/nvidia/version": "\x00\xffgarbage\n"})
    assert KernelModule(None, "proprietary") == kernel_module(garbled)


def test_module_that_is_open_is_told(make_node: MakeNode) -> None:
    """The open kernel module has another first line."""
    text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs@a)\n"
    assert KernelModule("580.65.06", "open") == kernel_module(
        make_node({"/proc/driver/nvidia/version": text})
    )


def test_pci_bus_counts_gpus_only(make_node: MakeNode) -> None:
    """Audio functions, bridges and other makers' cards are no NVIDIA GPUs; a denied bus is unknown."""
    files = {**pci(8), "/sys/bus/pci/devices/0000:99:00.0/vendor": "0x10de\n"}
    files["/sys/bus/pci/devices/0000:99:00.0/class"] = "0x040300\n"
    files["/sys/bus/pci/devices/0000:98:00.0/vendor"] = "0x1002\n"
    files["/sys/bus/pci/devices/0000:98:00.0/class"] = "0x030000\n"
    assert 8 == len(pci_cards(make_node(files)) or ())
    assert pci_cards(make_node(files, denied=["/sys/bus/pci/devices"])) is None


def test_pci_bus_that_is_denied_is_noted(make_node: MakeNode) -> None:
    """A container without /sys: the GPUs are ok, the inventory says that it was not seen."""
    answer = gpu.read(make_node(pci(8), nvml=lines(2), denied=["/sys"]))
    assert ("ok", {"pci": None, "proc": None}) == (answer.status, answer.facts["inventory"])
    assert "/sys/bus/pci/devices cannot be read" == answer.notes["not_examined"]["PCI inventory"]


def test_gpus_of_amd_are_read_from_kfd(fake_node: Callable[[str], Context]) -> None:
    """Targets, memory and compute units by KFD, the versions of the module and of ROCm; no NVIDIA facts."""
    answer = gpu.read(fake_node("rocm-mi300"))
    each = {"gfx": "gfx942", "memory_bytes": 206141652992, "compute_units": 304}
    visible = {"count": 2, "form": "index", "variable": "HIP_VISIBLE_DEVICES"}
    versions = {"driver": "6.8.5", "rocm": "6.2.0-66"}
    amd = {**versions, "count": 2, "visible": visible, "each": each, "devices": {}}
    assert ("ok", {"amd": amd}) == answer[:2]


def test_gpus_of_a_garbled_node_are_unknown(fake_node: Callable[[str], Context]) -> None:
    """A module file of random bytes and an NVML that fails: partial or error, and no count."""
    answer = gpu.read(fake_node("garbled"))
    assert "partial" == answer.status
    assert not {"driver", "count", "amd"} & set(answer.facts)
    assert "Unknown Error (NVML 999)" in answer.errors[0]


@pytest.mark.parametrize(
    ("environ", "count", "form"),
    [
        ({}, 8, "all"),
        ({"CUDA_VISIBLE_DEVICES": "0,1,2"}, 3, "index"),
        ({"CUDA_VISIBLE_DEVICES": "0, 3"}, 2, "index"),
        ({"CUDA_VISIBLE_DEVICES": "0,-1,1"}, 1, "index"),
        ({"CUDA_VISIBLE_DEVICES": "0,9,1"}, 1, "index"),
        ({"CUDA_VISIBLE_DEVICES": ""}, 0, "none"),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, 0, "none"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-8932f937,GPU-a"}, 2, "uuid"),
        ({"CUDA_VISIBLE_DEVICES": "MIG-GPU-1/1/0"}, 1, "mig"),
        ({"CUDA_VISIBLE_DEVICES": "0,GPU-a"}, 2, "mixed"),
        ({"CUDA_VISIBLE_DEVICES": "0,1,0"}, 0, "none"),
        ({"CUDA_VISIBLE_DEVICES": "1gpu,2"}, 2, "index"),
        ({"CUDA_VISIBLE_DEVICES": "all"}, 0, "none"),
        ({"CUDA_VISIBLE_DEVICES": "MIG-a,MIG-b"}, 1, "mig"),
        ({"NVIDIA_VISIBLE_DEVICES": "GPU-a"}, 8, "all"),
        ({"NVIDIA_VISIBLE_DEVICES": "8,9"}, 8, "all"),
        ({"NVIDIA_VISIBLE_DEVICES": "/var/run/nvidia-container-devices"}, 8, "all"),
        ({"NVIDIA_VISIBLE_DEVICES": "GPU-a", "CUDA_VISIBLE_DEVICES": "0"}, 1, "index"),
    ],
)
def test_visible_gpus_are_counted_as_cuda_counts(environ: Dict[str, str], count: int, form: str) -> None:
    """Count and form are facts; which GPU it is differs from node to node and is none."""
    told = visible(environ, 8)
    assert (count, form) == (told["count"], told["form"])


@pytest.mark.parametrize(
    ("named", "count", "form"),
    [
        ("GPU-1a2b3c4d-0000-4000-8000-000000000001", 1, "uuid"),
        ("GPU-1a2b3c4d-0000-4000-8000-00000000000", 0, "none"),
        ("GPU-ffffffff,0", 0, "none"),
        ("0,GPU-ffffffff,1", 1, "index"),
        ("MIG-0a100a10-0000-4000-8000-000000000000", 0, "none"),
    ],
)
def test_uuid_that_no_gpu_of_the_node_has_is_not_counted(
    fake_node: Callable[[str], Context], named: str, count: int, form: str
) -> None:
    """A UUID of another node, one that is shortened to what two have, a slice where there are none."""
    node = fake_node("healthy-h100")
    node.environ = {**node.environ, "CUDA_VISIBLE_DEVICES": named}
    told = gpu.read(node).facts["visible"]
    assert (count, form) == (told["count"], told["form"])


def test_uuid_counts_where_a_gpu_does_not_tell_its_own(fake_node: Callable[[str], Context]) -> None:
    """It may be that of the card that hangs."""
    node = fake_node("healthy-h100")
    node.environ = {**node.environ, "CUDA_VISIBLE_DEVICES": "GPU-ffffffff"}
    node.node["nvml"].pop(2)
    assert 1 == gpu.read(node).facts["visible"]["count"]


@pytest.mark.parametrize(
    ("named", "count"),
    [
        ("MIG-0a100a10-1001", 1),
        ("MIG-GPU-0a100a10-0000-4000-8000-000000000001/1/0", 1),
        ("MIG-GPU-0a100a10-0000-4000-8000-00000000000f/1/0", 0),
        ("MIG-ffffffff", 0),
    ],
)
def test_slice_is_counted_where_a_gpu_of_the_node_has_it(
    fake_node: Callable[[str], Context], named: str, count: int
) -> None:
    """By its own UUID, or as older drivers named it, by that of its GPU."""
    node = fake_node("a100-mig")
    node.environ = {**node.environ, "CUDA_VISIBLE_DEVICES": named}
    assert count == gpu.read(node).facts["visible"]["count"]


@pytest.mark.parametrize(
    ("target", "name"), [(90402, "gfx942"), (90010, "gfx90a"), (90500, "gfx950"), (110000, "gfx1100")]
)
def test_gfx_target_is_named_as_the_compiler_does(target: int, name: str) -> None:
    """Two decimal digits each for minor and stepping, written in hexadecimal."""
    assert name == gfx_name(target)


def test_gpu_where_nothing_may_be_looked_at_is_unknown_not_absent(make_node: MakeNode) -> None:
    """A bus that is denied and no library: no evidence, which is no absence."""
    assert "error" == gpu.read(make_node({}, denied=["/sys/bus/pci/devices"])).status
