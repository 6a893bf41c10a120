"""Which GID a RoCE port speaks with, as NCCL chooses it.

The rule is that of ncclIbGetGidIndex in NCCL's src/transport/net_ib (since 2.21; before, GID 0 was
the default). What differs from node to node is the index and the address; what must be equal is the
version of RoCE and the address family.
"""

from __future__ import annotations

import _socket
from typing import Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

from envaudit.probe.context import Context
from envaudit.probe.infiniband import Port
from envaudit.probe.ncclnames import integer

_EMPTY = bytes(16)
_LINK_LOCAL = bytes.fromhex("fe80000000000000")
_MAPPED = bytes(10) + b"\xff\xff"
_MAPPED_MULTICAST = bytes.fromhex("ff0e") + bytes(8) + b"\xff\xff"
# The kernel fills the lowest free place of the table (ib_cache_gid_add), so a gap is short; reading
# all 255 places of eight ports would take 30 ms.
_MAX_GAP = 8
_MAX_GIDS = 256
# What gid_attrs/types says, as NCCL's ncclIbRoceGetVersionNum reads it.
_VERSIONS = {"IB/RoCE v1": 1, "RoCE v1": 1, "RoCE v2": 2}


class Gid(NamedTuple):
    """One entry of a port's GID table, or an empty one.

    Attributes:
        place: its index in the table.
        roce: 1 or 2; None where the kernel does not say, as for an empty place.
    """

    place: int
    raw: bytes
    roce: Optional[int]

    @property
    def family(self) -> Optional[str]:
        """ipv4 for a mapped address, else ipv6; None for an empty place."""
        if self.raw == _EMPTY:
            return None
        return "ipv4" if _is_ipv4(self.raw) else "ipv6"

    @property
    def address(self) -> str:
        """The IP address that the GID is."""
        if self.family == "ipv4":
            return str(_socket.inet_ntop(_socket.AF_INET, self.raw[12:]))
        return str(_socket.inet_ntop(_socket.AF_INET6, self.raw))


class Wish(NamedTuple):
    """What NCCL's settings say of the GID.

    Attributes:
        place: NCCL_IB_GID_INDEX, negative where NCCL chooses.
        family: NCCL_IB_ADDR_FAMILY, ipv4 by default.
        network: NCCL_IB_ADDR_RANGE as address and prefix length; None for any.
        roce: NCCL_IB_ROCE_VERSION_NUM, 2 by default.
    """

    place: int
    family: str
    network: Optional[Tuple[bytes, int]]
    roce: int

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> Wish:
        """The wish that NCCL reads from its settings."""
        family = "ipv6" if settings.get("NCCL_IB_ADDR_FAMILY") == "AF_INET6" else "ipv4"
        return cls(
            place=integer(settings.get("NCCL_IB_GID_INDEX", ""), -1),
            family=family,
            network=_network(settings.get("NCCL_IB_ADDR_RANGE", ""), family),
            roce=integer(settings.get("NCCL_IB_ROCE_VERSION_NUM", ""), 2),
        )


def table(context: Context, port: Port) -> Dict[int, Gid]:
    """The GIDs of a port by index, up to the first long gap."""
    found: Dict[int, Gid] = {}
    gap = 0
    for index in range(_MAX_GIDS):
        raw = _raw(context.peek(f"{port.path}/gids/{index}"))
        if raw is None or raw == _EMPTY:
            gap += 1
            if raw is None or gap > _MAX_GAP:
                break
            found[index] = Gid(index, _EMPTY, None)
            continue
        gap = 0
        found[index] = Gid(index, raw, _version(context.peek(f"{port.path}/gid_attrs/types/{index}")))
    return found


def one_at(context: Context, port: Port, index: int) -> Optional[Gid]:
    """The GID at one place of a port's table; None where there is no such place."""
    raw = _raw(context.peek(f"{port.path}/gids/{index}"))
    if raw is None:
        return None
    return Gid(index, raw, _version(context.peek(f"{port.path}/gid_attrs/types/{index}")))


def used(context: Context, port: Port, wish: Wish) -> Optional[Gid]:
    """The GID with which NCCL uses a port; None where its table cannot be read."""
    if wish.place >= 0:
        return one_at(context, port, wish.place)
    return choose(list(table(context, port).values()), wish)


def choose(gids: Sequence[Gid], wish: Wish) -> Optional[Gid]:
    """NCCL's own choice of a table's GIDs, in their order; None from none."""
    if not gids:
        return None
    best = gids[0]
    for candidate in gids[1:]:
        family, matches = _family(candidate), _in_network(candidate.raw, wish)
        if family != _family(best) and family == wish.family and matches:
            best = candidate
        elif family == wish.family and _is_valid(candidate.raw) and matches:
            better = best.roce != candidate.roce or not _is_valid(best.raw)
            best = candidate if better and candidate.roce == wish.roce else best
    return best


def _family(gid: Gid) -> str:
    # An empty place counts as IPv6: getGidAddrFamily looks for a mapped address only.
    return gid.family or "ipv6"


def _is_ipv4(raw: bytes) -> bool:
    return raw.startswith((_MAPPED, _MAPPED_MULTICAST))


def _is_valid(raw: bytes) -> bool:
    return raw != _EMPTY and not raw.startswith(_LINK_LOCAL)


def _in_network(raw: bytes, wish: Wish) -> bool:
    if wish.network is None:
        return True
    address, prefix = wish.network
    place = raw[12:] if wish.family == "ipv4" else raw
    shift = 8 * len(address) - prefix
    return int.from_bytes(place, "big") >> shift == int.from_bytes(address, "big") >> shift


def _network(text: str, family: str) -> Optional[Tuple[bytes, int]]:
    address, slash, length = text[:127].partition("/")
    number = _socket.AF_INET if family == "ipv4" else _socket.AF_INET6
    try:
        raw = _socket.inet_pton(number, address)
    except (OSError, ValueError):
        return None
    prefix = integer(length, 0)
    if not slash or not 0 < prefix <= 8 * len(raw):
        return None
    return raw, prefix


def _raw(text: Optional[str]) -> Optional[bytes]:
    """`fe80:0000:...` with all its digits."""
    try:
        raw = bytes.fromhex((text or "").replace(":", ""))
    except ValueError:
        return None
    return raw if len(raw) == len(_EMPTY) else None


def _version(text: Optional[str]) -> Optional[int]:
    """`IB/RoCE v1` or `RoCE v2`; reading an empty place fails with EINVAL."""
    return _VERSIONS.get(text or "")
