"""NVIDIA's management library asked through pynvml, one JSON line an answer.

The driver may hang or crash in any call, so all of this runs in a forked child that writes what it
knows as soon as it knows it: a GPU that hangs costs itself and those after it. The lines are
{"system": ...}, then {"device": {...}} by ordinal, then {"end": true}.

A call that this driver or GPU does not support is no fault: its value is None. Any other refusal
is an error, and the value is left out, because it is unknown.
"""

from __future__ import annotations

import ctypes
import json
import os
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

from envaudit.probe import child
from envaudit.probe.context import Context
from envaudit.probe.nvml_device import Asker, read_device

LIBRARY = "libnvidia-ml.so.1"
_LIMIT_BYTES = 1 << 20

# nvml.h, nvmlReturn_t.
DRIVER_NOT_LOADED, VERSION_MISMATCH = 9, 18


class Told(NamedTuple):
    """What NVML said before it ended.

    Attributes:
        system: the driver's row; None where nothing came.
        devices: the rows of the GPUs that answered, by ordinal from 0.
        trouble: why it ended early: crashed, hung; None where it came to its end.
    """

    system: Optional[Dict[str, Any]]
    devices: List[Dict[str, Any]]
    trouble: Optional[str]


def listen(context: Context, timeout_s: float) -> Told:
    """Ask NVML, for at most `timeout_s`; a fake node has the lines as the list `nvml` of its node.json."""
    if context.live:
        pid, fd = child.fork(_write_lines, timeout_s)
        try:
            (said,), late = child.read_until([fd], time.monotonic() + timeout_s, _LIMIT_BYTES)
        finally:
            os.close(fd)
            status = child.end(pid)
        trouble = f"no answer within {timeout_s:g} s" if late else child.how_it_ended(status)
        return _told(said.decode("ascii", "replace"), trouble)
    text = f"the driver's library does not load: {LIBRARY}: No such file or directory"
    absent = [_no_library(text, absent=True), {"end": True}]
    lines = context.node.get("nvml", absent)
    return _told("\n".join(map(json.dumps, lines)), "the recorded answer is cut short")


def _told(text: str, trouble: str) -> Told:
    system: Optional[Dict[str, Any]] = None
    devices: List[Dict[str, Any]] = []
    whole = False
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            break  # cut off in the middle
        system = row.get("system", system)
        whole = whole or "end" in row
        if "device" in row:
            devices.append(row["device"])
    return Told(system, devices, None if whole else trouble)


def _write_lines(fd: int) -> None:
    for line in _lines():
        child.write_all(fd, (json.dumps(line) + "\n").encode("ascii"))


def _lines() -> Iterator[Dict[str, Any]]:
    try:
        ctypes.CDLL(LIBRARY)
    except OSError as error:
        # pynvml takes a broken library for an absent one; the loader's words tell them apart.
        text = str(error)
        absent = text.startswith(LIBRARY) and "No such file" in text
        yield _no_library(f"the driver's library does not load: {text}", absent=absent)
        yield {"end": True}
        return
    # 8,000 lines to compile where no bytecode is at hand: only for who has the library.
    try:
        import pynvml
    except ImportError as error:
        yield _no_library(f"NVML cannot be asked: {error} (install nvidia-ml-py)", absent=False)
        yield {"end": True}
        return
    system = _System(pynvml)
    yield {"system": system.row()}
    for ordinal in range(system.count):
        yield {"device": read_device(pynvml, ordinal)}
    yield {"end": True}


def _no_library(text: str, *, absent: bool) -> Dict[str, Any]:
    return {"system": {"load_error": text, "absent": absent}}


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


class _System(Asker):
    """The driver's side: versions and how many GPUs there are."""

    def __init__(self, pynvml: Any) -> None:
        super().__init__(pynvml, "NVML")
        self.count = 0

    def row(self) -> Dict[str, Any]:
        row: Dict[str, Any] = {"library": _library_path(), "init": 0}
        try:
            self.pynvml.nvmlInit()
        except self.pynvml.NVMLError as error:
            code = getattr(error, "value", None)
            row["init"] = code
            self.errors.append(f"NVML: nvmlInit: {error} (NVML {code})")
        # The library tells its own version also when it refuses to talk to the kernel module.
        self.put("nvml", "nvmlSystemGetNVMLVersion")
        if not row["init"]:
            self.put("driver", "nvmlSystemGetDriverVersion")
            self.put("cuda", "nvmlSystemGetCudaDriverVersion")
            self.put("count", "nvmlDeviceGetCount")
            self.count = self.values.get("count") or 0
        row.update(values=self.values, errors=self.errors, not_examined=self.not_examined)
        return row
