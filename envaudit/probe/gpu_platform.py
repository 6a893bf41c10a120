"""Whose driver runs the GPU: Linux's own, Windows' through WSL, or that of a Jetson's chip.

The last two have no NVIDIA device on PCI, no /proc/driver/nvidia and no /dev/nvidia-uvm, and are
healthy. A Jetson's NVML is absent (before JetPack 6) or tells little.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Optional

from envaudit.probe.context import Context
from envaudit.probe.nvml import Told

_COMPATIBLE = "/proc/device-tree/compatible"
_WSL_DRIVER = "/usr/lib/wsl/lib/libcuda.so.1"
# NVIDIA, "CUDA GPU Compute Capability", Jetson products, by the chip of each module.
_CAPABILITIES = {
    "tegra210": "5.3",
    "tegra186": "6.2",
    "tegra194": "7.2",
    "tegra234": "8.7",
    "tegra264": "11.0",
}


def platform_of(context: Context) -> str:
    """`linux`, `wsl` or `tegra`."""
    if context.exists("/dev/dxg"):
        return "wsl"
    signs = ("/etc/nv_tegra_release", "/sys/module/nvgpu")
    if any(map(context.exists, signs)) or _chip(context):
        return "tegra"
    return "linux"


def has_windows_driver(context: Context) -> bool:
    """Whether WSL brings libraries of NVIDIA's Windows driver: /dev/dxg is there for every maker's GPU."""
    return context.exists(_WSL_DRIVER)


def tegra_facts(context: Context) -> Dict[str, Optional[str]]:
    """The chip and the release of its Linux: {"chip": "tegra234", "l4t": "36.4.0"}.

    The first line of /etc/nv_tegra_release is `# R36 (release), REVISION: 4.0, GCID: ...`.
    """
    text = context.peek("/etc/nv_tegra_release") or ""
    match = re.match(r"# R(\d+) \(release\), REVISION: (\d+(?:\.\d+)*)", text)
    return {"chip": _chip(context), "l4t": f"{match.group(1)}.{match.group(2)}" if match else None}


def with_tegra_gpu(context: Context, told: Told) -> Told:
    """What NVML says of a Jetson, completed with its one GPU where NVML is absent or leaves things open."""
    card: Dict[str, Any] = {
        "product": (context.peek("/proc/device-tree/model") or "").strip("\0") or None,
        "compute_capability": _CAPABILITIES.get(_chip(context) or ""),
    }
    blank: Dict[str, Any] = {"ordinal": 0, "facts": {}, "notes": {}, "errors": [], "not_examined": {}}
    row = told.devices[0] if told.devices else blank
    open_ones = {key: value for key, value in card.items() if row["facts"].get(key) is None}
    notes = dict(row["notes"])
    if open_ones.get("compute_capability"):
        notes["compute_capability_source"] = f"table by chip, {_COMPATIBLE}"
    whole = {**row, "facts": {**row["facts"], **open_ones}, "notes": notes}
    if told.devices:
        return told._replace(devices=[whole, *told.devices[1:]])
    return Told({"init": 0, "values": {"count": 1}, "source": "device tree"}, [whole], told.troubles)


def _chip(context: Context) -> Optional[str]:
    """`tegra234`; the device tree's `compatible` is a list of texts that end with a zero byte."""
    match = re.search(r"nvidia,(tegra\d+)(?:\0|$)", context.peek(_COMPATIBLE) or "")
    return match.group(1) if match else None
