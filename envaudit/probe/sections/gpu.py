"""The GPUs: the driver's versions, what each card is and how it is set.

Facts, where NVIDIA GPUs are:

    platform       whose driver it is: "linux", "wsl" (the Windows driver) or "tegra" (a Jetson's chip)
    driver         "550.54.15", as NVML tells it
    cuda           "12.4", the newest CUDA the driver runs
    module, nvml   the loaded kernel module and libnvidia-ml: "as driver", or their own version
    flavour        of the kernel module, "open" or "proprietary"
    confidential   confidential computing: "disabled", "enabled" or "devtools"
    count          GPUs that NVML lists; MIG instances are no GPUs, a card's `mig_instances` counts them
    inventory      {"pci": 8, "proc": 8}: GPUs on the bus, and in /proc/driver/nvidia
    visible        {"count": 2, "form": "index", "variable": "CUDA_VISIBLE_DEVICES"}: those that a
                   process of this environment may use; form all, index, uuid, mig, none or mixed
    uvm            whether /dev/nvidia-uvm is there, without which CUDA does not start
    each           {"product": ..., "memory_bytes": ..., "ecc": "enabled", ...}: what most GPUs share
    devices        {"3": {"ecc": "disabled"}}: by ordinal, only what deviates from `each`
    fabric_manager {"switches": 4, "installed": true, "running": true, "version": "as driver"}; null
                   where there is no NVSwitch, and in a container, which does not see the service
    tegra          {"chip": "tegra234", "l4t": "36.4.0"} on a Jetson
    amd            {"driver", "rocm", "count", "visible", "each", "devices"} where AMD's GPUs are

Of a card: product, compute_capability, memory_bytes, vbios, inforom, gsp_firmware, gsp_mode, ecc and
mig with ecc_pending and mig_pending, mig_instances {"1g.10gb": 7}, persistence, compute_mode,
virtualization (none, passthrough, vgpu), addressing (none, hmm, ats), power_limit_mw with its
_default, _min and _max, clock_max_* and clock_application_* in MHz, pcie_width, pcie_width_max,
pcie_generation_max, remapped_pending, remapped_failure, retired_pending, sram_threshold_exceeded,
recovery_action (what the driver wants done: none, gpu_reset, node_reboot, ...), nvlinks, nvlinks_up,
nvlink_mbps, nvlink_version, fabric_state, fabric_status (0 is success) and fabric_health (what is
wrong, an empty list in a healthy fabric). `state` is there for a card that fell off, "lost", or that
waits for a reset, "reset_required".

So eight cards alike take one row, another driver is one difference, and one card with another ECC
mode is one difference, `devices/3/ecc`. For the same reason what follows the driver's version, the
cards' `gsp_firmware` too, says "as driver" where it does. All of a card is
`dict(each, **devices.get("3", {}))`; the majority decides what `each` has, the lowest ordinal among
equals. A value that a card or driver does not support is null or left out.

In a namespace or container without the device files and /proc/driver/nvidia, `module`, `uvm` and
`inventory` are null: not seen, which proves nothing. `inventory.pci` is null in any container, whose
/sys shows the host's cards while /proc/driver/nvidia shows those that it was given; it leaves out
cards that the host passes through to a virtual machine (driver vfio-pci).

Where NVML cannot be loaded, and on request (option `nvidia_smi`), `nvidia-smi -q -x` and
`nvidia-smi nvlink --status` are asked; they do not tell the compute capability. `source` is then
"nvidia-smi", and what NVML alone tells is held against nodes of the same source (`diff/launch.py`). A
Jetson without NVML has its GPU from the device tree.

Notes: `source` (nvml, nvidia-smi, device tree); `visible`, the variable's own text; `devices` by
ordinal: UUIDs, serials, bus ids, temperatures, clocks and PCIe generation now, throttle_reasons, ECC
counts since boot and for life, retired and remapped counts, MIG devices, the fabric's cluster,
`xid` counts by number, memory in use and `processes`; `other_drivers`, such as nouveau, by bus id;
`kernel_log`: how long after boot the oldest line was written of the log in which Xids were looked
for; `sxid` of NVSwitches; `amd`: bus ids of AMD's cards, and where ROCm has its RCCL.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional

from envaudit.probe import gpu_platform, nvml, pci_gpus
from envaudit.probe.context import Answer, Context
from envaudit.probe.families import cuda_version
from envaudit.probe.folding import fold
from envaudit.probe.virtualisation import container_kind
from envaudit.probe.visible_gpus import HIP_VARIABLES, visible

SCHEMA = 1
# Without persistence mode the driver initialises each card at the first call: seconds on eight.
DEADLINE_S = 30.0
NVML_TIMEOUT_S = 22.0
NVML_STALL_S = nvml.STALL_S
_SMI_TIMEOUT_S = 10.0
# These show the host's devices and /proc/driver/nvidia as they are.
_OPEN_CONTAINERS = ("none", "apptainer")


class _Reading:
    """One node: what was found on it, and the facts, notes and errors that come of it."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.facts: Dict[str, Any] = {}
        self.notes: Dict[str, Any] = {}
        self.errors: List[str] = []
        self.not_examined: Dict[str, str] = {}
        self.told = nvml.listen(context, NVML_TIMEOUT_S, NVML_STALL_S)
        self.platform = gpu_platform.platform_of(context)
        self.cards = pci_gpus.pci_cards(context)
        self.proc = pci_gpus.proc_count(context)
        self.module = pci_gpus.kernel_module(context)
        self.contained = container_kind(context) not in _OPEN_CONTAINERS
        if self.cards is None:
            self.not_examined["PCI inventory"] = "/sys/bus/pci/devices cannot be read"

    @property
    def system(self) -> Dict[str, Any]:
        """What NVML, or who stood in for it, says of the driver."""
        return self.told.system or {}

    @property
    def seen(self) -> bool:
        """Whether the kernel shows an NVIDIA GPU or driver, whatever the library says."""
        windows = self.platform == "wsl" and gpu_platform.has_windows_driver(self.context)
        return bool(self.cards or self.proc or self.module or windows)

    @property
    def not_given(self) -> bool:
        """Whether this is a container without any of the GPUs that /proc and /sys show of the host."""
        contained = self.contained and self.platform == "linux"
        return contained and not self.context.exists("/dev/nvidiactl")

    def answer(self) -> Answer:
        """All of it."""
        self._stand_in()
        amd = self._amd()
        if amd:
            self.facts["amd"] = amd
        if _nothing_from(self.system) and (not self.seen or self.not_given):
            return self._without_nvidia()
        self.facts["platform"] = self.platform
        self._add_system()
        self._add_devices()
        self._add_inventory()
        self._add_visible()
        drives = self.proc is not None or self.context.exists("/dev/nvidiactl")
        linux = self.platform == "linux"
        self.facts["uvm"] = self.context.exists("/dev/nvidia-uvm") if drives and linux else None
        if self.platform == "tegra":
            self.facts["tegra"] = gpu_platform.tegra_facts(self.context)
        if linux:
            self._add_services()
        nothing = self.told.system is None and not self.seen
        status = "error" if nothing or self.system.get("load_error") else "partial" if self.errors else "ok"
        return self._with_notes(status)

    def _with_notes(self, status: str) -> Answer:
        if self.not_examined:
            self.notes["not_examined"] = self.not_examined
        return Answer(status, self.facts, self.notes, self.errors)

    def _stand_in(self) -> None:
        """Ask nvidia-smi where NVML cannot be loaded, and complete a Jetson from its device tree."""
        system = self.system
        unusable = system.get("load_error")
        if system.get("init") in (nvml.LIBRARY_NOT_FOUND, nvml.FUNCTION_NOT_FOUND):
            unusable = "; ".join(system["errors"])
        if (unusable and self.seen and not self.not_given) or self.context.options.get("nvidia_smi"):
            from envaudit.probe import nvidia_smi

            try:
                self.told = nvidia_smi.listen_to_smi(self.context, _SMI_TIMEOUT_S)
                if unusable:
                    self.not_examined["NVML"] = unusable
            except nvidia_smi.SmiFailed as error:
                self.not_examined["nvidia-smi"] = str(error)
        if self.platform == "tegra" and (unusable or _nothing_from(system) or self.told.devices):
            self.told = gpu_platform.with_tegra_gpu(self.context, self.told)

    def _without_nvidia(self) -> Answer:
        """Absent, where that was seen; AMD's GPUs alone; what WSL hides is unknown."""
        if self.seen:
            self.notes["host_gpus"] = {"pci": len(self.cards or ()), "proc": self.proc}
        if self.platform == "wsl":
            unseen = "no NVIDIA driver is there, and of other makers' WSL shows nothing"
            self.not_examined["GPU behind /dev/dxg"] = unseen
            self.facts["platform"] = self.platform
        if self.facts:
            return self._with_notes("ok")
        if pci_gpus.bus_is_denied(self.context):
            self.errors = ["permission denied on the PCI bus: whether a GPU is there is unknown"]
            return self._with_notes("error")
        return self._with_notes("absent")

    def _add_system(self) -> None:
        """The driver's versions, and what kept NVML from telling more."""
        values = self.system.get("values", {})
        driver = values.get("driver")
        for name in ("driver", "count", "confidential"):
            if name in values:
                self.facts[name] = values[name]
        self.facts["module"] = as_driver(self.module.version if self.module else None, driver)
        self.facts["flavour"] = self.module.flavour if self.module else None
        if "nvml" in values:
            self.facts["nvml"] = as_driver(values["nvml"], driver)
        cuda = values.get("cuda")
        if cuda is not None:
            # NVML has a number, 12040; nvidia-smi the text that it stands for.
            self.facts["cuda"] = cuda_version(cuda) if isinstance(cuda, int) else cuda
        if self.system.get("load_error"):
            self.errors.append(self.system["load_error"])
        elif self.system.get("init") == nvml.VERSION_MISMATCH:
            library = _version_of(self.system.get("library")) or values.get("nvml")
            kernel = self.facts["module"] or "(its version is not visible here)"
            self.errors.append(
                f"kernel module {kernel} and libnvidia-ml {library} do not match"
                " (reboot, or reload the module)"
            )
        else:
            self.errors += self.system.get("errors", [])
        self.errors += self.told.troubles

    def _add_devices(self) -> None:
        self.notes["source"] = self.system.get("source", "nvml")
        if self.notes["source"] == "nvidia-smi":
            self.facts["source"] = "nvidia-smi"
        for row in [self.system, *self.told.devices]:
            self.not_examined.update(row.get("not_examined", {}))
        if "count" not in self.facts:
            return
        cards = {row["ordinal"]: dict(row["facts"]) for row in self.told.devices}
        for card in cards.values():
            if "gsp_firmware" in card:
                card["gsp_firmware"] = as_driver(card["gsp_firmware"], self.facts.get("driver"))
        self.facts["each"], self.facts["devices"] = fold(cards)
        self.notes["library"] = self.system.get("library")
        self.notes["nvml"] = self.system.get("values", {}).get("nvml")
        self.notes["devices"] = {str(row["ordinal"]): row["notes"] for row in self.told.devices}
        for row in self.told.devices:
            self.errors += row["errors"]

    def _add_inventory(self) -> None:
        """How many GPUs bus and module have; what fell off the bus is an error, what a guest holds a note."""
        count = self.facts.get("count")
        cards, proc = self.cards, self.proc
        if cards and self.contained:
            self.notes["host_gpus"] = {"pci": len(cards)}
            cards = None
        if cards:
            passed = [card.address for card in cards if card.driver == "vfio-pci"]
            if passed:
                self.notes["passed_through"] = passed
            cards = [card for card in cards if card.address not in passed]
            others = {card.address: card.driver for card in cards if card.driver not in (None, "nvidia")}
            if others:
                self.notes["other_drivers"] = others
            if count is None or count < len(cards):
                for address in pci_gpus.off_the_bus(self.context, cards):
                    gone = f"GPU at {address}: fallen off the bus, its PCI configuration reads as ones"
                    self.errors.append(gone)
        if count and not proc and not cards:
            cards = proc = None
        self.facts["inventory"] = {"pci": None if cards is None else len(cards), "proc": proc}

    def _add_visible(self) -> None:
        environ = self.context.environ
        self.facts["visible"] = visible(environ, self.facts.get("count"), uuids=self._uuids())
        variable = self.facts["visible"]["variable"]
        if variable:
            self.notes["visible"] = environ[variable][:1024]

    def _uuids(self) -> Optional[List[str]]:
        """Those of all cards and MIG instances; None where one is not told, as nvidia-smi's list has none."""
        if len(self.told.devices) != self.facts.get("count"):
            return None  # a card did not answer
        told: List[Optional[str]] = []
        for row in self.told.devices:
            told.append(row["notes"].get("uuid"))
            if row["facts"].get("mig") == "enabled":
                told += [one["uuid"] for one in row["notes"].get("mig_devices", [{"uuid": None}])]
        uuids = [uuid for uuid in told if uuid]
        return uuids if uuids and len(uuids) == len(told) else None

    def _add_services(self) -> None:
        """The fabric manager, and what the driver wrote into the kernel's log."""
        from envaudit.probe import fabric_manager, xid

        manager = fabric_manager.fabric_manager(self.context, self.not_examined)
        if manager:
            manager["version"] = as_driver(manager["version"], self.facts.get("driver"))
        self.facts["fabric_manager"] = manager
        try:
            log = xid.read_kernel_log(self.context)
        except OSError as error:
            self.not_examined["Xid lines of the kernel's log"] = error.strerror or str(error)
            return
        self.notes["kernel_log"] = {"since_s": log.since_s}
        others = dict(log.xids)
        for card in self.notes.get("devices", {}).values():
            found = others.pop(xid.normal_bus_id(str(card.get("bus_id", ""))), None)
            if found:
                card["xid"] = found
        if others:
            self.notes["xid_of_others"] = others
        if log.sxids:
            self.notes["sxid"] = log.sxids

    def _amd(self) -> Optional[Dict[str, Any]]:
        told = pci_gpus.amd(self.context)
        if told is None:
            return None
        each, devices = fold(dict(enumerate(told["gpus"])))
        cards = {str(ordinal): row for ordinal, row in enumerate(told["notes"])}
        self.notes["amd"] = {"devices": cards, "rccl": pci_gpus.rccl(self.context)}
        return {
            "driver": told["driver"],
            "rocm": told["rocm"],
            "count": told["count"],
            "visible": visible(self.context.environ, told["count"], HIP_VARIABLES),
            "each": each,
            "devices": devices,
        }


def read(context: Context) -> Answer:
    """What NVML, the PCI bus and the kernel modules say; absent where no GPU is and that was seen."""
    return _Reading(context).answer()


def _nothing_from(system: Dict[str, Any]) -> bool:
    """Whether there is no NVML, or one that waits for a driver that is not loaded."""
    return bool(system.get("absent")) or system.get("init") == nvml.DRIVER_NOT_LOADED


def as_driver(version: Optional[str], driver: Optional[str]) -> Optional[str]:
    """`version`, or "as driver" where it is the driver's; libnvidia-ml puts its CUDA major before that."""
    same = (
        version is not None and driver is not None and (version == driver or version.endswith("." + driver))
    )
    return "as driver" if same else version


def _version_of(library: Optional[str]) -> Optional[str]:
    match = re.search(r"\.so\.(\d+\.\d+(?:\.\d+)?)$", library or "")
    return match.group(1) if match else None
