"""Processes of the machine, read from /proc."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from typing import Iterable, List, Tuple


@dataclass(frozen=True)
class Process:
    """A process: its id on the machine and in its own namespace, short name and command line."""

    pid: int
    pid_inside: int
    name: str
    command_line: str


def start_time(pid: int) -> int:
    """Start of a process in clock ticks after boot, 0 where it does not run (any more).

    With the id it names a process for good: ids are used again, start times are not.
    """
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
            # Field 22 of proc(5); field 2, the name, may hold spaces and brackets. Field 3 is the state.
            fields = stream.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])


def runs(identity: Tuple[int, int]) -> bool:
    """Whether the process of an (id, start time) pair still runs."""
    pid, started = identity
    return started != 0 and start_time(pid) == started


def processes_in(init_pid: int) -> List[Process]:
    """Running processes of the pid namespace whose first process is `init_pid`; zombies left out."""
    namespace = _namespace(init_pid)
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and namespace and _namespace(int(entry)) == namespace:
            process = _read(int(entry))
            if process is not None:
                found.append(process)
    return found


def has_mapped(pid: int, name: str) -> bool:
    """Whether a process has a file of this name in its memory: a library that it has loaded."""
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as stream:
            return any(name in line for line in stream)
    except OSError:
        return False


def end(identities: Iterable[Tuple[int, int]], timeout_s: float = 5.0) -> None:
    """Kills the processes that still are the ones meant, and waits for their end."""
    meant = [identity for identity in identities if runs(identity)]
    for pid, _started in meant:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    deadline = time.monotonic() + timeout_s
    while any(runs(identity) for identity in meant) and time.monotonic() < deadline:
        time.sleep(0.01)


def _namespace(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


def _read(pid: int) -> Process | None:
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as stream:
            status = dict(line.rstrip("\n").split(":", 1) for line in stream if ":" in line)
        with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as stream:
            command_line = stream.read().replace("\0", " ").strip()
    except OSError:
        return None
    if status["State"].split()[0] in "ZX":
        return None
    inside = int(status["NSpid"].split()[-1])
    return Process(pid=pid, pid_inside=inside, name=status["Name"].strip(), command_line=command_line)
