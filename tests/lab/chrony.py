"""Time service of the lab: all nodes follow a machine of its own; no clock is ever set."""

from __future__ import annotations

import os
import subprocess

from tests.lab.cluster import Cluster
from tests.lab.node import LabError

# Without a file of its own chronyd would share the machine's key and drift files.
_COMMON = """\
cmdport 0
bindcmdaddress /run/chrony/chronyd.sock
pidfile /run/chrony/chronyd.pid
driftfile /run/chrony/drift
user root
"""

SYNCHRONISED_S = 20.0
CLOCK = "clock"


def start(cluster: Cluster) -> None:
    """Starts chronyd on every node with -x (never touch the clock) and waits until all follow.

    Raises:
        LabError: a chronyd does not start, or does not find its source in time.
    """
    clock = cluster.add_node(CLOCK)
    network = clock.place.address.rpartition(".")[0] + ".0/24"
    start_on(cluster, CLOCK, f"local stratum 10\nallow {network}\n")
    for name in cluster.names:
        start_on(cluster, name, follow(cluster))
    for name in cluster.names:
        wait_synchronised(cluster, name)


def follow(cluster: Cluster) -> str:
    """The source line of a node that is in order."""
    return f"server {cluster.node(CLOCK).place.address} iburst minpoll -4 maxpoll 0\n"


def start_on(cluster: Cluster, name: str, source: str) -> None:
    """Starts one node's chronyd with `source` as its configuration; one that runs is stopped first."""
    stop_on(cluster, name)
    node = cluster.node(name)
    path = os.path.join(node.place.folder, "chrony.conf")
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(source + _COMMON)
    _run(cluster, name, ["mkdir", "-p", "-m", "750", "/run/chrony"])
    _run(cluster, name, ["chronyd", "-x", "-f", path])


def stop_on(cluster: Cluster, name: str) -> None:
    """Ends the node's chronyd, if it has one, and waits until it is gone."""
    script = """
        test -e /run/chrony/chronyd.pid || exit 0
        pid=$(cat /run/chrony/chronyd.pid); kill "$pid"; i=0
        while test -e "/proc/$pid" && test "$i" -lt 500; do sleep 0.01; i=$((i + 1)); done
        rm -f /run/chrony/chronyd.pid /run/chrony/chronyd.sock
    """
    _run(cluster, name, ["sh", "-c", script])


def wait_synchronised(cluster: Cluster, name: str) -> None:
    """Waits until the node's chronyd follows a source; raises LabError."""
    tries = int(SYNCHRONISED_S * 10)
    _run(
        cluster, name, ["chronyc", "-h", "/run/chrony/chronyd.sock", "waitsync", f"{tries}", "0", "0", "0.1"]
    )


def _run(cluster: Cluster, name: str, argv: list[str]) -> subprocess.CompletedProcess[str]:
    done = cluster.node(name).run(argv, timeout_s=SYNCHRONISED_S + 5.0)
    if done.returncode != 0:
        raise LabError(
            f"{name}: {' '.join(argv)}: {done.returncode}: {done.stdout[-500:]} {done.stderr[-500:]}"
        )
    return done
