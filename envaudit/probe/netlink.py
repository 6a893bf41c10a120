"""The addresses of this network namespace, from the kernel through one netlink socket.

`ip` would say the same for 5 to 10 ms of a child process. The constants are those of the kernel's
uapi headers linux/netlink.h, linux/rtnetlink.h and linux/if_addr.h.
"""

from __future__ import annotations

# The module socket costs 3 ms of imports (selectors, enumerations) that nothing here needs.
import _socket
import os
import struct
from contextlib import closing
from typing import Iterator, List, NamedTuple, Tuple

_NETLINK_ROUTE = 0
_RTM_NEWADDR = 20
_RTM_GETADDR = 22
_NLM_F_REQUEST_DUMP = 0x301
_NLMSG_ERROR = 2
_NLMSG_DONE = 3
_IFA_ADDRESS = 1
_IFA_LOCAL = 2
_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
_ADDRESS = struct.Struct("=BBBBI")  # ifaddrmsg: family, prefix length, flags, scope, index
_ATTRIBUTE = struct.Struct("=HH")  # rtattr: length, type
_TIMEOUT_S = 1.0
_CHUNK_BYTES = 1 << 16
# No node has that many: what floods is given up.
_MAX_MESSAGES = 1 << 16


class Address(NamedTuple):
    """One address of an interface.

    Attributes:
        family: "ipv4" or "ipv6".
        text: the address as it is written.
        prefix: how many bits of it name the network.
    """

    family: str
    text: str
    prefix: int

    @property
    def is_link_local(self) -> bool:
        """Whether it reaches no further than the cable, as each IPv6 interface has one (RFC 4291)."""
        # fe80::/10
        return self.family == "ipv6" and int(self.text.partition(":")[0] or "0", 16) >> 6 == 0xFE80 >> 6


def names() -> List[Tuple[int, str]]:
    """Index and name of each interface of this namespace, in the kernel's order.

    Raises:
        OSError: the kernel does not tell.
    """
    return list(_socket.if_nameindex())


def addresses() -> List[Tuple[int, Address]]:
    """Each address with the index of its interface, in the order of the kernel's dump, which is NCCL's.

    getifaddrs, through which NCCL looks, asks the same: first all of IPv4, then all of IPv6.

    Raises:
        OSError: the kernel does not tell, or not in time.
    """
    found: List[Tuple[int, Address]] = []
    for message in _dump(_RTM_GETADDR, _ADDRESS.pack(0, 0, 0, 0, 0)):
        family, prefix, _, _, index = _ADDRESS.unpack_from(message)
        texts = dict(_attributes(message, _ADDRESS.size))
        raw = texts.get(_IFA_LOCAL) or texts.get(_IFA_ADDRESS)
        if family in (_socket.AF_INET, _socket.AF_INET6) and raw:
            word = "ipv4" if family == _socket.AF_INET else "ipv6"
            found.append((index, Address(word, _socket.inet_ntop(family, raw), prefix)))
    return found


def _dump(kind: int, body: bytes) -> Iterator[bytes]:
    """The bodies of what the kernel answers to one request."""
    with closing(_socket.socket(_socket.AF_NETLINK, _socket.SOCK_RAW, _NETLINK_ROUTE)) as asking:
        asking.settimeout(_TIMEOUT_S)
        header = _HEADER.pack(_HEADER.size + len(body), kind, _NLM_F_REQUEST_DUMP, 1, 0)
        asking.send(header + body)
        seen = 0
        while seen < _MAX_MESSAGES:
            chunk = asking.recv(_CHUNK_BYTES)
            place = 0
            while place + _HEADER.size <= len(chunk):
                length, answer, *_ = _HEADER.unpack_from(chunk, place)
                if answer == _NLMSG_DONE:
                    return
                if answer == _NLMSG_ERROR:
                    number = -struct.unpack_from("=i", chunk, place + _HEADER.size)[0]
                    raise OSError(number, os.strerror(number))
                if answer == _RTM_NEWADDR:
                    yield chunk[place + _HEADER.size : place + length]
                seen += 1
                place += max(_HEADER.size, _aligned(length))
            if not chunk:
                return


def _attributes(message: bytes, place: int) -> Iterator[Tuple[int, bytes]]:
    while place + _ATTRIBUTE.size <= len(message):
        length, kind = _ATTRIBUTE.unpack_from(message, place)
        yield kind, message[place + _ATTRIBUTE.size : place + length]
        place += max(_ATTRIBUTE.size, _aligned(length))


def _aligned(length: int) -> int:
    return (length + 3) & ~3
