"""The driver's side of NVML: versions, how many GPUs there are, confidential computing."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

from envaudit.probe.nvml_asker import Asker

# More than any node has (the kernel module knows 64, NV_MAX_DEVICES), less than takes all the time.
_GPUS_MAX = 256


def read_system(pynvml: Any) -> Tuple[Dict[str, Any], int]:
    """The driver's row, {"library", "init", "values", "errors", "not_examined"}, and how many GPUs to ask."""
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
    count = asker.values.get("count") or 0
    if count > _GPUS_MAX:
        asker.errors.append(f"NVML counts {count} GPUs; {_GPUS_MAX} are asked")
    row.update(values=asker.values, errors=asker.errors, not_examined=asker.not_examined)
    return row, min(count, _GPUS_MAX)


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
