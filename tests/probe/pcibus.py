"""A PCI bus laid out in a folder as the kernel shows it under /sys."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Mapping

NVIDIA = ("0x10de", "0x030200")
AMD = ("0x1002", "0x120000")
MELLANOX = ("0x15b3", "0x020700")
INTEL_ETHERNET = ("0x8086", "0x020000")


class PciBus:
    """Devices by their way down, `pci0000:15/0000:15:01.0/0000:19:00.0`; bridges above come by themselves."""

    def __init__(self, root: str) -> None:
        self.root = Path(root)
        (self.root / "sys/bus/pci/devices").mkdir(parents=True, exist_ok=True)

    def add(self, way: str, kind: tuple[str, str], *, numa: int = 0, group: int | None = None) -> str:
        """One device of a vendor and a class, with the bridges above it; returns its address."""
        host_bridge, *bridges, address = way.split("/")
        for count in range(len(bridges)):
            self._device("/".join([host_bridge, *bridges[: count + 1]]), ("0x8086", "0x060400"), numa)
        self._device(way, kind, numa)
        if group is not None:
            self.put(f"sys/kernel/iommu_groups/{group}/type", "identity\n")
            link = self.root / f"sys/bus/pci/devices/{address}/iommu_group"
            link.symlink_to(f"/sys/kernel/iommu_groups/{group}")
        return address

    def hca(self, name: str, way: str, *, numa: int = 0, group: int | None = None) -> str:
        """An InfiniBand device on the bus; returns its address."""
        return self._nic("infiniband", name, way, MELLANOX, numa, group)

    def ethernet(self, name: str, way: str, *, numa: int = 0) -> str:
        """A network interface on the bus; returns its address."""
        return self._nic("net", name, way, INTEL_ETHERNET, numa, None)

    def put(self, path: str, content: str | bytes) -> None:
        """A file below the root."""
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())

    def configure(self, address: str, space: bytes) -> None:
        """The configuration space of a device, as far as its reader may see it."""
        self.put(f"sys/bus/pci/devices/{address}/config", space)

    def _nic(
        self, subject: str, name: str, way: str, kind: tuple[str, str], numa: int, group: int | None
    ) -> str:
        address = self.add(way, kind, numa=numa, group=group)
        self.put(f"sys/bus/pci/devices/{address}/current_link_width", "16\n")
        self.put(f"sys/bus/pci/devices/{address}/current_link_speed", "32.0 GT/s PCIe\n")
        entry = self.root / "sys/class" / subject
        entry.mkdir(parents=True, exist_ok=True)
        (entry / name).symlink_to(f"../../devices/{way}/{subject}/{name}")
        return address

    def _device(self, way: str, kind: tuple[str, str], numa: int) -> None:
        vendor, number = kind
        address = way.rpartition("/")[2]
        link = self.root / "sys/bus/pci/devices" / address
        if link.is_symlink():
            return
        self.put(f"sys/devices/{way}/vendor", f"{vendor}\n")
        self.put(f"sys/devices/{way}/class", f"{number}\n")
        self.put(f"sys/devices/{way}/numa_node", f"{numa}\n")
        link.symlink_to(os.path.join("../../../devices", way))


def space_of(capabilities: Mapping[int, bytes], *, size: int = 4096) -> bytes:
    """A configuration space with these extended capabilities, offset → all of its bytes after the header.

    The ID of each is its first two bytes; version 1; each points to the next higher offset.
    """
    space = bytearray(size)
    offsets = sorted(capabilities)
    for place, offset in enumerate(offsets):
        following = offsets[place + 1] if place + 1 < len(offsets) else 0
        number = int.from_bytes(capabilities[offset][:2], "little")
        body = capabilities[offset][2:]
        space[offset : offset + 4] = struct.pack("<I", number | 1 << 16 | following << 20)
        space[offset + 4 : offset + 4 + len(body)] = body
    return bytes(space)


def acs_of(control: int, *, at: int = 0x148) -> bytes:
    """The space of a bridge with Advanced Error Reporting and, after it, ACS with this control register."""
    reporting, services = struct.pack("<H", 0x0001) + bytes(0x40), struct.pack("<HHH", 0x000D, 0x5F, control)
    return space_of({0x100: reporting, at: services})
