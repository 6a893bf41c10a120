"""Clocks of the lab's nodes, each set apart by libfaketime; the machine's own is never touched.

The library is preloaded on all nodes alike, by /etc/ld.so.preload rather than by a variable, which
would be a difference between nodes: only what a node's /etc/faketimerc says differs.
"""

from __future__ import annotations

from pathlib import Path

from tests.lab.cluster import Cluster
from tests.lab.node import LabError

# Where the system-wide setting is looked for (libfaketime's README).
SETTING = "/etc/faketimerc"
_PRELOADED = "/etc/ld.so.preload"
# Without it a setting that changes while a program runs would be seen ten seconds later. The
# monotonic clock is moved along: FAKETIME_DONT_FAKE_MONOTONIC makes every clock_nanosleep(2) to an
# absolute time fail with EINVAL (libfaketime 0.9.10), and so Python's time.sleep.
_VARIABLES = {"FAKETIME_NO_CACHE": "1"}


def start(cluster: Cluster) -> None:
    """Preloads the library on every node, with the machine's own time; raises LabError without it."""
    library = _library()
    for name in cluster.names:
        set_apart(cluster, name, "+0")
        cluster.node(name).write(_PRELOADED, f"{library}\n")
    cluster.set_environment(_VARIABLES)


def set_apart(cluster: Cluster, name: str, offset: str) -> None:
    """A node's clock from now on: `+3.2s` is ahead of the machine's by 3.2 seconds."""
    cluster.node(name).write(SETTING, f"{offset}\n")


def _library() -> Path:
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    if not found:
        raise LabError("no libfaketimeMT.so.1 under /usr/lib")
    return found[0]
