"""Which road NCCL took between ranks, read from what it writes itself.

NCCL says at its level INFO how each connection is made (src/transport/{p2p,shm,net}.cc: `Channel 00/0 :
0[0] -> 1[1] via P2P/CUMEM`, `[send] via NET/IB/0/GDRDMA`) and which network it uses (src/init.cc: `Using
network Socket`). It writes that into the file that NCCL_DEBUG_FILE names, where %p is the process.

Of each rank:

    version    "2.27.5+cuda12.9"
    network    "IB", "Socket", or a plugin's own name
    devices    ["mlx5_0:1/IB", ...] or ["eth0:10.0.0.1"]: what that network is made of
    nvls       whether NVLink SHARP is there, null where NCCL says nothing of it
    local      {"P2P/CUMEM": 24}: connections to ranks of the same node, by their way
    remote     {"NET/IB/GDRDMA": 8}: to ranks of others
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from typing import Any, Collection, Dict, List, Optional

_FILE_LIMIT_BYTES = 8 << 20
_MAX_FILES = 256
_MAX_DEVICES = 32
_MAX_WAYS = 16
_PREFIX = "envaudit-nccl-"

_VERSION = re.compile(r"NCCL version (\d[\w.+-]{0,40})")
_NETWORK = re.compile(r"NCCL INFO Using network ([\w .+-]{1,60}?)\s*$")
_DEVICES = re.compile(r"NCCL INFO NET/[\w.+-]{1,40} ?: Using (.{0,4000})")
_DEVICE = re.compile(r"\[\d{1,4}\]([^\s;<]{1,80})")
_RANK = re.compile(r"NCCL INFO .{0,80}?\bcomm 0x[0-9a-f]+ rank (\d{1,7}) n[Rr]anks (\d{1,7})\b")
_NVLS = re.compile(r"NCCL INFO NVLS multicast support is (not )?available")
_CHANNEL = re.compile(
    r"NCCL INFO (?:Channel|Ring) [\d/]{1,12} ?: (\d{1,7})\[[0-9a-f]{1,16}\] -> (\d{1,7})\[[0-9a-f]{1,16}\]"
    r"(?: \[(send|receive)\])? via (\S{1,80})"
)


class NcclLogs:
    """A folder of this run's own into which the workers' NCCL writes; gone with the context.

    Args:
        wanted: whether there is an NCCL at all; else there is no folder, and nothing is left of a run that
            is killed.

    Attributes:
        environ: the variables that make NCCL write there; empty where there is no folder.
    """

    def __init__(self, *, wanted: bool) -> None:
        self.environ: Dict[str, str] = {}
        self._wanted = wanted
        self._folder = ""

    def __enter__(self) -> NcclLogs:
        """Make the folder, where one is wanted and can be made."""
        try:
            self._folder = tempfile.mkdtemp(prefix=_PREFIX) if self._wanted else ""
        except OSError:
            self._folder = ""
        if not self._folder:
            return self
        self.environ = {
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": "INIT,ENV,NET,P2P,SHM",
            "NCCL_DEBUG_FILE": os.path.join(self._folder, "%p"),
        }
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the folder and what is in it."""
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def read(self, world: int, here: Collection[int]) -> Dict[str, Dict[str, Any]]:
        """The rows of the ranks that ran here in a group of `world`, by rank; empty without NCCL."""
        rows: Dict[str, Dict[str, Any]] = {}
        names = sorted(os.listdir(self._folder))[:_MAX_FILES] if self._folder else []
        for name in names:
            text = _text(os.path.join(self._folder, name))
            rank = rank_in(text, world)
            if rank is not None:
                rows[str(rank)] = road_of(text, rank, here)
        return rows


def rank_in(log: str, world: int) -> Optional[int]:
    """Which rank of a group of `world` wrote a log; None for a log of another group."""
    for match in _RANK.finditer(log):
        if int(match[2]) == world:
            return int(match[1])
    return None


def road_of(log: str, rank: int, here: Collection[int]) -> Dict[str, Any]:
    """What a log says; `here` are the ranks of the same node."""
    lines = log.splitlines()
    ways: Dict[str, Dict[str, int]] = {"local": {}, "remote": {}}
    network, nvls = "", None
    devices: Dict[str, List[str]] = {}
    for line in lines:
        channel = _CHANNEL.search(line)
        if channel:
            first, second = int(channel[1]), int(channel[2])
            # A rank tells its own connections: those it sends by, and of the network both.
            if rank not in (first, second):
                continue
            peer = second if first == rank else first
            table = ways["local" if peer in here else "remote"]
            way = way_of(channel[4])
            if way in table or len(table) < _MAX_WAYS:
                table[way] = table.get(way, 0) + 1
            continue
        used = _NETWORK.search(line)
        network = used[1] if used else network
        listed = _DEVICES.search(line)
        if listed:
            name = line.split("NET/", 1)[1].split(":", 1)[0].strip()
            # What comes after the semicolon is what NCCL meets by, not what it sends by.
            devices[name] = _DEVICE.findall(listed[1].split("; OOB", 1)[0])[:_MAX_DEVICES]
        multicast = _NVLS.search(line)
        nvls = not multicast[1] if multicast else nvls
    version = _VERSION.search(log)
    return {
        "version": version[1] if version else None,
        "network": network or None,
        "devices": devices.get(network) or next((each for each in devices.values() if each), []),
        "nvls": nvls,
        **ways,
    }


def way_of(text: str) -> str:
    """`NET/IB/GDRDMA` of `NET/IB/3(1)/GDRDMA/Shared`: which adapter, and through whose, is left out."""
    parts = [part for part in text.split("/") if part and not re.match(r"\d+(\(\d+\))?\Z|\d+\[", part)]
    return "/".join(part for part in parts if part not in ("Shared", "direct", "read"))[:60]


def _text(path: str) -> str:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return ""
        return file.read(_FILE_LIMIT_BYTES).decode("utf-8", "replace")
