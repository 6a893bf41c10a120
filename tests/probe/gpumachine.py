"""A machine whose NVML is the stand-in library, and the parts of fake nodes with GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from envaudit.probe.context import Answer
from tests.conftest import PACKAGE_HOME
from tests.probe import fakenvml

READ = """
import json, os, sys
from envaudit.probe.context import Context
from envaudit.probe.sections import gpu
for name in sys.argv[4:]:
    import pynvml
    delattr(pynvml, name)
gpu.NVML_TIMEOUT_S, gpu.NVML_STALL_S = float(sys.argv[1]), float(sys.argv[2])
options = json.loads(sys.argv[3])
context = Context(environ=dict(os.environ), workdir="/", launch="local", interpreter={}, options=options)
print(json.dumps(gpu.read(context)._asdict()))
"""


class Machine:
    """This machine with a library that stands for NVML."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.library = fakenvml.build(str(folder / "lib"))

    def read(
        self,
        timeout_s: float = 20,
        stall_s: float = 5,
        environ: Optional[Dict[str, str]] = None,
        without: Sequence[str] = (),
        options: Optional[Dict[str, Any]] = None,
        **state: object,
    ) -> Answer:
        """The section's answer, from a process of its own that finds the library on LD_LIBRARY_PATH.

        Args:
            timeout_s: the time for all of NVML.
            stall_s: the time for one GPU.
            environ: further variables.
            without: what an older pynvml lacks.
            options: what the section is told.
            state: keys of the library's state file, see `fakenvml.write_state`.
        """
        variables = {"LD_LIBRARY_PATH": os.path.dirname(self.library), "PYTHONPATH": str(PACKAGE_HOME)}
        variables["FAKENVML_CONF"] = fakenvml.write_state(str(self.folder / "state"), **state)
        ran = subprocess.run(
            [sys.executable, "-B", "-c", READ, str(timeout_s), str(stall_s), json.dumps(options), *without],
            env={**variables, **(environ or {})},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return Answer(**json.loads(ran.stdout))


# What each of eight healthy H100 has.
EACH = {
    "addressing": "none",
    "clock_application_graphics_mhz": 1980,
    "clock_application_memory_mhz": 2619,
    "clock_max_graphics_mhz": 1980,
    "clock_max_memory_mhz": 2619,
    "clock_max_sm_mhz": 1980,
    "compute_capability": "9.0",
    "compute_mode": "default",
    "ecc": "enabled",
    "ecc_pending": "enabled",
    "fabric_health": [],
    "fabric_state": "completed",
    "fabric_status": 0,
    "gsp_firmware": "as driver",
    "gsp_mode": "enabled",
    "inforom": "G520.0200.00.05",
    "memory_bytes": 81559 << 20,
    "mig": "disabled",
    "mig_pending": "disabled",
    "nvlink_mbps": 26562,
    "nvlink_version": "4.0",
    "nvlinks": 18,
    "nvlinks_up": 18,
    "pcie_generation_max": 5,
    "pcie_width": 16,
    "pcie_width_max": 16,
    "persistence": "enabled",
    "power_limit_default_mw": 700000,
    "power_limit_max_mw": 700000,
    "power_limit_min_mw": 200000,
    "power_limit_mw": 700000,
    "product": "NVIDIA H100 80GB HBM3",
    "recovery_action": "none",
    "remapped_failure": False,
    "remapped_pending": False,
    "sram_threshold_exceeded": False,
    "vbios": "96.00.74.00.01",
    "virtualization": "none",
}


VERSION = "NVRM version: NVIDIA UNIX {}  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version:  gcc 12.3.0\n"
PROC = {"/proc/driver/nvidia/version": VERSION.format("x86_64 Kernel Module")}


def pci(count: int, vendor: str = "0x10de", kind: str = "0x030200") -> Dict[str, str]:
    """Files of PCI devices."""
    files = {}
    for index in range(count):
        files[f"/sys/bus/pci/devices/0000:{index + 16:02x}:00.0/vendor"] = vendor + "\n"
        files[f"/sys/bus/pci/devices/0000:{index + 16:02x}:00.0/class"] = kind + "\n"
    return files


def proc(count: int) -> Dict[str, str]:
    """Files of /proc/driver/nvidia."""
    gpus = {f"/proc/driver/nvidia/gpus/0000:{index + 16:02x}:00.0/information": "" for index in range(count)}
    return {**PROC, **gpus}


def lines(count: int, **system: Any) -> List[Dict[str, Any]]:
    """NVML's lines for a fake node."""
    values = {"driver": "550.54.15", "nvml": "12.550.54.15", "cuda": 12040, "count": count}
    row = {"library": "/usr/lib/libnvidia-ml.so.550.54.15", "init": 0, "values": values, "errors": []}
    devices = [
        {"ordinal": index, "facts": {"ecc": "enabled"}, "notes": {}, "errors": [], "not_examined": {}}
        for index in range(count)
    ]
    return [{"system": {**row, **system}}, *({"device": device} for device in devices), {"end": True}]
