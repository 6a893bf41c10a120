"""The control groups that this process is in, and what they and the groups above them allow it.

A limit of any group on the way to the root holds for all below it: the smallest one is in force. Within
a namespace the way ends at the namespace's own root, and a limit further up is not to be seen.

    cgroup v2   /proc/self/cgroup has `0::/a/b`, the group is /sys/fs/cgroup/a/b
    cgroup v1   `4:memory:/a/b`, and /sys/fs/cgroup/memory/a/b; one hierarchy for each controller
    hybrid      some controllers in hierarchies of v1, the rest in that of v2: /sys/fs/cgroup/unified
    Docker, v1  the groups of the host are named, and only the container's own is there: at the top

Names and values of the files are those of Documentation/admin-guide/cgroup-v2.rst and cgroup-v1 of Linux.
"""

from __future__ import annotations

from typing import Callable, Dict, List, Optional, Union

from envaudit.probe.context import Context
from envaudit.probe.processors import numbers_of

# A number, "unlimited", or None where it cannot be told.
Limit = Union[int, str, None]

UNLIMITED = "unlimited"
_TOP = "/sys/fs/cgroup"
# Kubernetes nests some six groups and Slurm seven.
_MOST_LEVELS = 32
# Of memory, cgroup v1 writes "no limit" as LONG_MAX rounded down to a page (mm/page_counter.h).
_NO_LIMIT_FROM = 1 << 60


class ControlGroups:
    """What the groups of the process that reads allow it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._paths: Dict[str, str] = {}
        for line in (context.peek("/proc/self/cgroup") or "").splitlines():
            controllers, _, path = line.partition(":")[2].partition(":")
            for controller in controllers.split(","):
                self._paths.setdefault(controller, path)

    @property
    def named(self) -> bool:
        """Whether the kernel names a group of this process at all."""
        return bool(self._paths)

    def cpu_quota_millicpus(self) -> Limit:
        """Thousandths of a processor that it may use over time: 400000 of 100000 us are 4000."""
        if "cpu" in self._paths:
            return self._smallest("cpu", self._quota_v1)
        return self._smallest("cpu", lambda folder: _quota(self._read(f"{folder}/cpu.max")))

    def memory_max_bytes(self) -> Limit:
        """Above it, the kernel ends processes of the group."""
        return self._number("memory", "memory.max", "memory.limit_in_bytes")

    def memory_high_bytes(self) -> Limit:
        """Above it, the kernel slows the group down and takes memory from it; v1 has none."""
        return self._number("memory", "memory.high", None)

    def swap_max_bytes(self) -> Limit:
        """Swap beside the memory; v1 counts both together, which is not told here."""
        return self._number("memory", "memory.swap.max", None)

    def pids_max(self) -> Limit:
        """Threads and processes together."""
        return self._number("pids", "pids.max", "pids.max")

    def cpus(self) -> Optional[int]:
        """The number of processors of the nearest group that has a say; None where it cannot be told."""
        name = "cpuset.cpus" if "cpuset" in self._paths else "cpuset.cpus.effective"
        for folder in self._way("cpuset"):
            text = self._context.peek(f"{folder}/{name}")
            if text is not None:
                return len(set(numbers_of(text))) or None
        return None

    def _number(self, controller: str, v2: str, v1: Optional[str]) -> Limit:
        name = v1 if controller in self._paths else v2
        if name is None:
            return None
        return self._smallest(controller, lambda folder: _count(self._read(f"{folder}/{name}").strip()))

    def _quota_v1(self, folder: str) -> Optional[int]:
        quota, period = self._read(f"{folder}/cpu.cfs_quota_us"), self._read(f"{folder}/cpu.cfs_period_us")
        return _quota(f"{quota} {period}")

    def _smallest(self, controller: str, read: Callable[[str], Optional[int]]) -> Limit:
        way = self._way(controller)
        found: List[int] = []
        for folder in way:
            try:
                value = read(folder)
            except FileNotFoundError:
                continue  # the root has none, nor has a group whose parent keeps the controller to itself
            except (OSError, ValueError):
                return None
            if value is not None:
                found.append(value)
        if found:
            return min(found)
        return UNLIMITED if way and self._context.is_dir(way[0]) else None

    def _way(self, controller: str) -> List[str]:
        """The folders of the process' group and of all above it; none where they cannot be seen."""
        tops = (f"{_TOP}/{controller}",) if controller in self._paths else (_TOP, f"{_TOP}/unified")
        path = self._paths.get(controller, self._paths.get(""))
        parts = [part for part in (path or "").split("/") if part]
        # `/../x` is a group outside of the namespace that this process is in.
        if path is None or ".." in parts or len(parts) >= _MOST_LEVELS:
            return []
        # A hybrid node keeps the folders of v1 in a plain tmpfs, which is no group.
        top = next((top for top in tops if self._context.exists(f"{top}/cgroup.procs")), None)
        if top is None:
            return []
        return ["/".join([top, *parts[:depth]]) for depth in range(len(parts), -1, -1)]

    def _read(self, path: str) -> str:
        return self._context.read_text(path, limit_bytes=4096)


def _quota(text: str) -> Optional[int]:
    """`400000 100000`, microseconds of each period, in thousandths of a processor; None for no limit."""
    words = text.split()
    if len(words) != 2 or not _count(words[1]):
        raise ValueError(f"no quota and period: {text[:40]!r}")
    quota, period = _count(words[0]), int(words[1])
    return None if quota is None else (1000 * quota + period // 2) // period


def _count(text: str) -> Optional[int]:
    """A limit as the kernel writes it; None for no limit.

    Raises:
        ValueError: it is none.
    """
    if text in ("max", "-1"):
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ValueError(f"no limit: {text[:20]!r}")
    return int(text) if int(text) < _NO_LIMIT_FROM else None
