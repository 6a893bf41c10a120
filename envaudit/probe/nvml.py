"""NVIDIA's management library asked through pynvml, one JSON line an answer.

The driver may hang or crash in any call, so all of this runs in a forked child that writes what it
knows as soon as it knows it. A GPU at which it hangs or crashes costs itself: another child asks
those after it. The lines are {"system": ...}, then {"device": {...}} by ordinal, then {"end": true}.

A healthy node is asked in one session. Not asked is what takes tens of milliseconds a GPU: PCIe
throughput (NVML samples it for 20 ms), supported clocks, and counters of each NVLink.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import select
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

from envaudit.probe import child
from envaudit.probe.context import Context
from envaudit.probe.program import is_inside

LIBRARY = "libnvidia-ml.so.1"
# Where WSL has the libraries of the Windows driver; a loader cache without it is no absent driver.
_WSL_LIBRARY = "/usr/lib/wsl/lib/" + LIBRARY
_LIMIT_BYTES = 1 << 20
# How long one GPU may keep quiet once the driver has answered. All calls together take some
# milliseconds; with a GPU in trouble the driver waits up to six seconds for its firmware.
STALL_S = 8.0

# nvml.h, nvmlReturn_t.
DRIVER_NOT_LOADED, VERSION_MISMATCH = 9, 18
LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND = 12, 13


class Told(NamedTuple):
    """What NVML said before it ended.

    Attributes:
        system: the driver's row; None where nothing came.
        devices: the rows of the GPUs that answered, by ordinal from 0.
        troubles: what crashed or hung, and how; empty where all came to its end.
    """

    system: Optional[Dict[str, Any]]
    devices: List[Dict[str, Any]]
    troubles: List[str]


def listen(context: Context, timeout_s: float, stall_s: float = STALL_S) -> Told:
    """Ask NVML, for at most `timeout_s`; a fake node has the lines as the list `nvml` of its node.json."""
    if context.live:
        of_prefix = _of_prefix(context) if context.static else None
        if of_prefix:
            text = f"{of_prefix}: lies in {context.static}, of which nothing is executed"
            # Whether there is a GPU the kernel says; as where no library is, nvidia-smi then tells of it.
            return Told(_no_library(text, absent=True)["system"], [], [])
        return _ask(time.monotonic() + timeout_s, stall_s)
    text = f"the driver's library does not load: {LIBRARY}: No such file or directory"
    absent = [_no_library(text, absent=True), {"end": True}]
    hearing = _Hearing()
    for line in context.node.get("nvml", absent):
        hearing.take(line)
    return Told(
        hearing.system, hearing.devices, [] if hearing.whole else ["NVML: the recorded answer is cut short"]
    )


def _ask(deadline: float, stall_s: float) -> Told:
    """Child after child, until the last GPU has answered or been given up."""
    told = Told(None, [], [])
    first = 0
    while True:
        hearing = _Hearing()
        trouble = hearing.listen(first, deadline, stall_s)
        told = told._replace(system=told.system or hearing.system, devices=[*told.devices, *hearing.devices])
        if trouble is None:
            return told
        if hearing.system is None:
            # With the first child nothing is known; a later one says that the driver is stuck as a whole.
            told.troubles.append(
                f"NVML: {trouble}" if not first else f"NVML, GPU {first} and after: {trouble}"
            )
            return told
        stuck = first + len(hearing.devices)
        told.troubles.append(f"GPU {stuck}: NVML: {trouble}")
        first = stuck + 1
        if first >= hearing.count or time.monotonic() >= deadline:
            return told


class _Hearing:
    """What one child says, line by line."""

    def __init__(self) -> None:
        self.system: Optional[Dict[str, Any]] = None
        self.devices: List[Dict[str, Any]] = []
        self.whole = False

    @property
    def count(self) -> int:
        """How many GPUs the driver says there are."""
        values = (self.system or {}).get("values", {})
        return int(values.get("count") or 0)

    def take(self, row: Dict[str, Any]) -> None:
        """One line."""
        self.system = row.get("system", self.system)
        self.whole = self.whole or "end" in row
        if "device" in row:
            self.devices.append(row["device"])

    def listen(self, first: int, deadline: float, stall_s: float) -> Optional[str]:
        """Ask from GPU `first` on; why it broke off, None where it came to its end."""
        left_s = deadline - time.monotonic()
        pid, fd = child.fork(lambda pipe: _write_lines(pipe, first), left_s)
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        said, size_bytes, silent = bytearray(), 0, False
        try:
            while not self.whole and not silent:
                allowed_s = min(stall_s, left_s) if self.system else left_s
                silent = not poller.poll(max(0.0, allowed_s) * 1000)
                chunk = b"" if silent else os.read(fd, 1 << 16)
                size_bytes += len(chunk)
                if not chunk or size_bytes > _LIMIT_BYTES:
                    break
                said += chunk
                while b"\n" in said:
                    line, _, said = said.partition(b"\n")
                    self.take(json.loads(line.decode("ascii", "replace")))
                left_s = deadline - time.monotonic()
        finally:
            os.close(fd)
            status = child.end(pid) if silent else child.reap(pid)
        if self.whole:
            return None
        # In whole seconds, so that nodes that hang alike say the same.
        return f"no answer within {math.ceil(allowed_s)} s" if silent else child.how_it_ended(status)


def _write_lines(fd: int, first: int) -> None:
    for line in _lines(first):
        child.write_all(fd, (json.dumps(line) + "\n").encode("ascii"))


def _lines(first: int) -> Iterator[Dict[str, Any]]:
    try:
        _load()
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
    from envaudit.probe.nvml_device import read_device
    from envaudit.probe.nvml_system import read_system

    row, count = read_system(pynvml)
    yield {"system": row}
    for ordinal in range(first, count):
        yield {"device": read_device(pynvml, ordinal)}
    yield {"end": True}


def _load() -> None:
    """Load the library; pynvml, which loads it by its name, then gets the same one.

    Raises:
        OSError: it does not load; the text is the loader's.
    """
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        if not os.path.exists(_WSL_LIBRARY):
            raise
        ctypes.CDLL(_WSL_LIBRARY)


def _of_prefix(context: Context) -> Optional[str]:
    """The library where the loader would take it out of the prefix that is only to be read.

    LD_LIBRARY_PATH comes first, in its order; it separates folders by `:` or `;` (man 8 ld.so).
    """
    folders = context.environ.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":")
    paths = (os.path.abspath(os.path.join(folder, LIBRARY)) for folder in folders)
    first = next((path for path in paths if os.path.exists(path)), None)
    return first if first and is_inside(context.static, first) else None


def _no_library(text: str, *, absent: bool) -> Dict[str, Any]:
    return {"system": {"load_error": text, "absent": absent}}
