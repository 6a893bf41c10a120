"""The machine under the environment: distribution, kernel, C library, processors, settings."""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List, Optional, Tuple

from envaudit.probe import processors
from envaudit.probe.context import Answer, ChildFailed, Context
from envaudit.probe.hostname import own_name
from envaudit.probe.secrets import clean
from envaudit.probe.virtualisation import container_kind, virtualisation_kind

SCHEMA = 1

# What training meets: buffers of sockets, memory policy, limits that PyTorch, NCCL and UCX run into.
# Values that the kernel derives from the amount of memory are notes: two alike nodes differ in them.
_SYSCTLS = (
    "fs.aio-max-nr",
    "kernel.numa_balancing",
    "kernel.pid_max",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.yama.ptrace_scope",
    "net.core.netdev_max_backlog",
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.somaxconn",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.ipv4.conf.all.arp_ignore",
    "net.ipv4.conf.all.rp_filter",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "vm.max_map_count",
    "vm.overcommit_memory",
    "vm.overcommit_ratio",
    "vm.swappiness",
    "vm.zone_reclaim_mode",
)
_SYSCTL_NOTES = ("fs.file-max", "fs.inotify.max_user_watches", "kernel.threads-max", "vm.min_free_kbytes")
_ARGUMENTS = re.compile(
    r"(?:iommu|intel_iommu|amd_iommu|(?:default_)?hugepages\w*|isolcpus|nohz_full|pci|mitigations"
    r"|transparent_hugepage|numa_balancing)\Z"
)
_RESOLVE_TIMEOUT_S = 2.0
_HUGEPAGES = "/sys/kernel/mm/hugepages"


def read(context: Context) -> Answer:
    """Facts of the host; what a container does not show of it is null."""
    errors: List[str] = []
    arguments, rest = _kernel_arguments(context)
    facts: Dict[str, Any] = {
        "launch": context.launch,
        "distribution": _distribution(context),
        "kernel": context.peek("/proc/sys/kernel/osrelease"),
        "kernel_arguments": arguments,
        "architecture": os.uname().machine if context.live else context.node.get("machine"),
        "glibc": _glibc(context),
        "cpu": processors.describe(context),
        "clocksource": context.peek("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "transparent_hugepages": _chosen(context.peek("/sys/kernel/mm/transparent_hugepage/enabled")),
        "transparent_hugepages_defrag": _chosen(context.peek("/sys/kernel/mm/transparent_hugepage/defrag")),
        "hugepages": _hugepages(context),
        "swap": _has_swap(context),
        "virtualisation": virtualisation_kind(context),
        "container": container_kind(context),
        "sysctl": _sysctls(context, _SYSCTLS),
        "own_name": _own_name(context, errors),
    }
    for name in ("distribution", "kernel"):
        if facts[name] is None:
            errors.append(f"{name}: not readable")
    notes = _notes(context)
    notes["kernel_arguments"] = rest
    return Answer("partial" if errors else "ok", facts, notes, errors)


def _notes(context: Context) -> Dict[str, Any]:
    uptime = (context.peek("/proc/uptime") or "").partition(".")[0]
    memory = re.search(r"^MemTotal:\s+(\d+) kB", context.peek("/proc/meminfo") or "", re.MULTILINE)
    return {
        "hostname": own_name(context),
        "machine_id": context.peek("/etc/machine-id"),
        "boot_id": context.peek("/proc/sys/kernel/random/boot_id"),
        "kernel_build": context.peek("/proc/sys/kernel/version"),
        "uptime_s": _count(uptime),
        "load": " ".join((context.peek("/proc/loadavg") or "").split()[:3]),
        "memory_bytes": int(memory.group(1)) * 1024 if memory else None,
        "microcode": processors.microcode(context),
        "machine": context.peek("/sys/class/dmi/id/product_name"),
        "bios": context.peek("/sys/class/dmi/id/bios_version"),
        "sysctl": _sysctls(context, _SYSCTL_NOTES),
    }


def _distribution(context: Context) -> Optional[Dict[str, Optional[str]]]:
    """ID, version and full name as os-release(5) has them."""
    text = context.peek("/etc/os-release")
    if text is None:
        text = context.peek("/usr/lib/os-release")
    if text is None:
        return None
    values = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals:
            values[key.strip()] = value.strip().strip("\"'")
    if "ID" not in values:
        return None
    return {
        "id": values["ID"],
        "version": values.get("VERSION_ID"),
        "name": values.get("PRETTY_NAME"),
    }


def _glibc(context: Context) -> Optional[str]:
    """The version of the C library in this process: what gnu_get_libc_version() answers."""
    if not context.live:
        told = context.node.get("glibc")
        return None if told is None else str(told)
    try:
        answer = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (OSError, ValueError):
        return None  # musl has none
    return answer.rpartition(" ")[2] or None


def _chosen(text: Optional[str]) -> Optional[str]:
    """`always [madvise] never` is `madvise`."""
    match = re.search(r"\[([^\]]*)\]", text or "")
    return match.group(1) if match else None


def _hugepages(context: Context) -> Optional[Dict[str, Optional[int]]]:
    """Reserved huge pages by size, `2048kB` → count."""
    try:
        names = context.list_dir(_HUGEPAGES)
    except OSError:
        return None
    counts = {}
    for name in names:
        counts[name[len("hugepages-") :]] = _count(context.peek(f"{_HUGEPAGES}/{name}/nr_hugepages") or "")
    return counts


def _has_swap(context: Context) -> Optional[bool]:
    text = context.peek("/proc/swaps")
    return None if text is None else len(text.strip().splitlines()) > 1


def _sysctls(context: Context, names: Tuple[str, ...]) -> Dict[str, Any]:
    """Settings by name, integers where they are one; one that this kernel lacks is left out."""
    found: Dict[str, Any] = {}
    for name in names:
        value = context.peek("/proc/sys/" + name.replace(".", "/"))
        if value is not None:
            count = _count(value)
            found[name] = " ".join(value.split()) if count is None else count
    return found


def _count(text: str) -> Optional[int]:
    """A kernel's number, None for what is none or is larger than any."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _kernel_arguments(context: Context) -> Tuple[Optional[List[str]], Optional[str]]:
    """The arguments that shape training, sorted by name, and the rest without secrets.

    Arguments of one name keep their order: `hugepagesz=1G hugepages=8 hugepagesz=2M hugepages=64`.
    """
    text = context.peek("/proc/cmdline")
    if text is None:
        return None, None
    chosen: List[str] = []
    rest: List[str] = []
    for word in text.split():
        name = word.partition("=")[0].replace("-", "_")
        (chosen if _ARGUMENTS.match(name) else rest).append(word)
    chosen.sort(key=lambda word: "hugepages" if "hugepages" in word else word.partition("=")[0])
    return [clean(word) for word in chosen], clean(" ".join(rest))


def _own_name(context: Context, errors: List[str]) -> Optional[str]:
    """What the host's own name resolves to: `loopback`, `address`, `nothing`; None when not known.

    Gloo and the TCP store of torch advertise that address to the other nodes.
    """
    name = own_name(context)
    addresses = _from_hosts(context, name)
    if not addresses:
        if not context.live:
            return str(context.node.get("own_name", "nothing"))
        try:
            addresses = context.call(lambda: _resolve(name), _RESOLVE_TIMEOUT_S)
        except ChildFailed as error:
            errors.append(f"resolving the own name {name}: {error}")
            return None
    if not addresses:
        return "nothing"
    return "loopback" if any(one.startswith("127.") or one == "::1" for one in addresses) else "address"


def _from_hosts(context: Context, name: str) -> List[str]:
    """The addresses of /etc/hosts, where the resolver looks there first; else none."""
    for line in (context.peek("/etc/nsswitch.conf") or "").splitlines():
        words = line.partition("#")[0].split()
        if words[:1] == ["hosts:"] and words[1:2] != ["files"]:
            return []
    found = []
    for line in (context.peek("/etc/hosts") or "").splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        if name.lower() in (one.lower() for one in names):
            found.append(address)
    return found


def _resolve(name: str) -> List[str]:
    import socket  # a resolver may hang or crash: this runs in a child of its own

    try:
        return sorted({str(info[4][0]) for info in socket.getaddrinfo(name, None)})
    except socket.gaierror:
        return []
