"""GPUs on fake nodes: MIG, WSL, a Jetson, containers, cards that fell off, and what the kernel's log says."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict

import pytest

from envaudit.probe.context import Context
from envaudit.probe.fabric_manager import fabric_manager
from envaudit.probe.pci_gpus import Card, off_the_bus, pci_cards
from envaudit.probe.sections import gpu
from tests.probe.gpumachine import PROC, lines, pci, proc

MakeNode = Callable[..., Context]
FakeNode = Callable[[str], Context]

DEVICE_FILES = {"/dev/nvidiactl": "", "/dev/nvidia-uvm": ""}
MANAGER = "/usr/bin/nv-fabricmanager"
SAID = {f"{MANAGER} --version": {"stdout": "Fabric Manager version is : 550.54.15\n"}}
SWITCHES = {f"/proc/driver/nvidia-nvswitch/devices/0000:0{number}:00.0": "" for number in range(5, 9)}
RUNNING = {
    **SWITCHES,
    MANAGER: "",
    "/run/nvidia-fabricmanager/nv-fabricmanager.pid": "77\n",
    "/proc/77/comm": "nv-fabricmanage\n",
    "/proc/1/comm": "systemd\n",
}


def test_gpus_with_mig_are_counted_apart_from_instances(fake_node: FakeNode) -> None:
    """Two GPUs of two instances each: the process may use one instance."""
    answer = gpu.read(fake_node("a100-mig"))
    facts = answer.facts
    assert ("ok", 2, {"3g.40gb": 2}) == (answer.status, facts["count"], facts["each"]["mig_instances"])
    assert {"count": 1, "form": "mig", "variable": "CUDA_VISIBLE_DEVICES"} == facts["visible"]
    assert "MIG-0a100a10-0000-4000-8000-000000000000" == answer.notes["visible"]


def test_gpu_under_wsl_misses_nothing(fake_node: FakeNode) -> None:
    """No kernel module, no PCI device and no uvm device are what a healthy WSL shows."""
    answer = gpu.read(fake_node("wsl"))
    facts = answer.facts
    assert ("ok", []) == (answer.status, answer.errors)
    told = {name: facts[name] for name in ("platform", "driver", "nvml", "module", "uvm", "inventory")}
    assert {
        "platform": "wsl",
        "driver": "551.61",
        "nvml": "12.550.54.10",
        "module": None,
        "uvm": None,
        "inventory": {"pci": None, "proc": None},
    } == told
    assert "wddm" == answer.notes["devices"]["0"]["driver_model"]


def test_wsl_without_nvidia_does_not_say_that_no_gpu_is_there(make_node: MakeNode) -> None:
    """/dev/dxg stands for a GPU of any maker; what it is cannot be seen."""
    answer = gpu.read(make_node({"/dev/dxg": ""}))
    assert ("ok", {"platform": "wsl"}) == answer[:2]
    assert "GPU behind /dev/dxg" in answer.notes["not_examined"]


def test_wsl_with_the_windows_driver_and_no_nvml_is_an_error(make_node: MakeNode) -> None:
    """The libcuda of the Windows driver is there, so a GPU is: never absent."""
    answer = gpu.read(make_node({"/dev/dxg": "", "/usr/lib/wsl/lib/libcuda.so.1": ""}))
    assert ("error", "wsl") == (answer.status, answer.facts["platform"])
    assert "libnvidia-ml.so.1" in answer.errors[0]


def test_jetson_without_nvml_has_its_gpu_from_the_device_tree(fake_node: FakeNode) -> None:
    """Never absent, never an error: the chip tells the compute capability, and the note says so."""
    answer = gpu.read(fake_node("jetson"))
    each = {"compute_capability": "8.7", "product": "Jetson AGX Orin Developer Kit"}
    facts = answer.facts
    assert ("ok", [], 1, each) == (answer.status, answer.errors, facts["count"], facts["each"])
    assert ({"chip": "tegra234", "l4t": "35.4.1"}, None) == (facts["tegra"], facts["uvm"])
    assert "device tree" == answer.notes["source"]
    source = answer.notes["devices"]["0"]["compute_capability_source"]
    assert "table by chip, /proc/device-tree/compatible" == source


def test_jetson_whose_nvml_tells_little_is_completed(make_node: MakeNode) -> None:
    """The product is NVML's, the compute capability the chip's; the driver is that of the chip."""
    said = lines(1)
    said[1]["device"]["facts"] = {"product": "Orin (nvgpu)", "compute_capability": None}
    files = {"/proc/device-tree/compatible": "nvidia,p3737\0nvidia,tegra234\0", "/dev/nvidiactl": ""}
    answer = gpu.read(make_node(files, nvml=said))
    assert {"product": "Orin (nvgpu)", "compute_capability": "8.7"} == answer.facts["each"]
    assert ("nvml", None) == (answer.notes["source"], answer.facts["uvm"])


def test_jetson_without_nvmls_bindings_has_its_gpu(make_node: MakeNode) -> None:
    """A library that nobody here can ask is no fault of a board whose chip is known."""
    said = [{"system": {"load_error": "NVML cannot be asked: No module named 'pynvml'", "absent": False}}]
    files = {"/proc/device-tree/compatible": "nvidia,tegra194\0"}
    answer = gpu.read(make_node(files, nvml=[*said, {"end": True}]))
    assert ("ok", {"compute_capability": "7.2"}) == (answer.status, answer.facts["each"])


def test_jetson_of_an_unknown_chip_has_a_gpu_of_unknown_capability(make_node: MakeNode) -> None:
    """A chip that is newer than the table: the GPU is there, what it computes is unknown."""
    answer = gpu.read(make_node({"/proc/device-tree/compatible": "nvidia,tegra999\0", **pci(0)}))
    assert ("ok", 1, {}) == (answer.status, answer.facts["count"], answer.facts["each"])


def test_container_that_was_given_two_of_four_misses_none(fake_node: FakeNode) -> None:
    """/sys shows all cards of the host, /proc/driver/nvidia the given ones: no card fell off."""
    answer = gpu.read(fake_node("container-small-shm"))
    assert ("ok", {"pci": None, "proc": 2}) == (answer.status, answer.facts["inventory"])
    assert {"pci": 4} == answer.notes["host_gpus"]


def test_gpu_that_answers_with_ones_fell_off_the_bus(make_node: MakeNode) -> None:
    """NVML lists seven of eight; the eighth is still on the list of the bus, and does not answer."""
    files: Dict[str, Any] = {**pci(8), **proc(8), **DEVICE_FILES}
    for number, address in enumerate(f"0000:{index + 16:02x}:00.0" for index in range(8)):
        files[f"/sys/bus/pci/devices/{address}/config"] = b"\xff" * 64 if number == 5 else b"\xde\x10\x30\x23"
    answer = gpu.read(make_node(files, nvml=lines(7)))
    gone = "GPU at 0000:15:00.0: fallen off the bus, its PCI configuration reads as ones"
    assert ("partial", [gone]) == (answer.status, answer.errors)
    assert ({"pci": 8, "proc": 8}, 7) == (answer.facts["inventory"], answer.facts["count"])


def test_gpu_that_is_not_missed_is_not_touched(make_node: MakeNode) -> None:
    """Reading the configuration space wakes a sleeping card: only where NVML lists fewer."""
    files: Dict[str, Any] = {**pci(1), **proc(1), **DEVICE_FILES}
    files["/sys/bus/pci/devices/0000:10:00.0/config"] = b"\xff" * 64
    node = make_node(files, nvml=lines(1))
    assert "ok" == gpu.read(node).status
    assert ["0000:10:00.0"] == off_the_bus(node, pci_cards(node) or [])


def test_gpu_that_a_guest_holds_is_not_missed(make_node: MakeNode) -> None:
    """A card bound to vfio-pci belongs to a virtual machine: a note, no part of the inventory."""
    node = make_node({**pci(2), **proc(1), **DEVICE_FILES}, nvml=lines(1))
    link = f"{node.root}/sys/bus/pci/devices/0000:11:00.0/driver"
    os.symlink("../../../../bus/pci/drivers/vfio-pci", link)
    answer = gpu.read(node)
    assert ("ok", {"pci": 1, "proc": 1}) == (answer.status, answer.facts["inventory"])
    assert ["0000:11:00.0"] == answer.notes["passed_through"]
    assert [Card("0000:10:00.0", None), Card("0000:11:00.0", "vfio-pci")] == pci_cards(node)


def test_gpu_under_another_driver_names_it(make_node: MakeNode) -> None:
    """Held by nouveau, with NVIDIA's library waiting for its own driver: never absent."""
    node = make_node(pci(1), nvml=lines(0, init=9, values={}, errors=["NVML: Driver Not Loaded (NVML 9)"]))
    os.symlink("../../../../bus/pci/drivers/nouveau", f"{node.root}/sys/bus/pci/devices/0000:10:00.0/driver")
    answer = gpu.read(node)
    assert ("partial", {"0000:10:00.0": "nouveau"}) == (answer.status, answer.notes["other_drivers"])


@pytest.mark.parametrize(
    ("files", "node", "told"),
    [
        (RUNNING, {}, {"switches": 4, "installed": True, "running": True, "version": "550.54.15"}),
        (
            {**SWITCHES, MANAGER: "", "/proc/1/comm": "systemd\n", "/proc/90/comm": "nv-fabricmanage\n"},
            {},
            {"switches": 4, "installed": True, "running": True, "version": "550.54.15"},
        ),
        (
            {**SWITCHES, MANAGER: "", "/proc/1/comm": "systemd\n"},
            {},
            {"switches": 4, "installed": True, "running": False, "version": "550.54.15"},
        ),
        (
            {**SWITCHES, "/proc/1/comm": "systemd\n"},
            {},
            {"switches": 4, "installed": False, "running": False, "version": None},
        ),
        (
            {"/dev/nvidia-nvswitchctl": "", MANAGER: ""},
            {},
            {"switches": None, "installed": True, "running": None, "version": "550.54.15"},
        ),
        ({MANAGER: "", "/proc/1/comm": "systemd\n"}, {}, None),
        ({**RUNNING, "/.dockerenv": ""}, {}, None),
    ],
    ids=["by pid file", "by name", "stopped", "not installed", "hidden", "no switch", "container"],
)
def test_fabric_manager_applies_where_switches_are(
    make_node: MakeNode, files: Dict[str, str], node: Dict[str, Any], told: Any
) -> None:
    """Only a host with NVSwitches has one to ask for; what hides its processes leaves it unknown."""
    assert told == fabric_manager(make_node(files, commands=SAID, **node), {})


def test_fabric_manager_that_hangs_has_no_version(make_node: MakeNode) -> None:
    """The rest is known, and why the version is not is noted."""
    not_examined: Dict[str, str] = {}
    node = make_node(RUNNING, commands={f"{MANAGER} --version": {"hang": True}})
    told = fabric_manager(node, not_examined)
    assert {"switches": 4, "installed": True, "running": True, "version": None} == told
    assert f"{MANAGER}: no answer within 3 s" == not_examined["fabric manager version"]


def test_fabric_manager_of_another_version_is_one_difference(make_node: MakeNode) -> None:
    """The driver's version is "as driver"; what differs from it shows with its number."""
    said = {f"{MANAGER} --version": {"stdout": "Fabric Manager version is : 535.183.01\n"}}
    files = {**pci(1), **proc(1), **DEVICE_FILES, **RUNNING}
    same = gpu.read(make_node(files, nvml=lines(1), commands=SAID)).facts["fabric_manager"]
    other = gpu.read(make_node(files, nvml=lines(1), commands=said)).facts["fabric_manager"]
    assert ("as driver", "535.183.01") == (same["version"], other["version"])


def test_xid_lines_are_counted_at_their_gpu(make_node: MakeNode) -> None:
    """By NVML's bus id; those of a card that NVML does not list stand apart."""
    said = lines(1)
    said[1]["device"]["notes"] = {"bus_id": "00000000:9B:00.0"}
    log = (
        "6,1,120000000,-;NVRM: loading\n"
        "4,2,130000000,-;NVRM: Xid (PCI:0000:9b:00): 119, pid=7, name=python, Timeout\n"
        "4,3,140000000,-;NVRM: Xid (PCI:0000:9b:00): 119, pid=7, name=python, Timeout\n"
        "4,4,150000000,-;NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus.\n"
        "4,5,160000000,-;nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32\n"
    )
    answer = gpu.read(make_node({**pci(1), **proc(1), "/dev/kmsg": log}, nvml=said))
    assert {"119": 2} == answer.notes["devices"]["0"]["xid"]
    assert {"0000:18:00": {"79": 1}} == answer.notes["xid_of_others"]
    assert ({"0000:c1:00": {"12028": 1}}, {"since_s": 120}) == (
        answer.notes["sxid"],
        answer.notes["kernel_log"],
    )


def test_kernel_log_that_is_denied_is_noted(make_node: MakeNode) -> None:
    """Without root nobody knows of Xids: that is said, and makes nothing partial."""
    files = {**pci(1), **PROC, **proc(1), "/dev/kmsg": ""}
    answer = gpu.read(make_node(files, nvml=lines(1), denied=["/dev/kmsg"]))
    assert "ok" == answer.status
    assert "Permission denied" == answer.notes["not_examined"]["Xid lines of the kernel's log"]
    assert "kernel_log" not in answer.notes


def test_rccl_of_a_rocm_node_is_noted(fake_node: FakeNode) -> None:
    """Its place with the version in its name, and what tells one card from another."""
    notes = gpu.read(fake_node("rocm-mi300")).notes["amd"]
    assert "/opt/rocm/lib/librccl.so.1.0.60200" == notes["rccl"]
    assert {"bus_id": "0000:05:00.0", "unique_id": "0x9e3779b97f4a7c16"} == notes["devices"]["0"]
