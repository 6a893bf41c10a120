"""The GPUs that the kernel sees, whatever the driver's library says: PCI, /proc/driver/nvidia, KFD."""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List, NamedTuple, Optional

from envaudit.probe.context import Context

_PCI = "/sys/bus/pci/devices"
_PROC = "/proc/driver/nvidia"
_KFD = "/sys/class/kfd/kfd/topology/nodes"
_NVIDIA = "0x10de"
# PCI base class 03, subclasses VGA and 3D controller (PCI Code and ID Assignment, 1.3).
_GPU_CLASSES = ("0x0300", "0x0302")
# kfd_crat.h, heap types of a memory bank: frame buffer, visible to the host or not.
_FRAME_BUFFERS = ("1", "2")


class KernelModule(NamedTuple):
    """NVIDIA's kernel module that is loaded: its version, and whether it is the open one."""

    version: Optional[str]
    flavour: str


class Card(NamedTuple):
    """An NVIDIA GPU on the PCI bus: its address, and the kernel driver that holds it."""

    address: str
    driver: Optional[str]


def pci_cards(context: Context) -> Optional[List[Card]]:
    """The NVIDIA GPUs on the PCI bus; None where the bus cannot be read."""
    try:
        names = context.list_dir(_PCI)
    except OSError:
        return None
    return [
        Card(name, _driver(context, name))
        for name in names
        if context.peek(f"{_PCI}/{name}/vendor") == _NVIDIA
        and (context.peek(f"{_PCI}/{name}/class") or "").startswith(_GPU_CLASSES)
    ]


def _driver(context: Context, name: str) -> Optional[str]:
    try:
        return os.path.basename(context.readlink(f"{_PCI}/{name}/driver"))
    except OSError:
        return None


def off_the_bus(context: Context, cards: List[Card]) -> List[str]:
    """The addresses whose configuration space reads as ones: nothing answers there (`rev ff` of lspci).

    Reading wakes a GPU that sleeps, so only where one is missed.
    """
    gone = []
    for card in cards:
        try:
            head = context.read_head(f"{_PCI}/{card.address}/config", 4)
        except OSError:
            continue
        if head == b"\xff" * 4:
            gone.append(card.address)
    return gone


def bus_is_denied(context: Context) -> bool:
    """Whether there is a PCI bus that may not be looked at: then nobody can say that no GPU is there."""
    try:
        context.list_dir(_PCI)
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def proc_count(context: Context) -> Optional[int]:
    """How many GPUs NVIDIA's kernel module holds; None where it is not loaded, or not visible."""
    try:
        return len(context.list_dir(f"{_PROC}/gpus"))
    except OSError:
        return None


def kernel_module(context: Context) -> Optional[KernelModule]:
    """NVIDIA's kernel module, None where it is not loaded, or not visible.

    The first line is `NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar ...`, or
    `... NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build ...`.
    """
    try:
        text = context.read_text(f"{_PROC}/version", 1 << 14)
    except OSError:
        return None
    line = next((line for line in text.splitlines() if line.startswith("NVRM version:")), "")
    match = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", line + " ")
    flavour = "open" if "Open Kernel Module" in line else "proprietary"
    return KernelModule(match.group(1) if match else None, flavour)


def amd(context: Context) -> Optional[Dict[str, Any]]:
    """AMD's GPUs as KFD lists them: {"driver", "rocm", "count", "gpus": [...], "notes": [...]}.

    None where there is none. `driver` is the version of the amdgpu module, null for the kernel's
    own; a GPU has `gfx` (gfx942), `memory_bytes` and `compute_units`, a note its `bus_id` and
    `unique_id`.
    """
    gpus: List[Dict[str, Any]] = []
    notes: List[Dict[str, Any]] = []
    try:
        names = sorted((name for name in context.list_dir(_KFD) if name.isdigit()), key=int)
    except OSError:
        return None
    for name in names:
        told = _properties(context, f"{_KFD}/{name}/properties")
        target = _number(told, "gfx_target_version")
        if target:
            per_unit = _number(told, "simd_per_cu") or 4
            gpus.append(
                {
                    "gfx": gfx_name(target),
                    "memory_bytes": _memory_bytes(context, f"{_KFD}/{name}/mem_banks"),
                    "compute_units": _number(told, "simd_count") // per_unit,
                }
            )
            notes.append({"bus_id": _bus_id(told), "unique_id": f"{_number(told, 'unique_id'):#x}"})
    if not gpus:
        return None
    return {
        "driver": context.peek("/sys/module/amdgpu/version"),
        "rocm": context.peek("/opt/rocm/.info/version"),
        "count": len(gpus),
        "gpus": gpus,
        "notes": notes,
    }


def rccl(context: Context) -> Optional[str]:
    """Where ROCm's own RCCL lies, links followed: its name carries the version; None where there is none."""
    from envaudit.probe.loader import resolve_links

    path = "/opt/rocm/lib/librccl.so.1"
    return resolve_links(context, path) if context.exists(path) else None


def _bus_id(told: Dict[str, str]) -> str:
    """kfd_topology.c: bus, device and function as PCI packs them into 16 bits, beside the domain."""
    place = _number(told, "location_id")
    return f"{_number(told, 'domain'):04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.{place & 7}"


def gfx_name(target: int) -> str:
    """KFD's decimal gfx_target_version as the compiler names it: 90402 is gfx942, 90010 is gfx90a."""
    return f"gfx{target // 10000}{target // 100 % 100:x}{target % 100:x}"


def _memory_bytes(context: Context, folder: str) -> int:
    try:
        banks = context.list_dir(folder)
    except OSError:
        return 0
    told = [_properties(context, f"{folder}/{bank}/properties") for bank in banks]
    return sum(_number(bank, "size_in_bytes") for bank in told if bank.get("heap_type") in _FRAME_BUFFERS)


def _properties(context: Context, path: str) -> Dict[str, str]:
    pairs = [line.split() for line in (context.peek(path) or "").splitlines()]
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def _number(told: Dict[str, str], key: str) -> int:
    text = told.get(key, "")
    return int(text) if text.isascii() and text.isdigit() else 0
