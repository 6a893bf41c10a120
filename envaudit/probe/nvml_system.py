"""The driver's side of NVML: versions, how many GPUs there are, confidential computing."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

from envaudit.probe.nvml_asker import Asker


def read_system(pynvml: Any) -> Tuple[Dict[str, Any], int]:
    """The driver's row, {"library", "init", "values", "errors", "not_examined"}, and its number of GPUs."""
    asker = Asker(pynvml, "NVML")
    row: Dict[str, Any] = {"library": _library_path(), "init": 0}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        code = getattr(error, "value", None)
        row["init"] = code
        asker.errors.append(f"NVML: nvmlInit: {error} (NVML {code})")
    # The library tells its own version also when it refuses to talk to the kernel module.
    asker.put("nvml", "nvmlSystemGetNVMLVersion")
    if not row["init"]:
        asker.put("driver", "nvmlSystemGetDriverVersion")
        asker.put("cuda", "nvmlSystemGetCudaDriverVersion")
        asker.put("count", "nvmlDeviceGetCount")
        known, state = asker.ask("nvmlSystemGetConfComputeState")
        if known:
            asker.values["confidential"] = _confidential(state)
    row.update(values=asker.values, errors=asker.errors, not_examined=asker.not_examined)
    return row, asker.values.get("count") or 0


def _confidential(state: Any) -> Optional[str]:
    """nvmlConfComputeSystemState_t in a word; `devtools` can be looked into."""
    if state is None:
        return None
    if not state.ccFeature:
        return "disabled"
    return "devtools" if state.devToolsMode else "enabled"


def _library_path() -> Optional[str]:
    """The mapped file, links followed: its name carries the driver's version."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            for line in maps:
                if "/libnvidia-ml.so" in line:
                    return line.split(None, 5)[5].strip()
    except (OSError, IndexError):
        pass
    return None
