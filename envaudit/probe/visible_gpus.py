"""Which GPUs the environment's variables leave to a process: how many, and in which form they are named."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Tuple

CUDA_VARIABLES = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
# HIP reads CUDA's as well (HIP documentation, environment variables).
HIP_VARIABLES = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


def visible(
    environ: Mapping[str, str], count: Optional[int], variables: Tuple[str, ...] = CUDA_VARIABLES
) -> Dict[str, Any]:
    """{"count", "form", "variable"}: form is all, index, uuid, mig, none or mixed.

    CUDA stops at the first entry that is no GPU of the machine (CUDA C++ Programming Guide,
    environment variables): `0,-1,1` is one GPU. NVIDIA_VISIBLE_DEVICES is what a container asked for.
    """
    for variable in variables:
        value = environ.get(variable)
        if value is None or value.strip() == "all":
            continue
        if variable == "NVIDIA_VISIBLE_DEVICES" and value.strip() in ("", "void"):
            continue
        forms = []
        for entry in value.split(","):
            form = _form(entry.strip(), count)
            if form is None:
                break
            forms.append(form)
        kinds = sorted(set(forms))
        form = "none" if not kinds else kinds[0] if len(kinds) == 1 else "mixed"
        return {"count": len(forms), "form": form, "variable": variable}
    return {"count": count, "form": "all", "variable": None}


def _form(entry: str, count: Optional[int]) -> Optional[str]:
    if entry.startswith("GPU-"):
        return "uuid"
    if entry.startswith("MIG-"):
        return "mig"
    if entry.isascii() and entry.isdigit() and (count is None or int(entry) < count):
        return "index"
    return None
