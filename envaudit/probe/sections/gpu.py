"""The GPUs: the driver's versions, what each card is and how it is set.

Facts, where NVIDIA GPUs are:

    driver         "550.54.15", as NVML tells it
    cuda           "12.4", the newest CUDA the driver runs
    module, nvml   the loaded kernel module and libnvidia-ml: "as driver", or their own version
    flavour        of the kernel module, "open" or "proprietary"
    count          GPUs that NVML lists
    inventory      {"pci": 8, "proc": 8}: GPUs on the bus, and in /proc/driver/nvidia
    visible        {"count": 2, "form": "index", "variable": "CUDA_VISIBLE_DEVICES"}: those that a
                   process of this environment may use; form all, index, uuid, mig, none or mixed
    uvm            whether /dev/nvidia-uvm is there, without which CUDA does not start
    each           {"product": ..., "memory_bytes": ..., "ecc": "enabled", ...}: what most GPUs share
    devices        {"3": {"ecc": "disabled"}}: by ordinal, only what deviates from `each`
    amd            {"driver", "rocm", "count", "each", "devices"} where AMD's GPUs are

So eight cards alike take one row, another driver is one difference, and one card with another ECC
mode is one difference, `devices/3/ecc`. For the same reason what follows the driver's version, the
cards' `gsp_firmware` too, says "as driver" where it does. All of a card is
`dict(each, **devices.get("3", {}))`; the majority decides what `each` has, the lowest ordinal among
equals. A value that a card or driver does not support is null or left out. `state` is there for a
card that fell off: "lost".

In a namespace or container without the device files and /proc/driver/nvidia, `module`, `uvm` and
`inventory` are null: not seen, which proves nothing.

Notes: UUIDs, serials, bus ids, temperatures, clocks, ECC counts, processes, by ordinal.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional, Tuple

from envaudit.probe import nvml, pci_gpus
from envaudit.probe.context import Answer, Context
from envaudit.probe.families import cuda_version
from envaudit.probe.folding import fold

SCHEMA = 1
# Without persistence mode the driver initialises each card at the first call: seconds on eight.
DEADLINE_S = 30.0
NVML_TIMEOUT_S = 25.0


def read(context: Context) -> Answer:
    """What NVML, the PCI bus and the kernel modules say; absent where no GPU is and that was seen."""
    told = nvml.listen(context, NVML_TIMEOUT_S)
    pci, proc = pci_gpus.pci_count(context), pci_gpus.proc_count(context)
    module = pci_gpus.kernel_module(context)
    amd = _amd(context)
    notes: Dict[str, Any] = {}
    if pci is None:
        notes["not_examined"] = {"PCI inventory": "/sys/bus/pci/devices cannot be read"}
    seen_by_kernel = bool(pci or proc or module)
    if _nothing_from(told) and (not seen_by_kernel or _not_given(context)):
        if seen_by_kernel:
            notes["host_gpus"] = {"pci": pci, "proc": proc}
        if amd:
            return Answer("ok", {"amd": amd}, notes)
        if pci_gpus.bus_is_denied(context):
            return Answer(
                "error", {}, notes, ["permission denied on the PCI bus: whether a GPU is there is unknown"]
            )
        return Answer("absent", {}, notes)
    facts, errors = _system_facts(told, module)
    _add_devices(facts, notes, errors, told)
    if facts.get("count") and not proc and not pci:
        pci = proc = None
    facts["inventory"] = {"pci": pci, "proc": proc}
    facts["visible"] = visible(context.environ, facts.get("count"))
    drives = proc is not None or context.exists("/dev/nvidiactl")
    facts["uvm"] = context.exists("/dev/nvidia-uvm") if drives else None
    if amd:
        facts["amd"] = amd
    return Answer(_status(told, seen_by_kernel, errors), facts, notes, errors)


def _nothing_from(told: nvml.Told) -> bool:
    """Whether there is no NVML, or one that waits for a driver that is not loaded."""
    system = told.system or {}
    return bool(system.get("absent")) or system.get("init") == nvml.DRIVER_NOT_LOADED


def _not_given(context: Context) -> bool:
    """Whether this is a container that was given none of the host's GPUs, which /proc and /sys show."""
    signs = ("/.dockerenv", "/run/.containerenv")
    contained = any(map(context.exists, signs)) or "KUBERNETES_SERVICE_HOST" in context.environ
    return contained and not context.exists("/dev/nvidiactl")


def _status(told: nvml.Told, seen_by_kernel: bool, errors: List[str]) -> str:
    nothing = told.system is None and not seen_by_kernel
    if nothing or (told.system or {}).get("load_error"):
        return "error"
    return "partial" if errors else "ok"


def _system_facts(
    told: nvml.Told, module: Optional[pci_gpus.KernelModule]
) -> Tuple[Dict[str, Any], List[str]]:
    """The driver's versions, and what kept NVML from telling more."""
    system = told.system or {}
    values = system.get("values", {})
    facts: Dict[str, Any] = {name: values[name] for name in ("driver", "count") if name in values}
    facts["module"] = as_driver(module.version if module else None, values.get("driver"))
    facts["flavour"] = module.flavour if module else None
    if "nvml" in values:
        facts["nvml"] = as_driver(values["nvml"], values.get("driver"))
    if values.get("cuda") is not None:
        facts["cuda"] = cuda_version(values["cuda"])
    errors: List[str] = []
    if system.get("load_error"):
        errors.append(system["load_error"])
    elif system.get("init") == nvml.VERSION_MISMATCH:
        library = _version_of(system.get("library")) or values.get("nvml")
        kernel = facts["module"] or "(its version is not visible here)"
        errors.append(
            f"kernel module {kernel} and libnvidia-ml {library} do not match (reboot, or reload the module)"
        )
    else:
        errors += system.get("errors", [])
    if told.trouble:
        after = f" after GPU {len(told.devices) - 1}" if told.devices else ""
        errors.append(f"NVML{after}: {told.trouble}")
    return facts, errors


def as_driver(version: Optional[str], driver: Optional[str]) -> Optional[str]:
    """`version`, or "as driver" where it is the driver's; libnvidia-ml puts its CUDA major before that."""
    same = (
        version is not None and driver is not None and (version == driver or version.endswith("." + driver))
    )
    return "as driver" if same else version


def _version_of(library: Optional[str]) -> Optional[str]:
    match = re.search(r"\.so\.(\d+\.\d+(?:\.\d+)?)$", library or "")
    return match.group(1) if match else None


def _add_devices(facts: Dict[str, Any], notes: Dict[str, Any], errors: List[str], told: nvml.Told) -> None:
    if "count" not in facts:
        return
    cards = {row["ordinal"]: dict(row["facts"]) for row in told.devices}
    for card in cards.values():
        if "gsp_firmware" in card:
            card["gsp_firmware"] = as_driver(card["gsp_firmware"], facts.get("driver"))
    facts["each"], facts["devices"] = fold(cards)
    if told.system:
        notes["library"] = told.system.get("library")
        notes["nvml"] = told.system.get("values", {}).get("nvml")
    notes["devices"] = {str(row["ordinal"]): row["notes"] for row in told.devices}
    for row in [told.system or {}, *told.devices]:
        if row.get("not_examined"):
            notes.setdefault("not_examined", {}).update(row["not_examined"])
    for row in told.devices:
        errors += row["errors"]


def visible(environ: Any, count: Optional[int]) -> Dict[str, Any]:
    """How many GPUs CUDA would see, and in which form they are named.

    CUDA stops at the first entry that is no GPU of the machine (CUDA C++ Programming Guide,
    environment variables): `0,-1,1` is one GPU. NVIDIA_VISIBLE_DEVICES is what a container asked for.
    """
    for variable in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):
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


def _amd(context: Context) -> Optional[Dict[str, Any]]:
    told = pci_gpus.amd(context)
    if told is None:
        return None
    each, devices = fold(dict(enumerate(told["gpus"])))
    return {
        "driver": told["driver"],
        "rocm": told["rocm"],
        "count": told["count"],
        "each": each,
        "devices": devices,
    }
