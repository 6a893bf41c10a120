"""The processors: model, sockets, cores, threads, NUMA nodes, governor."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional, Set, Tuple

from envaudit.probe.context import Context

_CPUS = "/sys/devices/system/cpu"
_NODES = "/sys/devices/system/node"
# The first processor's block of /proc/cpuinfo: some 1.5 kB, of which its flags are most.
_BLOCK_BYTES = 8 * 1024
# NR_CPUS of x86 (arch/x86/Kconfig).
_MAX_CPUS = 8192
_RANGE = re.compile(r"(?<![^,])([0-9]{1,5})(?:-([0-9]{1,5}))?(?![^,])")


def describe(context: Context) -> Dict[str, Any]:
    """Model, counts of what is online, and the governors in use; null where the kernel does not say."""
    threads = numbers_of(context.peek(f"{_CPUS}/online") or "")
    packages: Set[str] = set()
    cores: Set[Tuple[str, str]] = set()
    for number in threads:
        folder = f"{_CPUS}/cpu{number}/topology"
        package = context.peek(f"{folder}/physical_package_id")
        # Core numbers repeat on each die; the list of its threads names a core once.
        core = context.peek(f"{folder}/core_cpus_list") or context.peek(f"{folder}/thread_siblings_list")
        if package is not None and core is not None:
            packages.add(package)
            cores.add((package, core))
    return {
        "model": _model(context),
        "sockets": len(packages) or None,
        "cores": len(cores) or None,
        "threads": len(threads) or None,
        "numa_nodes": len(numbers_of(context.peek(f"{_NODES}/online") or "")) or None,
        "governor": _governors(context),
    }


def numbers_of(text: str) -> List[int]:
    """The numbers of a kernel list: `0-3,8` is 0, 1, 2, 3, 8; no more of them than a kernel can have."""
    numbers: List[int] = []
    for match in _RANGE.finditer(text):
        first, last = int(match.group(1)), int(match.group(2) or match.group(1))
        numbers.extend(range(first, min(last + 1, first + _MAX_CPUS - len(numbers))))
    return numbers


def microcode(context: Context) -> Optional[str]:
    """The microcode revision of the first processor, where the kernel names one."""
    return _field(context, "microcode")


def hypervisor_flag(context: Context) -> Optional[bool]:
    """Whether the first processor says that it runs under a hypervisor; None where it has no such flag.

    CPUID leaf 1, ECX bit 31, of x86 alone.
    """
    flags = _field(context, "flags")
    return None if flags is None else "hypervisor" in flags.split()


def _model(context: Context) -> Optional[str]:
    """`model name` (x86), `cpu` (POWER), or Arm's implementer and part."""
    for name in ("model name", "cpu"):
        value = _field(context, name)
        if value:
            return " ".join(value.split())
    implementer, part = _field(context, "CPU implementer"), _field(context, "CPU part")
    return f"implementer {implementer} part {part}" if implementer and part else None


def _field(context: Context, name: str) -> Optional[str]:
    try:
        block = context.read_head("/proc/cpuinfo", _BLOCK_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
    match = re.search(rf"^{re.escape(name)}[ \t]*:[ \t]*(.*)$", block, re.MULTILINE)
    return match.group(1).strip() if match else None


def _governors(context: Context) -> Optional[List[str]]:
    folder = f"{_CPUS}/cpufreq"
    try:
        policies = context.list_dir(folder)
    except OSError:
        return None
    found = {context.peek(f"{folder}/{policy}/scaling_governor") for policy in policies}
    return sorted(governor for governor in found if governor) or None
