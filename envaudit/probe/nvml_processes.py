"""Who is on a GPU: its processes by kind, and memory that no process that can be seen explains.

A container and another pid namespace see no foreign process, only the memory it takes.
"""

from __future__ import annotations

import itertools
import os
import pwd
import re
from typing import Any, Dict, List, Optional, Set

from envaudit.probe.nvml_asker import Asker

_KINDS = (
    ("compute", "nvmlDeviceGetComputeRunningProcesses"),
    ("mps", "nvmlDeviceGetMPSComputeRunningProcesses"),
    ("graphics", "nvmlDeviceGetGraphicsRunningProcesses"),
)
_PROCESSES_MAX = 64
# Above the work of many, by the first letters of a name of 15 characters, as /proc/<pid>/stat has it.
_ABOVE_MANY = (
    *(b"systemd", b"init", b"sshd", b"slurmd", b"slurmstepd", b"containerd", b"pbs_mom", b"sge_execd"),
    *(b"tmux", b"screen"),
)
_SHELLS = (b"sh", b"bash", b"dash", b"zsh", b"fish", b"ksh", b"csh", b"tcsh")


def read_processes(asker: Asker, handle: Any, memory: Any) -> Dict[str, Any]:
    """Notes: `processes`, and of the memory what is `used`, `reserved` and `hidden`, in bytes.

    A process is {"pid", "kind", "user", "name", "memory_bytes", "own"}; one that computes and draws
    has the kind `compute+graphics`. What is hidden is used beyond the driver's reserve and the
    processes; it is unknown, and left out, where a list or the reserve is.
    """
    found: Dict[int, Dict[str, Any]] = {}
    complete = True
    for kind, function in _KINDS:
        known, running = asker.ask(function, handle)
        complete = complete and known
        for one in (running or ())[:_PROCESSES_MAX]:
            row = found.setdefault(one.pid, {"pid": one.pid, "kind": kind, "memory_bytes": one.usedGpuMemory})
            if kind not in row["kind"]:
                row["kind"] += "+" + kind
    mine = own_tree() if found else set()
    rows = [describe_process(row, mine) for row in list(found.values())[:_PROCESSES_MAX]]
    notes: Dict[str, Any] = {"processes": rows}
    if memory is None:
        return notes
    notes["memory_used_bytes"] = memory.used
    reserved = _reserved_bytes(asker, handle)
    if reserved is not None:
        notes["memory_reserved_bytes"] = reserved
        if complete:
            taken = sum(row["memory_bytes"] or 0 for row in rows)
            notes["memory_hidden_bytes"] = max(0, memory.used - reserved - taken)
    return notes


def _reserved_bytes(asker: Asker, handle: Any) -> Optional[int]:
    """What the driver keeps for itself. nvmlDeviceGetMemoryInfo counts it as used."""
    version = getattr(asker.pynvml, "nvmlMemory_v2", None)
    if version is None:
        return None
    _, memory = asker.ask("nvmlDeviceGetMemoryInfo", handle, version)
    return None if memory is None else int(memory.reserved)


def describe_process(row: Dict[str, Any], mine: Set[int]) -> Dict[str, Any]:
    """A process with its user and name, null in another pid namespace, and whether it is one's `own` work.

    Own is what `own_tree` has, and what runs in the same Slurm job.

    The name is the kernel's: a command line may hold secrets.
    """
    pid = row["pid"]
    user = name = None
    try:
        user = _user(os.stat(f"/proc/{pid}").st_uid)
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            name = file.read(64).strip()
    except OSError:
        pass
    job = _slurm_job(pid)
    own = pid in mine or (job is not None and job == _slurm_job(os.getpid()))
    return {**row, "user": user, "name": name or row.get("name"), "own": own}


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def own_tree() -> Set[int]:
    """The processes above this one, and those below them that belong to the same work.

    That is a launcher with its other ranks. What is above the work of many is no link: another
    user's process, a daemon (the ssh server, a batch system's, init), a terminal's shell, from
    which other jobs were started as well.
    """
    parents: Dict[int, int] = {}
    links: Set[int] = {os.getpid()}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:
                    # The name, in parentheses, may itself hold spaces and parentheses.
                    head, _, tail = file.read().rpartition(b")")
                    mine = os.fstat(file.fileno()).st_uid == os.getuid()
                _, parent, _, session = tail.split()[:4]
                parents[int(entry)] = int(parent)
            except (OSError, ValueError):
                continue  # it ended meanwhile
            name = head.partition(b"(")[2]
            of_terminal = name in _SHELLS and session == entry.encode("ascii")
            if mine and not of_terminal and not name.startswith(_ABOVE_MANY):
                links.add(int(entry))
    above = _above(os.getpid(), parents)
    roots = set(itertools.takewhile(links.__contains__, above))
    return set(above) | {pid for pid in parents if not roots.isdisjoint(_above(pid, parents))}


def _above(pid: int, parents: Dict[int, int]) -> List[int]:
    """A process and all above it, upwards."""
    chain = [pid]
    while parents.get(chain[-1]) and parents[chain[-1]] not in chain:
        chain.append(parents[chain[-1]])
    return chain


def _slurm_job(pid: int) -> Optional[str]:
    """`job_1234`, the folder that slurmd makes for a job among the control groups."""
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="replace") as file:
            match = re.search(r"/(job_\d+)(?:/|$)", file.read(1 << 16), re.MULTILINE)
    except OSError:
        return None
    return match.group(1) if match else None
