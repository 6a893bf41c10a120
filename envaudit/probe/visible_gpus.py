"""Which GPUs the environment's variables leave to a process: how many, and in which form they are named."""

from __future__ import annotations

import re
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

# What NVIDIA_VISIBLE_DEVICES asked for when a container was made is all that NVML lists in it, and its
# numbers are the host's.
CUDA_VARIABLES = ("CUDA_VISIBLE_DEVICES",)
# HIP reads CUDA's as well (HIP documentation, environment variables).
HIP_VARIABLES = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


def visible(
    environ: Mapping[str, str],
    count: Optional[int],
    variables: Tuple[str, ...] = CUDA_VARIABLES,
    uuids: Optional[Sequence[str]] = None,
) -> Dict[str, Any]:
    """{"count", "form", "variable"}: form is all, index, uuid, mig, none or mixed.

    CUDA stops at the first entry that is no GPU of the machine (CUDA C++ Programming Guide,
    environment variables): `0,-1,1` is one GPU. One that is named twice leaves none (torch/cuda/__init__.py,
    _parse_visible_devices), and of MIG instances a process gets the first (MIG User Guide, CUDA device
    enumeration).

    Args:
        environ: the variables.
        count: how many GPUs there are; None where that is unknown.
        variables: the first of these that is set decides.
        uuids: those of all GPUs and MIG instances; None where they are unknown.
    """
    for variable in variables:
        value = environ.get(variable)
        if value is None:
            continue
        forms: Dict[str, str] = {}
        for entry in value.split(","):
            device, form = _meant(entry.strip(), count, uuids)
            if device is None or (forms and form == "mig"):
                break
            if device in forms:
                forms = {}
                break
            forms[device] = form
        kinds = sorted(set(forms.values()))
        form = "none" if not kinds else kinds[0] if len(kinds) == 1 else "mixed"
        return {"count": len(forms), "form": form, "variable": variable}
    return {"count": count, "form": "all", "variable": None}


def _meant(entry: str, count: Optional[int], uuids: Optional[Sequence[str]]) -> Tuple[Optional[str], str]:
    """The one device that an entry names, None for none, and the form in which it does."""
    if entry.startswith(("GPU-", "MIG-")):
        form = "uuid" if entry.startswith("GPU-") else "mig"
        if uuids is None:
            return entry, form
        if entry.startswith("MIG-GPU-"):  # as drivers before 470 named it: MIG-GPU-<uuid>/<instance>/<part>
            return (entry if entry[len("MIG-") :].partition("/")[0] in uuids else None), form
        # A UUID may be shortened to what is unique.
        found = [uuid for uuid in uuids if uuid.startswith(entry)]
        return (found[0] if len(found) == 1 else None), form
    number = re.match(r"\+?([0-9]{1,9})", entry)  # as strtoul(3) reads it: `1gpu` is 1
    if number and (count is None or int(number[1]) < count):
        return str(int(number[1])), "index"
    return None, "index"
