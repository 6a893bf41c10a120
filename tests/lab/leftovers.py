"""What a lab leaves on the machine, and how the next one removes it after a kill -9.

Each lab's folder holds a state file that names its controller, its bridge and the first process
of each node, every process with its start time: a process id alone may be somebody else's by now.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from typing import Any, Dict, List, Sequence, Tuple

from tests.lab.processes import end, runs, start_time

# Not /tmp: the nodes have a /tmp of their own and must still see the lab. Short: sockets lie in it.
PARENT = "/var/tmp"
PREFIX = "ealab."
STATE = "state.json"

# A folder without a state file was left within the instant between the two.
_NEWBORN_S = 60.0


def new_folder() -> str:
    """A new, empty folder for a lab, already claimed by this process."""
    folder = tempfile.mkdtemp(prefix=PREFIX, dir=PARENT)
    os.chmod(folder, 0o755)
    write_state(folder, bridge="", inits=())
    return folder


def write_state(folder: str, *, bridge: str, inits: Sequence[Tuple[int, int]]) -> None:
    """Records what has to be removed should this process be killed."""
    controller = (os.getpid(), start_time(os.getpid()))
    temporary = os.path.join(folder, STATE + ".new")
    with open(temporary, "w", encoding="utf-8") as stream:
        json.dump({"controller": controller, "bridge": bridge, "inits": list(inits)}, stream)
    os.replace(temporary, os.path.join(folder, STATE))


def sweep() -> List[str]:
    """Removes labs whose controller is gone; returns their folders."""
    states = {folder: _read_state(folder) for folder in _folders()}
    alive = {folder for folder, state in states.items() if runs(tuple(state["controller"]))}
    bridges_in_use = {states[folder]["bridge"] for folder in alive}
    removed = []
    for folder, state in states.items():
        if folder in alive or _is_newborn(folder):
            continue
        end([(pid, started) for pid, started in state["inits"]])
        if state["bridge"] and state["bridge"] not in bridges_in_use:
            remove_bridge(state["bridge"])
        shutil.rmtree(folder, ignore_errors=True)
        removed.append(folder)
    return removed


def remove_bridge(bridge: str) -> None:
    """Removes the bridge and the names under which nodes were known to `ip netns`."""
    subprocess.run(["ip", "link", "del", bridge], stderr=subprocess.DEVNULL, check=False, timeout=10)
    if os.path.isdir("/run/netns"):
        for name in os.listdir("/run/netns"):
            if name.startswith(bridge + "-"):
                subprocess.run(["ip", "netns", "del", name], check=False, timeout=10)


def _folders() -> List[str]:
    return [entry.path for entry in os.scandir(PARENT) if entry.name.startswith(PREFIX) and entry.is_dir()]


def _read_state(folder: str) -> Dict[str, Any]:
    try:
        with open(os.path.join(folder, STATE), encoding="utf-8") as stream:
            state: Dict[str, Any] = json.load(stream)
            return state
    except (OSError, ValueError):
        return {"controller": (0, 0), "bridge": "", "inits": []}


def _is_newborn(folder: str) -> bool:
    try:
        has_state = os.path.exists(os.path.join(folder, STATE))
        return not has_state and time.time() - os.stat(folder).st_mtime < _NEWBORN_S
    except FileNotFoundError:
        return True
