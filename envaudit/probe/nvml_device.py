"""One GPU as NVML describes it: what is compared between nodes, and what is only noted.

A call that this driver or GPU does not support is no fault: its value is None. Any other refusal
is an error, and the value is left out, because it is unknown. Names and units are those of nvml.h.
"""

from __future__ import annotations

import ctypes
from typing import Any, Dict, List

from envaudit.probe.nvml_asker import GPU_IS_LOST, INVALID_ARGUMENT, NOT_FOUND, RESET_REQUIRED, Asker
from envaudit.probe.nvml_links import read_fabric, read_links
from envaudit.probe.nvml_processes import read_processes

# A GPU that fails every call alike, by how the error texts end.
_STATES = {f"(NVML {GPU_IS_LOST})": "lost", f"(NVML {RESET_REQUIRED})": "reset_required"}

# nvml.h: nvmlEnableState_t, nvmlComputeMode_t, nvmlGpuVirtualizationMode_t, nvmlDeviceAddressingModeType_t.
_SWITCH = {0: "disabled", 1: "enabled"}
_COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
_VIRTUALIZATION = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host_vgpu", 4: "host_vsga"}
_ADDRESSING = {0: "none", 1: "hmm", 2: "ats"}
_DRIVER_MODELS = {0: "wddm", 1: "wdm", 2: "mcdm"}
# nvml.h, NVML_FI_DEV_GET_GPU_RECOVERY_ACTION and the two that it replaced.
_RECOVERY_ACTION, _RESET_STATUS, _DRAIN_STATUS = 230, 226, 227
_RECOVERY_ACTIONS = {
    0: "none",
    1: "gpu_reset",
    2: "node_reboot",
    3: "drain_p2p",
    4: "drain_and_reset",
    5: "recover_imex_domain",
    6: "bus_reset",
    7: "system_reboot",
}
# nvml.h, nvmlClocksEventReason*: what holds the clocks down, bit by bit; named as nvidia-smi names them.
_THROTTLE_REASONS = (
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "display_clocks_setting",
)
_GRAPHICS, _SM, _MEMORY = 0, 1, 2  # nvmlClockType_t
_CORRECTED, _UNCORRECTED, _VOLATILE, _AGGREGATE = 0, 1, 0, 1
_SINGLE_BIT, _DOUBLE_BIT = 0, 1  # nvmlPageRetirementCause_t
_MIG_DEVICES_MAX = 64


def read_device(pynvml: Any, ordinal: int) -> Dict[str, Any]:
    """One GPU's row: {"ordinal", "facts", "notes", "errors", "not_examined"}."""
    return _Device(pynvml, ordinal).row()


class _Device(Asker):
    """One GPU: what is compared, and what is only noted."""

    def __init__(self, pynvml: Any, ordinal: int) -> None:
        super().__init__(pynvml, f"GPU {ordinal}")
        self.ordinal = ordinal
        self.handle: Any = None
        self.memory: Any = None
        self.notes: Dict[str, Any] = {}

    def row(self) -> Dict[str, Any]:
        _, self.handle = self.ask("nvmlDeviceGetHandleByIndex", self.ordinal)
        if self.handle is None:
            return self._row({})
        self._identity()
        self._modes()
        self._limits()
        self._remapped_rows()
        self.notes.update(read_links(self, self.handle))
        self.notes.update(read_fabric(self, self.handle))
        # What few drivers and GPUs tell: that one does not is no reason to call the node half read.
        self.only_noted = True
        self._driven()
        self._health()
        facts = {name: value for name, value in self.values.items() if value != ""}
        self.values = {}
        self._passing()
        self.notes.update({name: value for name, value in self.values.items() if value is not None})
        self.notes.update(read_processes(self, self.handle, self.memory))
        return self._row(facts)

    def _row(self, facts: Dict[str, Any]) -> Dict[str, Any]:
        errors = self.errors
        for ending, state in _STATES.items():
            alike = [text for text in errors if text.endswith(ending)]
            if alike:
                facts["state"] = state
                more = f", and {len(alike) - 1} more calls" if len(alike) > 1 else ""
                errors = [alike[0] + more, *(text for text in errors if text not in alike)]
        return {
            "ordinal": self.ordinal,
            "facts": facts,
            "notes": self.notes,
            "errors": errors,
            "not_examined": self.not_examined,
        }

    def _identity(self) -> None:
        self.put("product", "nvmlDeviceGetName", self.handle)
        known, capability = self.ask("nvmlDeviceGetCudaComputeCapability", self.handle)
        if known:
            self.values["compute_capability"] = ".".join(map(str, capability)) if capability else None
        known, self.memory = self.ask("nvmlDeviceGetMemoryInfo", self.handle)
        if known:
            self.values["memory_bytes"] = self.memory.total if self.memory else None
        self.put("vbios", "nvmlDeviceGetVbiosVersion", self.handle)
        self.put("inforom", "nvmlDeviceGetInforomImageVersion", self.handle)
        self.put("gsp_firmware", "nvmlDeviceGetGspFirmwareVersion", self.handle)

    def _modes(self) -> None:
        self.put_named(("ecc", "ecc_pending"), _SWITCH, "nvmlDeviceGetEccMode", self.handle)
        self.put_named(("mig", "mig_pending"), _SWITCH, "nvmlDeviceGetMigMode", self.handle)
        if "mig" in self.values:
            self.values["mig_instances"] = self._mig_instances() if self.values["mig"] == "enabled" else None
        self.put_named("persistence", _SWITCH, "nvmlDeviceGetPersistenceMode", self.handle)
        self.put_named("compute_mode", _COMPUTE_MODES, "nvmlDeviceGetComputeMode", self.handle)

    def _mig_instances(self) -> Dict[str, int]:
        """How many instances of each profile, such as {"1g.10gb": 7}; what they are called is noted."""
        counted: Dict[str, int] = {}
        named: List[Dict[str, Any]] = []
        _, most = self.ask("nvmlDeviceGetMaxMigDeviceCount", self.handle)
        for index in range(min(most or 0, _MIG_DEVICES_MAX)):
            quiet = (NOT_FOUND, INVALID_ARGUMENT)
            _, instance = self.ask("nvmlDeviceGetMigDeviceHandleByIndex", self.handle, index, quiet=quiet)
            if instance is None:
                continue
            _, name = self.ask("nvmlDeviceGetName", instance)
            _, uuid = self.ask("nvmlDeviceGetUUID", instance)
            profile = str(name).rpartition("MIG ")[2]
            counted[profile] = counted.get(profile, 0) + 1
            named.append({"uuid": uuid, "profile": profile})
        self.notes["mig_devices"] = named
        return counted

    def _limits(self) -> None:
        self.put("power_limit_mw", "nvmlDeviceGetPowerManagementLimit", self.handle)
        self.put("power_limit_default_mw", "nvmlDeviceGetPowerManagementDefaultLimit", self.handle)
        bounds = ("power_limit_min_mw", "power_limit_max_mw")
        self.put(bounds, "nvmlDeviceGetPowerManagementLimitConstraints", self.handle)
        for kind, name in ((_GRAPHICS, "graphics"), (_SM, "sm"), (_MEMORY, "memory")):
            self.put(f"clock_max_{name}_mhz", "nvmlDeviceGetMaxClockInfo", self.handle, kind)
        for kind, name in ((_GRAPHICS, "graphics"), (_MEMORY, "memory")):
            self.put(f"clock_application_{name}_mhz", "nvmlDeviceGetApplicationsClock", self.handle, kind)
        self.put("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth", self.handle)
        self.put("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth", self.handle)
        self.put("pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration", self.handle)

    def _remapped_rows(self) -> None:
        known, rows = self.ask("nvmlDeviceGetRemappedRows", self.handle)
        if known:
            self.values["remapped_pending"] = bool(rows[2]) if rows else None
            self.values["remapped_failure"] = bool(rows[3]) if rows else None
        if rows:
            self.notes["remapped_correctable"], self.notes["remapped_uncorrectable"] = rows[:2]

    def _driven(self) -> None:
        """How the GPU is driven: by its own firmware, in a virtual machine, in which address space."""
        known, mode = self.ask("nvmlDeviceGetGspFirmwareMode", self.handle)
        if known:
            self.values["gsp_mode"] = _SWITCH[bool(mode[0])] if mode else None
        self.put_named("virtualization", _VIRTUALIZATION, "nvmlDeviceGetVirtualizationMode", self.handle)
        self.put_named("addressing", _ADDRESSING, "nvmlDeviceGetAddressingMode", self.handle)

    def _health(self) -> None:
        """What is wrong with memory and chip beside remapped rows, and what the driver wants done."""
        # Before Ampere pages are retired where rows are remapped since.
        known, pending = self.ask("nvmlDeviceGetRetiredPagesPendingStatus", self.handle)
        if known:
            self.values["retired_pending"] = None if pending is None else bool(pending)
        self._sram()
        told = self.fields(self.handle, _RECOVERY_ACTION, _RESET_STATUS, _DRAIN_STATUS)
        action = told.get(_RECOVERY_ACTION)
        if action is None and _RESET_STATUS in told:
            action = 1 if told[_RESET_STATUS] else 4 if told.get(_DRAIN_STATUS) else 0
        named = _RECOVERY_ACTIONS.get(action or 0, str(action))
        self.values["recovery_action"] = None if action is None else named

    def _sram(self) -> None:
        """Whether uncorrectable SRAM errors passed the threshold beyond which the GPU is to be replaced."""
        status = getattr(self.pynvml, "c_nvmlEccSramErrorStatus_v1_t", lambda: None)()
        if status is None:
            return
        known, answer = self.ask("nvmlDeviceGetSramEccErrorStatus", self.handle, ctypes.byref(status))
        if known:
            exceeded = None if answer is None else bool(status.bThresholdExceeded)
            self.values["sram_threshold_exceeded"] = exceeded

    def _passing(self) -> None:
        """What differs on every node and at every moment."""
        self.put("uuid", "nvmlDeviceGetUUID", self.handle)
        self.put("serial", "nvmlDeviceGetSerial", self.handle)
        _, pci = self.ask("nvmlDeviceGetPciInfo", self.handle)
        if pci is not None:
            bus_id = pci.busId
            self.values["bus_id"] = (
                bus_id.decode("ascii", "replace") if isinstance(bus_id, bytes) else str(bus_id)
            )
        self.put_named(
            ("driver_model", "driver_model_pending"), _DRIVER_MODELS, "nvmlDeviceGetDriverModel", self.handle
        )
        self.put("temperature_c", "nvmlDeviceGetTemperature", self.handle, 0)
        for kind, name in ((_GRAPHICS, "graphics"), (_SM, "sm"), (_MEMORY, "memory")):
            self.put(f"clock_{name}_mhz", "nvmlDeviceGetClockInfo", self.handle, kind)
        self.put("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration", self.handle)
        _, reasons = self.ask("nvmlDeviceGetCurrentClocksEventReasons", self.handle)
        if reasons is None:
            _, reasons = self.ask("nvmlDeviceGetCurrentClocksThrottleReasons", self.handle)
        self.values["throttle_reasons"] = None if reasons is None else throttle_reasons(reasons)
        for kind, name in ((_CORRECTED, "corrected"), (_UNCORRECTED, "uncorrected")):
            self.put(f"ecc_{name}", "nvmlDeviceGetTotalEccErrors", self.handle, kind, _VOLATILE)
            self.put(f"ecc_{name}_aggregate", "nvmlDeviceGetTotalEccErrors", self.handle, kind, _AGGREGATE)
        for cause, name in ((_SINGLE_BIT, "single_bit"), (_DOUBLE_BIT, "double_bit")):
            _, pages = self.ask("nvmlDeviceGetRetiredPages", self.handle, cause)
            self.values[f"retired_pages_{name}"] = None if pages is None else len(pages)


def throttle_reasons(mask: int) -> List[str]:
    """The names of what holds the clocks down; a bit without a name is `bit_9`."""
    named = [name for bit, name in enumerate(_THROTTLE_REASONS) if mask >> bit & 1]
    return named + [f"bit_{bit}" for bit in range(len(_THROTTLE_REASONS), 64) if mask >> bit & 1]
