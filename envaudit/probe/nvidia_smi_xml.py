"""What `nvidia-smi -q -x` prints, read as NVML's facts and notes: same names, same units.

A pure function of the text, which may come from anywhere. The layout has grown with the drivers
(nvsmi_device_v10.dtd to v13); an element that is not there leaves its fact out, "N/A" is null.
Compute capability, NVLinks (see `nvlink_status`) and the mode of the GSP are not in it.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, NamedTuple, Optional

from envaudit.probe.xml_elements import Element, NotReadable, parse_xml

_GPUS_MAX = 256
_PROCESSES_MAX = _MIG_DEVICES_MAX = 64

# What nvidia-smi prints for a value that this GPU or driver does not have.
_ABSENT = {"", "n/a", "not supported", "requested functionality has been deprecated", "not available"}
_DENIED = {"insufficient permissions", "no permission"}
# What it prints in the place of any value of a card that does not answer, and the card's `state` then.
_FAILED = {"err!": "", "unknown error": "", "gpu is lost": "lost", "gpu requires reset": "reset_required"}
_WORDS = {
    "virtualization": {"pass-through": "passthrough", "vgpu": "vgpu"},
    "recovery_action": {"reset": "gpu_reset", "reboot": "node_reboot"},
}
# Multiprocessors in a slice of a MIG instance, where one number holds for all profiles (MIG User Guide).
_MULTIPROCESSORS_A_SLICE = {"Ampere": 14}
_MEMORY_SLICES = 8
# The elements of fabric/health, the text that is bad, and what NVML's bit for it is called.
_FABRIC_TROUBLES = (
    ("bandwidth", "Degraded", "degraded_bandwidth"),
    ("route_recovery_in_progress", "True", "route_recovery"),
    ("route_unhealthy", "True", "route_unhealthy"),
    ("access_timeout_recovery", "True", "access_timeout_recovery"),
    ("partition_assigned", "False", "no_partition"),
)
_KINDS = {"C": "compute", "G": "graphics", "C+G": "compute+graphics", "M": "mps", "M+C": "mps"}


class SmiReport(NamedTuple):
    """What the text says.

    Attributes:
        values: of the driver: `driver`, `cuda` ("12.4") and `count`, as far as they are told.
        devices: a row a GPU in their order: {"ordinal", "facts", "notes", "errors", "not_examined"}.
    """

    values: Dict[str, Any]
    devices: List[Dict[str, Any]]


def read_report(text: str) -> SmiReport:
    """The report in `text`.

    Raises:
        NotReadable: no XML, another document, entities, or beyond a limit.
    """
    top = parse_xml(text)
    if top.tag != "nvidia_smi_log":
        raise NotReadable(f"the document is {top.tag[:40]!r}, no nvidia_smi_log")
    gpus = list(top.all("gpu"))
    if len(gpus) > _GPUS_MAX:
        raise NotReadable(f"more than {_GPUS_MAX} GPUs")
    values: Dict[str, Any] = {}
    for name, tag in (("driver", "driver_version"), ("cuda", "cuda_version")):
        told = _plain(top.text_at(tag))
        if told is not None:
            values[name] = told
    attached = top.text_at("attached_gpus")
    values["count"] = int(attached) if attached and re.fullmatch(r"\d{1,4}", attached) else len(gpus)
    return SmiReport(values, [_Gpu(node, ordinal).row() for ordinal, node in enumerate(gpus)])


class _Gpu:
    """One `gpu` element."""

    def __init__(self, node: Element, ordinal: int) -> None:
        self.node = node
        self.ordinal = ordinal
        self.errors: List[str] = []
        self.not_examined: Dict[str, str] = {}
        self.values: Dict[str, Any] = {}
        self.state = ""
        self.only_noted = False  # a note that cannot be read makes nothing partial

    def row(self) -> Dict[str, Any]:
        self._identity()
        self._modes()
        self._limits()
        self._health()
        facts, self.values, self.only_noted = self.values, {}, True
        self._passing()
        notes = {name: value for name, value in self.values.items() if value is not None}
        if self.state:
            facts["state"] = self.state
        return {
            "ordinal": self.ordinal,
            "facts": facts,
            "notes": notes,
            "errors": self.errors,
            "not_examined": self.not_examined,
        }

    def _put(self, key: str, *paths: str, read: Any = str) -> None:
        """Keep what the first of the paths that is there says; a text that `read` refuses is an error."""
        for path in paths:
            told = self.node.text_at(path)
            if told is None:
                continue
            word = told.strip("[]").lower()
            if word in _ABSENT:
                self.values.setdefault(key, None)
                continue  # an older element may still say it
            if word in _DENIED:
                self.not_examined[f"GPU {self.ordinal}: {path}"] = told
                return
            self.state = _FAILED.get(word) or self.state
            try:
                if word in _FAILED:
                    raise ValueError(told)
                self.values[key] = read(told)
            except ValueError:
                if self.only_noted:
                    self.not_examined[f"GPU {self.ordinal}: {path}"] = told[:60]
                else:
                    self.errors.append(f"GPU {self.ordinal}: nvidia-smi says {told[:60]!r} for {path}")
                self.values.pop(key, None)
            return

    def _identity(self) -> None:
        self._put("product", "product_name")
        self._put("memory_bytes", "fb_memory_usage/total", read=_bytes)
        self._put("vbios", "vbios_version")
        self._put("inforom", "inforom_version/img_version")
        self._put("gsp_firmware", "gsp_firmware_version")
        self._put("virtualization", "gpu_virtualization_mode/virtualization_mode", read=_word)
        self._put("addressing", "addressing_mode", read=_word)

    def _modes(self) -> None:
        self._put("ecc", "ecc_mode/current_ecc", read=_word)
        self._put("ecc_pending", "ecc_mode/pending_ecc", read=_word)
        self._put("mig", "mig_mode/current_mig", read=_word)
        self._put("mig_pending", "mig_mode/pending_mig", read=_word)
        if "mig" in self.values:
            self._put_mig_instances()
        self._put("persistence", "persistence_mode", read=_word)
        self._put("compute_mode", "compute_mode", read=_word)

    def _put_mig_instances(self) -> None:
        """How many instances of each profile, where a report tells; the profile is told by size alone."""
        devices = self.node.at("mig_devices")
        if devices is None or self.values["mig"] != "enabled":
            self.values["mig_instances"] = None
            return
        counted: Dict[str, int] = {}
        total = _size(self.node, "fb_memory_usage/total")
        architecture = self.node.text_at("product_architecture") or ""
        for instance in list(devices.all("mig_device"))[:_MIG_DEVICES_MAX]:
            cores = instance.text_at("device_attributes/shared/multiprocessor_count") or ""
            memory = _size(instance, "fb_memory_usage/total")
            known = cores.isascii() and cores.isdigit()
            profile = mig_profile(architecture, total, int(cores) if known else None, memory)
            counted[profile] = counted.get(profile, 0) + 1
        self.values["mig_instances"] = counted

    def _limits(self) -> None:
        # What NVML calls the limit is the one that was asked for, not the one that heat enforces.
        readings = ("gpu_power_readings", "power_readings")
        limit = [f"gpu_power_readings/{name}" for name in ("requested_power_limit", "current_power_limit")]
        self._put("power_limit_mw", *limit, "power_readings/power_limit", read=_milliwatts)
        for kind in ("default", "min", "max"):
            paths = [f"{folder}/{kind}_power_limit" for folder in readings]
            self._put(f"power_limit_{kind}_mw", *paths, read=_milliwatts)
        for tag, name in (("graphics_clock", "graphics"), ("sm_clock", "sm"), ("mem_clock", "memory")):
            self._put(f"clock_max_{name}_mhz", f"max_clocks/{tag}", read=_number)
        for tag, name in (("graphics_clock", "graphics"), ("mem_clock", "memory")):
            self._put(f"clock_application_{name}_mhz", f"applications_clocks/{tag}", read=_number)
        link = "pci/pci_gpu_link_info"
        self._put("pcie_width", f"{link}/link_widths/current_link_width", read=_number)
        self._put("pcie_width_max", f"{link}/link_widths/max_link_width", read=_number)
        self._put("pcie_generation_max", f"{link}/pcie_gen/max_link_gen", read=_number)

    def _health(self) -> None:
        if (self.node.text_at("remapped_rows") or "").upper() == "N/A":
            self.values.update(remapped_pending=None, remapped_failure=None)
        self._put("remapped_pending", "remapped_rows/remapped_row_pending", read=_flag)
        self._put("remapped_failure", "remapped_rows/remapped_row_failure", read=_flag)
        pending = ("retired_pages/pending_retirement", "retired_pages/pending_blacklist")
        self._put("retired_pending", *pending, read=_flag)
        self._put("sram_threshold_exceeded", "ecc_errors/aggregate/sram_threshold_exceeded", read=_flag)
        self._put("recovery_action", "gpu_recovery_action", read=_word)
        resets = [
            self.node.text_at(f"gpu_reset_status/{name}")
            for name in ("reset_required", "drain_and_reset_recommended")
        ]
        if "recovery_action" not in self.values and resets[0] in ("Yes", "No"):
            drained = "drain_and_reset" if resets[1] == "Yes" else "none"
            self.values["recovery_action"] = "gpu_reset" if resets[0] == "Yes" else drained
        self._put("fabric_state", "fabric/state", read=_word)
        self._put("fabric_status", "fabric/status", read=_fabric_status)
        health = self.node.at("fabric/health")
        if health is not None:
            self.values["fabric_health"] = _fabric_troubles(health)

    def _passing(self) -> None:
        self._put("uuid", "uuid")
        self._put("serial", "serial")
        self.values["bus_id"] = self.node.attributes.get("id")
        self._put("bus_id", "pci/pci_bus_id")
        self._put("driver_model", "driver_model/current_dm", read=_word)
        self._put("temperature_c", "temperature/gpu_temp", read=_number)
        for tag, name in (("graphics_clock", "graphics"), ("sm_clock", "sm"), ("mem_clock", "memory")):
            self._put(f"clock_{name}_mhz", f"clocks/{tag}", read=_number)
        self._put("pcie_generation", "pci/pci_gpu_link_info/pcie_gen/current_link_gen", read=_number)
        self.values["throttle_reasons"] = _throttle_reasons(self.node)
        for kind, suffix in (("volatile", ""), ("aggregate", "_aggregate")):
            corrected, uncorrected = _ecc_counts(self.node.at(f"ecc_errors/{kind}"))
            self.values[f"ecc_corrected{suffix}"] = corrected
            self.values[f"ecc_uncorrected{suffix}"] = uncorrected
        rows = "remapped_rows/remapped_row"
        self._put("remapped_correctable", f"{rows}_corr", read=_number)
        self._put("remapped_uncorrectable", f"{rows}_unc", read=_number)
        pages = "retired_pages"
        single = f"{pages}/multiple_single_bit_retirement/retired_count"
        self._put("retired_pages_single_bit", single, read=_number)
        self._put("retired_pages_double_bit", f"{pages}/double_bit_retirement/retired_count", read=_number)
        for name, path in (("cluster", "fabric/clusterUuid"), ("clique", "fabric/cliqueId")):
            self._put(f"fabric_{name}", path)
        self.values["processes"] = _processes(self.node)
        self._memory()

    def _memory(self) -> None:
        """As NVML counts: the driver's reserve is used. Since DTD 11 nvidia-smi shows it apart."""
        used = _size(self.node, "fb_memory_usage/used")
        if used is None:
            return
        reserved = _size(self.node, "fb_memory_usage/reserved")
        self.values["memory_used_bytes"] = used + (reserved or 0)
        listed = self.values["processes"]
        if reserved is not None:
            self.values["memory_reserved_bytes"] = reserved
            if listed is not None:
                taken = sum(row["memory_bytes"] or 0 for row in listed)
                self.values["memory_hidden_bytes"] = max(0, used - taken)


def mig_profile(
    architecture: str, gpu_bytes: Optional[int], cores: Optional[int], instance_bytes: Optional[int]
) -> str:
    """`3g.40gb` of a MIG instance, or `46sm.24gb` where the slices cannot be told from the multiprocessors.

    A profile is named after its eighths of the GPU's memory, in whole GiB, the GPU's own rounded up
    first (MIG User Guide, supported profiles: 20 GiB are two eighths of 80).
    """
    if not gpu_bytes or not instance_bytes or not cores:
        return "unknown"
    whole_gib = -(-gpu_bytes // (1 << 30))
    slices = max(1, (2 * instance_bytes * _MEMORY_SLICES + gpu_bytes) // (2 * gpu_bytes))
    gib = (2 * whole_gib * slices + _MEMORY_SLICES) // (2 * _MEMORY_SLICES)
    each = _MULTIPROCESSORS_A_SLICE.get(architecture)
    return f"{cores // each}g.{gib}gb" if each and cores % each == 0 else f"{cores}sm.{gib}gb"


def _size(node: Element, path: str) -> Optional[int]:
    try:
        return _bytes(node.text_at(path) or "")
    except ValueError:
        return None


def _throttle_reasons(node: Element) -> Optional[List[str]]:
    """The active reasons, without the prefix that changed its name with driver 535."""
    for tag in ("clocks_event_reason", "clocks_throttle_reason"):
        reasons = node.at(tag + "s")
        if reasons is not None:
            active = [child.tag for child in reasons.children if child.text.strip() == "Active"]
            return [name[len(tag) + 1 :] for name in active if name.startswith(tag + "_")]
    return None


def _fabric_troubles(health: Element) -> Optional[List[str]]:
    """What is wrong with the fabric, in the words of `nvml_links`; None where nothing of it is told."""
    told = {child.tag: child.text.strip() for child in health.children}
    if all(text in ("", "N/A") for text in told.values()):
        return None
    return [name for tag, bad, name in _FABRIC_TROUBLES if told.get(tag) == bad] + (
        [] if told.get("incorrect_configuration", "N/A") in ("N/A", "None") else ["incorrect_configuration"]
    )


def _ecc_counts(counts: Optional[Element]) -> List[Optional[int]]:
    """Corrected and uncorrected errors: by kind of memory since DTD 11, before by bits, with a total."""
    sums: List[Optional[int]] = [None, None]
    for place, (old, new) in enumerate((("single_bit", "_correctable"), ("double_bit", "_uncorrectable"))):
        total = counts.text_at(f"{old}/total") if counts else None
        leaves = counts.children if counts and total is None else []
        texts = [total] if total is not None else [leaf.text.strip() for leaf in leaves if new in leaf.tag]
        told = [int(text) for text in texts if text.isascii() and text.isdigit()]
        sums[place] = sum(told) if told else None
    return sums


def _processes(node: Element) -> Optional[List[Dict[str, Any]]]:
    """The rows of process_info; None where the report has none of it. A name is the program's alone."""
    listed = node.at("processes")
    if listed is None:
        return None
    rows: List[Dict[str, Any]] = []
    for one in list(listed.all("process_info"))[:_PROCESSES_MAX]:
        pid = one.text_at("pid") or ""
        # A command line may hold secrets: only the name of the program.
        words = (one.text_at("process_name") or "").split()
        kind = one.text_at("type") or ""
        if re.fullmatch(r"\d{1,10}", pid):
            rows.append(
                {
                    "pid": int(pid),
                    "kind": _KINDS.get(kind, kind),
                    "name": words[0].rpartition("/")[2] if words else None,
                    "memory_bytes": _size(one, "used_memory"),
                }
            )
    return rows


def _plain(text: Optional[str]) -> Optional[str]:
    return None if text is None or text.strip("[]").lower() in _ABSENT else text


def _word(text: str) -> str:
    """`Exclusive_Process` is exclusive_process, `In Progress` in_progress."""
    word = text.lower()
    for words in _WORDS.values():
        word = words.get(word, word)
    if not re.fullmatch(r"[a-z0-9][a-z0-9 _-]{0,40}", word):
        raise ValueError(text)
    return word.replace(" ", "_").replace("-", "_")


def _flag(text: str) -> bool:
    if text not in ("Yes", "No"):
        raise ValueError(text)
    return text == "Yes"


def _fabric_status(text: str) -> Any:
    """NVML's number where nvidia-smi has a word for success, else its words."""
    return 0 if text == "Success" else text


def _number(text: str) -> int:
    """`1980 MHz`, `16x`, `41 C` and `4`."""
    match = re.fullmatch(r"(-?\d{1,9})\s*(?:MHz|x|C)?", text)
    if not match:
        raise ValueError(text)
    return int(match.group(1))


def _bytes(text: str) -> int:
    """`81559 MiB`."""
    match = re.fullmatch(r"(\d{1,9}) MiB", text)
    if not match:
        raise ValueError(text)
    return int(match.group(1)) << 20


def _milliwatts(text: str) -> int:
    """`700.00 W`."""
    match = re.fullmatch(r"(\d{1,6})(?:\.(\d{1,3}))? W", text)
    if not match:
        raise ValueError(text)
    return int(match.group(1)) * 1000 + int((match.group(2) or "").ljust(3, "0"))
