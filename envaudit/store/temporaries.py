"""Temporary files of writers: their names, and which of them a dead writer left.

To tell a dead writer's file from one that is being written, the name says who writes it: host,
process id and the process' start time. On another machine, or in another container, nobody can be
asked whether that process lives; there only age tells.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from functools import lru_cache
from typing import List, Match, Optional, Tuple

# Writing takes milliseconds; nobody writes for an hour.
ABANDONED_AFTER_S = 3600

_TEMPORARY = re.compile(
    r"\.envaudit-(?P<host>.{1,64})-(?P<machine>[0-9a-z]{8})-(?P<pid>\d{1,10})-(?P<start>\d{1,20})"
    r"-[0-9a-f]{8}\.tmp\Z"
)
# What stands for the machine where /proc does not tell which one it is.
_UNKNOWN_MACHINE = "unknown0"


def temporary_name() -> str:
    """A name that no other writer uses, and that says which process writes it."""
    return f".envaudit-{_writer(os.getpid())}-{os.urandom(4).hex()}.tmp"


def is_temporary(name: str) -> bool:
    """Whether a file name is that of a writer's temporary file."""
    return _TEMPORARY.match(name) is not None


def abandoned(folder: str, now_s: Optional[float] = None) -> List[str]:
    """Temporary files whose writer is gone: names, sorted.

    `now_s` is the time since the epoch, by default the present.

    Raises:
        OSError: the folder cannot be listed.
    """
    present = time.time() if now_s is None else now_s
    names = []
    for match, written_s in _temporaries(folder):
        old = present - written_s > ABANDONED_AFTER_S
        here = match["machine"] == _machine()
        if old or (here and not _is_running(int(match["pid"]), int(match["start"]))):
            names.append(match[0])
    return sorted(names)


def remove_abandoned(folder: str) -> None:
    """Remove the temporary files of writers that are gone; what may not be removed stays."""
    try:
        if not _temporaries(folder):
            return
        names = abandoned(folder, _file_system_time_s(folder))
    except OSError:
        return  # a folder that may be written but not listed
    for name in names:
        try:
            os.unlink(os.path.join(folder, name))
        except OSError:
            pass  # another writer was faster, or it belongs to another user: no harm to this write


def _temporaries(folder: str) -> List[Tuple[Match[str], float]]:
    """The temporary files of a folder: parts of the name, and when each was written."""
    found = []
    with os.scandir(folder) as listing:
        for item in listing:
            match = _TEMPORARY.match(item.name)
            try:
                if match is not None:
                    found.append((match, item.stat(follow_symlinks=False).st_mtime))
            except FileNotFoundError:
                pass  # its writer has finished
    return found


def _file_system_time_s(folder: str) -> float:
    """The present by the clock that stamps this folder's files: on NFS the server's.

    A machine whose own clock is an hour ahead must not take everybody's files for abandoned.
    """
    path = os.path.join(folder, temporary_name())
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            return os.fstat(descriptor).st_mtime
        finally:
            os.close(descriptor)
            os.unlink(path)
    except OSError:
        return 0.0  # a full disk: nothing is old enough then


@lru_cache(maxsize=4)
def _writer(pid: int) -> str:
    host = re.sub(r"[^A-Za-z0-9._-]", "_", os.uname().nodename)[:64] or "_"
    return f"{host}-{_machine()}-{pid}-{_stat_of(pid)[1] or 0}"


@lru_cache(maxsize=1)
def _machine() -> str:
    """Whose process ids these are: this boot of this kernel, and this container's namespace."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:
            boot = stream.read().strip()
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        # Without /proc nobody can be told from anybody else.
        return _UNKNOWN_MACHINE
    return hashlib.sha256(f"{boot} {namespace}".encode()).hexdigest()[:8]


def _is_running(pid: int, start_ticks: int) -> bool:
    if _machine() == _UNKNOWN_MACHINE:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    state, ticks = _stat_of(pid)
    return state not in ("Z", "X") and ticks in (None, start_ticks)


def _stat_of(pid: int) -> Tuple[str, Optional[int]]:
    """State and start time (clock ticks since boot), fields 3 and 22 of proc(5) stat."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            fields = stream.read().rpartition(b")")[2].split()
        return fields[0].decode("ascii"), int(fields[19])
    except (OSError, IndexError, ValueError):
        return "", None
