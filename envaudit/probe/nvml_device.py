"""One GPU as NVML describes it: what is compared between nodes, and what is only noted.

A call that this driver or GPU does not support is no fault: its value is None. Any other refusal
is an error, and the value is left out, because it is unknown. Names and units are those of nvml.h.
"""

from __future__ import annotations

import ctypes
import os
import pwd
from typing import Any, Callable, Dict, List, Optional, Tuple

# nvml.h, nvmlReturn_t.
_INVALID_ARGUMENT, _NOT_SUPPORTED, _NO_PERMISSION, _NOT_FOUND = 2, 3, 4, 6
_FUNCTION_NOT_FOUND, _GPU_IS_LOST = 13, 15
_HEALTHY_REFUSALS = (_NOT_SUPPORTED, _FUNCTION_NOT_FOUND)
_LOST_ENDING = f"(NVML {_GPU_IS_LOST})"

_COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
_FABRIC_STATES = {1: "not_started", 2: "in_progress", 3: "completed"}
_LINKS_MAX = 36
_FIELD_NVLINK_SPEED_MBPS = 90  # NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON
_GRAPHICS, _SM, _MEMORY = 0, 1, 2  # nvmlClockType_t
_CORRECTED, _UNCORRECTED, _VOLATILE = 0, 1, 0


def read_device(pynvml: Any, ordinal: int) -> Dict[str, Any]:
    """One GPU's row: {"ordinal", "facts", "notes", "errors", "not_examined"}."""
    return _Device(pynvml, ordinal).row()


class Asker:
    """Calls of pynvml whose refusals become values or error texts."""

    def __init__(self, pynvml: Any, subject: str) -> None:
        self.pynvml = pynvml
        self.subject = subject
        self.errors: List[str] = []
        self.not_examined: Dict[str, str] = {}
        self.values: Dict[str, Any] = {}
        # Of what is only noted, a refusal is noted too; it makes nothing partial.
        self.only_noted = False

    def put(self, keys: Any, function: str, *arguments: Any) -> None:
        """Ask and keep the answer under a key, or a list of answers under several."""
        names = (keys,) if isinstance(keys, str) else keys
        known, answer = self.ask(function, *arguments)
        if known and answer is None:
            self.values.update(dict.fromkeys(names))
        elif known:
            self.values.update(zip(names, (answer,) if isinstance(keys, str) else answer))

    def ask(self, function: str, *arguments: Any, quiet: Tuple[int, ...] = ()) -> Tuple[bool, Any]:
        """(True, answer), (True, None) where it is not supported, (False, None) where it is unknown.

        `quiet` are further return codes that mean "not here".
        """
        try:
            call: Callable[..., Any] = getattr(self.pynvml, function)
        except AttributeError:
            return True, None  # an older pynvml
        try:
            answer = call(*arguments)
        except self.pynvml.NVMLError as error:
            code = getattr(error, "value", None)
            if code in _HEALTHY_REFUSALS or code in quiet:
                return True, None
            if code == _NO_PERMISSION or self.only_noted:
                self.not_examined[f"{self.subject}: {function}"] = str(error)
                return False, None
            self.errors.append(f"{self.subject}: {function}: {error} (NVML {code})")
            return False, None
        return True, answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer


class _Device(Asker):
    """One GPU: what is compared, and what is only noted."""

    def __init__(self, pynvml: Any, ordinal: int) -> None:
        super().__init__(pynvml, f"GPU {ordinal}")
        self.ordinal = ordinal
        self.handle: Any = None
        self.fabric: Any = None

    def row(self) -> Dict[str, Any]:
        _, self.handle = self.ask("nvmlDeviceGetHandleByIndex", self.ordinal)
        if self.handle is None:
            return self._row({}, {})
        self._identity()
        self._modes()
        self._limits()
        self._links()
        facts = {name: value for name, value in self.values.items() if value != ""}
        self.values, self.only_noted = {}, True
        self._passing()
        notes = {name: value for name, value in self.values.items() if value is not None}
        return self._row(facts, notes)

    def _row(self, facts: Dict[str, Any], notes: Dict[str, Any]) -> Dict[str, Any]:
        if any(text.endswith(_LOST_ENDING) for text in self.errors):
            facts["state"] = "lost"
        return {
            "ordinal": self.ordinal,
            "facts": facts,
            "notes": notes,
            "errors": self._once(),
            "not_examined": self.not_examined,
        }

    def _once(self) -> List[str]:
        """The errors; of a lost GPU, which fails every call alike, the first and how many."""
        lost = [text for text in self.errors if text.endswith(_LOST_ENDING)]
        if not lost:
            return self.errors
        rest = [text for text in self.errors if text not in lost]
        more = f", and {len(lost) - 1} more calls" if len(lost) > 1 else ""
        return [lost[0] + more, *rest]

    def _identity(self) -> None:
        self.put("product", "nvmlDeviceGetName", self.handle)
        known, capability = self.ask("nvmlDeviceGetCudaComputeCapability", self.handle)
        if known:
            self.values["compute_capability"] = ".".join(map(str, capability)) if capability else None
        known, memory = self.ask("nvmlDeviceGetMemoryInfo", self.handle)
        if known:
            self.values["memory_bytes"] = memory.total if memory else None
        self.put("vbios", "nvmlDeviceGetVbiosVersion", self.handle)
        self.put("inforom", "nvmlDeviceGetInforomImageVersion", self.handle)
        self.put("gsp_firmware", "nvmlDeviceGetGspFirmwareVersion", self.handle)

    def _modes(self) -> None:
        for name, function in (("ecc", "nvmlDeviceGetEccMode"), ("mig", "nvmlDeviceGetMigMode")):
            self.put((name, name + "_pending"), function, self.handle)
            for key in (name, name + "_pending"):
                if self.values.get(key) is not None:
                    self.values[key] = _on_off(self.values[key])
        if "mig" in self.values:
            self.values["mig_instances"] = self._mig_instances() if self.values["mig"] == "enabled" else None
        self.put("persistence", "nvmlDeviceGetPersistenceMode", self.handle)
        if self.values.get("persistence") is not None:
            self.values["persistence"] = _on_off(self.values["persistence"])
        self.put("compute_mode", "nvmlDeviceGetComputeMode", self.handle)
        mode = self.values.get("compute_mode")
        if mode is not None:
            self.values["compute_mode"] = _COMPUTE_MODES.get(mode, str(mode))

    def _mig_instances(self) -> Dict[str, int]:
        """How many instances of each profile, such as {"1g.10gb": 7}."""
        counted: Dict[str, int] = {}
        _, most = self.ask("nvmlDeviceGetMaxMigDeviceCount", self.handle)
        for index in range(min(most or 0, 64)):
            quiet = (_NOT_FOUND, _INVALID_ARGUMENT)
            _, instance = self.ask("nvmlDeviceGetMigDeviceHandleByIndex", self.handle, index, quiet=quiet)
            if instance is None:
                continue
            _, name = self.ask("nvmlDeviceGetName", instance)
            profile = str(name).rpartition("MIG ")[2]
            counted[profile] = counted.get(profile, 0) + 1
        return counted

    def _limits(self) -> None:
        self.put("power_limit_mw", "nvmlDeviceGetPowerManagementLimit", self.handle)
        self.put("power_limit_default_mw", "nvmlDeviceGetPowerManagementDefaultLimit", self.handle)
        for kind, name in ((_GRAPHICS, "graphics"), (_SM, "sm"), (_MEMORY, "memory")):
            self.put(f"clock_max_{name}_mhz", "nvmlDeviceGetMaxClockInfo", self.handle, kind)
        for kind, name in ((_GRAPHICS, "graphics"), (_MEMORY, "memory")):
            self.put(f"clock_application_{name}_mhz", "nvmlDeviceGetApplicationsClock", self.handle, kind)
        self.put("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth", self.handle)
        self.put("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth", self.handle)
        self.put("pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration", self.handle)
        known, rows = self.ask("nvmlDeviceGetRemappedRows", self.handle)
        if known:
            self.values["remapped_pending"] = bool(rows[2]) if rows else None
            self.values["remapped_failure"] = bool(rows[3]) if rows else None

    def _links(self) -> None:
        up, seen = 0, 0
        for link in range(_LINKS_MAX):
            known, state = self.ask("nvmlDeviceGetNvLinkState", self.handle, link, quiet=(_INVALID_ARGUMENT,))
            if not known:
                return
            if state is not None:
                seen += 1
                up += bool(state)
            elif not seen and link >= 1:
                break  # no NVLink here: two answers are enough
        self.values["nvlinks"] = seen or None
        self.values["nvlinks_up"] = up if seen else None
        if seen:
            known, fields = self.ask("nvmlDeviceGetFieldValues", self.handle, [_FIELD_NVLINK_SPEED_MBPS])
            if known:
                usable = bool(fields) and fields[0].nvmlReturn == 0
                self.values["nvlink_mbps"] = int(fields[0].value.ullVal) if usable else None
        self._fabric()

    def _fabric(self) -> None:
        """The NVLink fabric's state; None where the GPU is in none (PCIe cards, before Hopper)."""
        info = getattr(self.pynvml, "c_nvmlGpuFabricInfo_v2_t", None)
        if info is None:
            return
        self.fabric = info()
        known, answer = self.ask("nvmlDeviceGetGpuFabricInfoV", self.handle, ctypes.byref(self.fabric))
        if not known:
            return
        state = self.fabric.state & 0xFF  # one byte in nvml.h, four in pynvml: the rest is padding
        in_one = answer is not None and state != 0
        self.values["fabric_state"] = _FABRIC_STATES.get(state, str(state)) if in_one else None
        self.values["fabric_status"] = int(self.fabric.status) if in_one else None
        self.values["fabric_health"] = f"{self.fabric.healthMask:#x}" if in_one else None

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
        self.put("temperature_c", "nvmlDeviceGetTemperature", self.handle, 0)
        for kind, name in ((_GRAPHICS, "graphics"), (_SM, "sm"), (_MEMORY, "memory")):
            self.put(f"clock_{name}_mhz", "nvmlDeviceGetClockInfo", self.handle, kind)
        self.put("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration", self.handle)
        _, reasons = self.ask("nvmlDeviceGetCurrentClocksEventReasons", self.handle)
        if reasons is None:
            _, reasons = self.ask("nvmlDeviceGetCurrentClocksThrottleReasons", self.handle)
        self.values["throttle_reasons"] = f"{reasons:#x}" if reasons is not None else None
        for kind, name in ((_CORRECTED, "corrected"), (_UNCORRECTED, "uncorrected")):
            self.put(f"ecc_{name}", "nvmlDeviceGetTotalEccErrors", self.handle, kind, _VOLATILE)
        _, memory = self.ask("nvmlDeviceGetMemoryInfo", self.handle)
        self.values["memory_used_bytes"] = memory.used if memory else None
        _, rows = self.ask("nvmlDeviceGetRemappedRows", self.handle)
        if rows:
            self.values["remapped_correctable"], self.values["remapped_uncorrectable"] = rows[0], rows[1]
        if self.fabric is not None and self.fabric.state & 0xFF:
            self.values["fabric_cluster"] = bytes(self.fabric.clusterUuid).hex()
            self.values["fabric_clique"] = int(self.fabric.cliqueId)
        self._processes()

    def _processes(self) -> None:
        _, processes = self.ask("nvmlDeviceGetComputeRunningProcesses", self.handle)
        if processes is not None:
            self.values["processes"] = [
                {"pid": one.pid, "user": _owner(one.pid), "memory_bytes": one.usedGpuMemory}
                for one in processes[:64]
            ]


def _on_off(value: int) -> str:
    return "enabled" if value else "disabled"


def _owner(pid: int) -> Optional[str]:
    """The user of a process; None for one in another pid namespace, or gone."""
    try:
        uid = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
