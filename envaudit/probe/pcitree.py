"""PCI devices in their tree: which GPUs and NICs there are, and what lies between two of them.

The kernel names a device by its way down: /sys/bus/pci/devices/0000:19:00.0 is a link to
../../../devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:19:00.0, a host bridge, the
bridges below it, the device.
"""

from __future__ import annotations

import re
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from envaudit.probe.context import Context

DEVICES = "/sys/bus/pci/devices"
HCAS = "/sys/class/infiniband"
_NETS = "/sys/class/net"
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-1][0-9a-f]\.[0-7]\Z")
_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}\Z")
_VENDOR = re.compile(r"0x[0-9a-f]{4}\Z")
_NVIDIA, _AMD = "0x10de", "0x1002"
# Base class and subclass (PCI Code and ID Assignment, 1.4 and 1.19): VGA and 3D controllers; AMD's
# Instinct cards are display controllers of no other kind, or processing accelerators.
_GPU_CLASSES = {_NVIDIA: ("0x0300", "0x0302"), _AMD: ("0x0300", "0x0302", "0x0380", "0x1200")}


class Device(NamedTuple):
    """One PCI device in its tree.

    Attributes:
        address: domain, bus, device and function, `0000:19:00.0`.
        host_bridge: `pci0000:15`; None where the kernel does not show the tree.
        bridges: the addresses of the bridges above it, from the host bridge down.
        numa: its NUMA node; None where the firmware tells none.
    """

    address: str
    host_bridge: Optional[str]
    bridges: Tuple[str, ...]
    numa: Optional[int]


class Nic(NamedTuple):
    """A network adapter: its name here, `hca` or `ethernet`, and its device."""

    name: str
    kind: str
    device: Device


def addresses(context: Context) -> List[str]:
    """The addresses of all PCI devices, sorted.

    Raises:
        OSError: there is no PCI bus, or it may not be looked at.
    """
    return sorted(filter(_ADDRESS.match, context.list_dir(DEVICES)), key=_place)


def gpus(context: Context, known: Sequence[str]) -> Tuple[List[Device], int]:
    """NVIDIA's and AMD's GPUs among the devices of these addresses, in that order.

    The number says how many devices do not tell their vendor: any of them might be one more.
    """
    found = []
    untold = 0
    for address in known:
        vendor = context.peek(f"{DEVICES}/{address}/vendor") or ""
        classes = _GPU_CLASSES.get(vendor)
        if classes and (context.peek(f"{DEVICES}/{address}/class") or "").startswith(classes):
            found.append(device(context, address))
        untold += not _VENDOR.match(vendor)
    return found, untold


def hcas(context: Context) -> List[Nic]:
    """The HCAs (InfiniBand, RoCE, EFA) that are PCI devices, by address; none where none is to be seen."""
    return _nics(context, HCAS, "hca")


def ethernet(context: Context) -> List[Nic]:
    """The network interfaces that are PCI devices, by address."""
    return _nics(context, _NETS, "ethernet")


def device(context: Context, address: str) -> Device:
    """A device by its address."""
    try:
        parts = context.readlink(f"{DEVICES}/{address}").split("/")
    except OSError:
        parts = []
    # A host bridge inside the tree (Intel VMD) starts a domain of its own below the first one.
    host_bridge = next(filter(_HOST_BRIDGE.match, parts), None)
    bridges = tuple(part for part in parts[:-1] if _ADDRESS.match(part))
    numa = context.peek(f"{DEVICES}/{address}/numa_node") or ""
    return Device(address, host_bridge, bridges, int(numa) if re.match(r"\d{1,4}\Z", numa) else None)


def link_class(one: Device, other: Device) -> Optional[str]:
    """What lies between two devices, in the words of `nvidia-smi topo -m`; None where it is unknown.

        X     nothing: the same device
        PIX   at most one switch (a bridge or two of it on either side)
        PXB   several switches, but no host bridge
        PHB   a host bridge
        NODE  several host bridges of one NUMA node
        SYS   several NUMA nodes

    Two devices whose NUMA node the firmware does not tell are on one: that is how it is left out on a
    machine that has but one.
    """
    if one.address == other.address:
        return "X"
    if one.host_bridge is None or other.host_bridge is None:
        return None
    if one.host_bridge != other.host_bridge:
        return "NODE" if one.numa == other.numa else "SYS"
    shared = 0
    for above, above_other in zip(one.bridges, other.bridges):
        if above != above_other:
            break
        shared += 1
    if not shared:
        # Functions of one device on the host bridge itself are as near as those behind a bridge.
        return "PIX" if _slot(one.address) == _slot(other.address) else "PHB"
    # Below its upstream port a switch has one downstream port on each way.
    apart = max(len(one.bridges), len(other.bridges)) - shared
    return "PIX" if apart <= 1 else "PXB"


def link_width(context: Context, address: str) -> Optional[str]:
    """The PCIe link as it runs, `x16 32 GT/s`; None where the device, a virtual function say, tells none.

    Older kernels write `16 GT/s`, newer ones `16.0 GT/s PCIe`.
    """
    width = context.peek(f"{DEVICES}/{address}/current_link_width") or ""
    speed = re.match(
        r"(\d{1,3}(?:\.\d)?) GT/s", context.peek(f"{DEVICES}/{address}/current_link_speed") or ""
    )
    if not speed or not re.match(r"[1-9]\d?\Z", width):
        return None
    rate = speed[1][:-2] if speed[1].endswith(".0") else speed[1]
    return f"x{width} {rate} GT/s"


def _nics(context: Context, folder: str, kind: str) -> List[Nic]:
    try:
        names = context.list_dir(folder)
    except OSError:
        return []
    found: Dict[str, str] = {}
    for name in names:
        address = _address_of(context, f"{folder}/{name}")
        if address:
            found.setdefault(address, name)
    # A virtual function is no NIC of its own beside its physical function: how many there are
    # follows from who uses the host.
    chosen = [address for address in sorted(found, key=_place) if _physical(context, address) not in found]
    return [Nic(found[address], kind, device(context, address)) for address in chosen]


def _address_of(context: Context, entry: str) -> Optional[str]:
    """The PCI device that an entry of /sys/class belongs to, by the way its link, or `device`, goes."""
    for link in (entry, f"{entry}/device"):
        try:
            parts = context.readlink(link).split("/")
        except OSError:
            continue
        found = [part for part in parts if _ADDRESS.match(part)]
        if found:
            return found[-1]
    return None


def _physical(context: Context, address: str) -> Optional[str]:
    """The address of the physical function of a virtual one."""
    try:
        return context.readlink(f"{DEVICES}/{address}/physfn").rpartition("/")[2]
    except OSError:
        return None


def _place(address: str) -> Tuple[int, str]:
    # Domains have four digits or, behind Intel's VMD and on Hyper-V, more.
    domain, _, rest = address.partition(":")
    return int(domain, 16), rest


def _slot(address: str) -> str:
    return address.rpartition(".")[0]
