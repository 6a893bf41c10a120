"""Access Control Services of PCI bridges, from their configuration space.

A bridge whose control bits redirect requests sends what one device writes to another up to the host
bridge, where it becomes slow or, behind an IOMMU, fails: GPUDirect between GPUs and NICs hangs.

Offsets and bits from the PCI Express Base Specification 4.0: extended capabilities begin at 0x100
(7.6), each with a header of 16 bits ID, 4 bits version, 12 bits offset of the next (7.6.3); ACS is
ID 0x000D, its control register 6 bytes in (7.7.8).
"""

from __future__ import annotations

from typing import Iterable, List, Mapping, Optional, Sequence

from envaudit.probe.context import Context
from envaudit.probe.pcitree import DEVICES

_EXTENDED = 0x100
_CAPABILITY = 0x000D
_CONTROL = 6
# The bits in order, as `lspci -vvv` names them.
BITS = ("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans")
# The space is 4096 bytes: so many headers of 8 bytes fit, and a chain that is longer is a circle.
_END = 0x1000
_MAX_CAPABILITIES = (_END - _EXTENDED) // 8
# What a user other than root may read of it (pci_read_config, drivers/pci/pci-sysfs.c).
_UNPRIVILEGED = 64


def control(context: Context, address: str) -> Optional[List[str]]:
    """The ACS bits that are set on a bridge, none where it has no ACS.

    Only the registers that matter are read: each costs a microsecond on the bus.

    Returns:
        None where the configuration space cannot be read that far, which takes root.
    """
    path = f"{DEVICES}/{address}/config"
    try:
        if not context.read_at(path, _UNPRIVILEGED, 4):
            return None
        offset = _EXTENDED
        for _ in range(_MAX_CAPABILITIES):
            header = context.read_at(path, offset, 8)
            # A conventional device has 256 bytes in all; what is not there reads as zeros or ones.
            if len(header) < 8 or header[:4] in (bytes(4), b"\xff" * 4):
                return []
            word = int.from_bytes(header[:4], "little")
            if word & 0xFFFF == _CAPABILITY:
                bits = int.from_bytes(header[_CONTROL : _CONTROL + 2], "little")
                return [name for place, name in enumerate(BITS) if bits >> place & 1]
            offset = word >> 20
            if not _EXTENDED <= offset < _END:
                return []
    except OSError:
        return None
    return []


def above(bridges: Iterable[str], bits: Mapping[str, Sequence[str]]) -> str:
    """What is set on any of these bridges, `ReqRedir UpstreamFwd`, or `off`."""
    found = {name for bridge in bridges for name in bits[bridge]}
    return " ".join(name for name in BITS if name in found) or "off"
