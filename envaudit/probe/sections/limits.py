"""What work that is launched this way is allowed: limits, control groups, processors, rights.

Facts, besides the limits of setrlimit(2), {"soft", "hard"} each (CUDA reserves address space by the
hundreds of GiB, so that a limit on it keeps a node from its GPUs):

    cpus           how many of the processors that are online it may run on: "all", or their number.
                   Which ones is a note: Slurm gives each node those that are free there
    numa_nodes     of how many NUMA nodes it may take memory: "all", or their number
    memory_policy  how memory is taken from them: "default", "bind", "prefer", "interleave", ...
    cpu_quota_millicpus    thousandths of a processor that its control groups allow, or "unlimited"
    nice, scheduler        as chrt(1) and nice(1) set them: 0 and "other" unless somebody did
    umask          "0022": what new files do not permit
    seccomp        "off", "strict" or "filter"
    cap_ipc_lock, cap_sys_nice    rights to lock memory, and to bind the memory of others

The control groups' limits on memory and on threads are notes, since systemd and Slurm reckon them from
the memory of the node, which differs by pages. Of each limit the smallest on the way to the root counts.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Union

from envaudit.probe.context import Answer, Context
from envaudit.probe.controlgroups import ControlGroups
from envaudit.probe.processors import numbers_of

SCHEMA = 3

# Name here → name in /proc/self/limits (fs/proc/base.c of Linux). "Max data size" is the probe's own.
_LIMITS = {
    "memlock_bytes": "Max locked memory",
    "nofile": "Max open files",
    "nproc": "Max processes",
    "stack_bytes": "Max stack size",
    "core_bytes": "Max core file size",
    "address_space_bytes": "Max address space",
    "file_bytes": "Max file size",
    "cpu_s": "Max cpu time",
}
# include/uapi/linux/capability.h
_CAPABILITIES = {"cap_ipc_lock": 14, "cap_sys_nice": 23}
_SECCOMP = {"0": "off", "1": "strict", "2": "filter"}  # include/uapi/linux/seccomp.h
# include/uapi/linux/sched.h
_SCHEDULERS = {"0": "other", "1": "fifo", "2": "rr", "3": "batch", "5": "idle", "6": "deadline", "7": "ext"}
_ONLINE = "/sys/devices/system/cpu/online"
_NUMA = "/sys/devices/system/node"
_GIB = 1 << 30


def read(context: Context) -> Answer:
    """Each limit as {soft, hard}, integers or "unlimited"; `nproc` may be "kernel default".

    The kernel's default for processes is half of threads-max, which follows the memory to the
    page: two alike nodes differ in it by a handful, so that it is told by its name.
    """
    facts: Dict[str, Any] = {}
    notes: Dict[str, Any] = {}
    errors: List[str] = []
    _limits(context, facts, notes, errors)
    _status(context, facts, notes, errors)
    facts["memory_policy"] = _memory_policy(context)
    facts.update(_scheduling(context))
    _groups(context, facts, notes)
    for path, name in (("/dev/shm", "dev_shm"), ("/tmp", "tmp")):
        try:
            size_bytes, free_bytes = context.space(path)
        except OSError as error:
            if name == "dev_shm":
                facts["dev_shm_gib"] = None
            notes.setdefault("not_examined", {})[path] = str(error.strerror)
            continue
        if name == "dev_shm":
            facts["dev_shm_gib"] = (size_bytes + _GIB // 2) // _GIB
            notes["dev_shm_bytes"] = size_bytes
        notes[f"{name}_free_bytes"] = free_bytes
    return Answer("partial" if errors else "ok", facts, notes, errors)


def _limits(context: Context, facts: Dict[str, Any], notes: Dict[str, Any], errors: List[str]) -> None:
    try:
        text = context.read_text("/proc/self/limits")
    except OSError as error:
        errors.append(f"/proc/self/limits: {error.strerror}")
        return
    rows = {line[:26].strip(): line[26:].split() for line in text.splitlines()}
    for name, title in _LIMITS.items():
        words = rows.get(title, [])
        if len(words) < 2 or not all(word == "unlimited" or word.isdigit() for word in words[:2]):
            errors.append(f"/proc/self/limits: no row {title!r} with two values")
            continue
        soft, hard = (word if word == "unlimited" else int(word) for word in words[:2])
        facts[name] = {"soft": soft, "hard": hard}
    default = _default_processes(context)
    if default is not None and "nproc" in facts:
        notes["nproc"] = dict(facts["nproc"])
        for kind, value in notes["nproc"].items():
            # Slurm hands on the limits of the node that a job was submitted from, which has its own default.
            if isinstance(value, int) and abs(value - default) * 100 <= 2 * default:
                facts["nproc"][kind] = "kernel default"


def _default_processes(context: Context) -> Optional[int]:
    # kernel/fork.c: init_task's RLIMIT_NPROC is max_threads / 2.
    try:
        return int(context.read_text("/proc/sys/kernel/threads-max")) // 2
    except (OSError, ValueError):
        return None


def _status(context: Context, facts: Dict[str, Any], notes: Dict[str, Any], errors: List[str]) -> None:
    """What /proc/self/status says of rights, of processors and of NUMA nodes."""
    says: Dict[str, str] = {}
    try:
        for line in context.read_text("/proc/self/status").splitlines():
            name, _, value = line.partition(":")
            says[name] = value.strip()
    except OSError as error:
        errors.append(f"/proc/self/status: {error.strerror}")
    held = _whole(says.get("CapEff", ""), 16)
    if says and held is None:
        errors.append("/proc/self/status: no effective capabilities")
    for name, bit in _CAPABILITIES.items():
        facts[name] = None if held is None else bool(held >> bit & 1)
    facts["seccomp"] = _SECCOMP.get(says.get("Seccomp", ""))
    umask = _whole(says.get("Umask", ""), 8)
    facts["umask"] = None if umask is None else f"{umask:04o}"
    online = context.peek(_ONLINE) or ""
    # Some nodes have processors alone, or are a GPU's.
    with_memory = context.peek(f"{_NUMA}/has_memory") or context.peek(f"{_NUMA}/online") or ""
    for name, title, there in (("cpus", "Cpus", online), ("numa_nodes", "Mems", with_memory)):
        allowed = says.get(f"{title}_allowed_list", "")
        facts[name] = _share(allowed, there)
        if facts[name] is not None:
            notes[name] = allowed


def _share(allowed: str, there: str) -> Union[int, str, None]:
    """How many of those that are there are allowed, "all" for all; None where that is not told."""
    some, all_of_them = set(numbers_of(allowed)), set(numbers_of(there))
    if not some:
        return None
    if not all_of_them:
        return len(some)
    return "all" if some >= all_of_them else len(some & all_of_them)


def _memory_policy(context: Context) -> Optional[str]:
    """The policy of the process, as the first line of numa_maps has it: `55d0a000 bind:0-1 file=...`."""
    try:
        words = context.read_head("/proc/self/numa_maps", 256).split()
    except OSError:
        return None
    kind = words[1].partition(b":")[0].partition(b"=")[0] if len(words) > 1 else b""
    return kind.decode("ascii") if kind.isalpha() else None


def _scheduling(context: Context) -> Dict[str, Any]:
    # proc_pid_stat(5): nice is field 19 and policy field 41; the second may have spaces, and ends with ")".
    fields = (context.peek("/proc/self/stat") or "").rpartition(")")[2].split()
    if len(fields) < 39:
        return {"nice": None, "scheduler": None}
    return {"nice": _whole(fields[16], 10), "scheduler": _SCHEDULERS.get(fields[38])}


def _whole(text: str, base: int) -> Optional[int]:
    """A number of /proc, none of which has more than 16 digits; None for what is none."""
    try:
        return int(text, base) if len(text) <= 16 else None
    except ValueError:
        return None


def _groups(context: Context, facts: Dict[str, Any], notes: Dict[str, Any]) -> None:
    """What the control groups allow; their limits on memory and threads, and their processors, are notes."""
    groups = ControlGroups(context)
    facts["cpu_quota_millicpus"] = groups.cpu_quota_millicpus()
    told = {
        "memory_max_bytes": groups.memory_max_bytes(),
        "memory_high_bytes": groups.memory_high_bytes(),
        "swap_max_bytes": groups.swap_max_bytes(),
        "pids_max": groups.pids_max(),
        "cpus": groups.cpus(),
    }
    notes["control_group"] = {name: value for name, value in told.items() if value is not None}
    if groups.named and told["memory_max_bytes"] is None:
        notes.setdefault("not_examined", {})["control group"] = "its folder is not to be seen"
