"""What the driver reported of its GPUs since boot: Xid lines in the kernel's log.

A line is `NVRM: Xid (PCI:0000:18:00): 79, pid=1234, name=python, GPU has fallen off the bus.` (NVIDIA,
"XID Errors"); a MIG instance adds ` GPU-I:05` to the bus id, old drivers leave `PCI:` out. Those of
an NVSwitch are `nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, ...`.
"""

from __future__ import annotations

import ctypes
import os
import re
from typing import Dict, NamedTuple, Optional

from envaudit.probe.context import Context

# It begins with letters that are always there: the search then leaps over a log of megabytes.
_LINE = re.compile(
    r"Xid \((?:PCI:)?([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})[^)\n]{0,32}\): (\d{1,6})"
)
# Of a record: `6,3973,227996636,-;text` (Documentation/ABI/testing/dev-kmsg, microseconds since
# boot), or `<6>[  227.996636] text` and the same without its level.
_STAMPS = (re.compile(r"\d+,\d+,(\d+)\d{6},"), re.compile(r"(?:<\d+>)?\[\s*(\d+)\.\d+\]"))
# man 2 syslog.
_READ_ALL, _SIZE_BUFFER = 3, 10
_LIMIT_BYTES = 4 << 20
# Cards, and numbers of one card, that are told apart: more than there are, less than an answer holds.
_KINDS_MAX = 256


class KernelLog(NamedTuple):
    """What the log says of GPUs.

    Attributes:
        xids: how many of each number, by bus id: {"0000:18:00": {"79": 1}}.
        sxids: the same of NVSwitches.
        since_s: how long after boot the oldest line that is left was written; what came before is
            not known. None where lines carry no such time.
    """

    xids: Dict[str, Dict[str, int]]
    sxids: Dict[str, Dict[str, int]]
    since_s: Optional[int]


def read_kernel_log(context: Context) -> KernelLog:
    """The Xid lines of this boot that the kernel still holds.

    Raises:
        OSError: the log may not be read; most distributions give it to root alone.
    """
    if context.live:
        return xids_in(_kernel_log())
    return xids_in(context.read_text("/dev/kmsg", _LIMIT_BYTES))


def xids_in(text: str) -> KernelLog:
    """Xid lines counted, in any of the forms in which a kernel log is written down."""
    xids: Dict[str, Dict[str, int]] = {}
    sxids: Dict[str, Dict[str, int]] = {}
    for match in _LINE.finditer(text):
        counted = sxids if text[match.start() - 1 : match.start()] == "S" else xids
        bus_id, number = normal_bus_id(match.group(1)), str(int(match.group(2)))
        if bus_id in counted or len(counted) < _KINDS_MAX:
            of_card = counted.setdefault(bus_id, {})
            if number in of_card or len(of_card) < _KINDS_MAX:
                of_card[number] = of_card.get(number, 0) + 1
    stamp = next((match for match in (form.match(text) for form in _STAMPS) if match), None)
    return KernelLog(xids, sxids, int(stamp.group(1)) if stamp else None)


def normal_bus_id(text: str) -> str:
    """`0000:9b:00` of `00000000:9B:00.0` and `0000:9b:00`."""
    domain, _, rest = text.partition(":")
    return f"{domain[-4:].lower()}:{rest.partition('.')[0].lower()}"


def _kernel_log() -> str:
    """All of the ring buffer by one call; /dev/kmsg gives a record a read, thousands of them.

    Raises:
        OSError: not permitted.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    size = libc.klogctl(_SIZE_BUFFER, None, 0)
    buffer = ctypes.create_string_buffer(min(max(size, 0), _LIMIT_BYTES) or 1)
    length = libc.klogctl(_READ_ALL, buffer, len(buffer)) if size >= 0 else size
    if length < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "kernel log")
    return buffer.raw[:length].decode("utf-8", "replace")
