"""Resource limits of the work that is launched this way, /dev/shm, the right to lock memory."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from envaudit.probe.context import Answer, Context

SCHEMA = 1

# Name here → name in /proc/self/limits (fs/proc/base.c of Linux).
_LIMITS = {
    "memlock_bytes": "Max locked memory",
    "nofile": "Max open files",
    "nproc": "Max processes",
    "stack_bytes": "Max stack size",
    "core_bytes": "Max core file size",
}
_CAP_IPC_LOCK = 14  # include/uapi/linux/capability.h
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
    facts["cap_ipc_lock"] = _may_lock(context, errors)
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
            if value == default:
                facts["nproc"][kind] = "kernel default"


def _default_processes(context: Context) -> Optional[int]:
    # kernel/fork.c: init_task's RLIMIT_NPROC is max_threads / 2.
    try:
        return int(context.read_text("/proc/sys/kernel/threads-max")) // 2
    except (OSError, ValueError):
        return None


def _may_lock(context: Context, errors: List[str]) -> Optional[bool]:
    try:
        text = context.read_text("/proc/self/status")
        (mask,) = [line.split()[1] for line in text.splitlines() if line.startswith("CapEff:")]
        return bool(int(mask, 16) >> _CAP_IPC_LOCK & 1)
    except OSError as error:
        errors.append(f"/proc/self/status: {error.strerror}")
    except (ValueError, IndexError):
        errors.append("/proc/self/status: no effective capabilities")
    return None
