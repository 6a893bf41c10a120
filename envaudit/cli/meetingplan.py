"""Where the nodes of a run meet, and what each of them is told for it, arranged from outside."""

from __future__ import annotations

import argparse
import ipaddress
import os
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from envaudit.checks.collectives.asked import Asked
from envaudit.cli.checkoptions import CheckAsk
from envaudit.cli.seat import JOB_PORTS, LOOPBACK
from envaudit.control.seat import Seat
from envaudit.control.tokens import fresh_token, token_of
from envaudit.errors import UsageError
from envaudit.model.checked import map_in
from envaudit.model.fingerprint import Fingerprint

_Network = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]
_Address = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]


class Arranged(NamedTuple):
    """What the request of a run says.

    Attributes:
        options: of all nodes.
        own: of each node alone, by its name.
    """

    options: Dict[str, Any]
    own: Dict[str, Dict[str, Any]]


def arranged_here(ask: CheckAsk, node: str) -> Arranged:
    """A run of this machine alone: its hub is on the loopback, on a port that the kernel chooses."""
    asked = _asked(ask, Seat(0, 1, LOOPBACK, 0, node), (node,), fresh_token())
    return Arranged({**asked.options(), **asked.own_options()}, {})


def arranged(ask: CheckAsk, fingerprints: Sequence[Fingerprint], options: argparse.Namespace) -> Arranged:
    """A run of several nodes: the hub is on the first of them.

    Args:
        ask: what is run.
        fingerprints: of the nodes, with section network.
        options: `hub` and `token_file`.

    Raises:
        UsageError: no address of the first node is known, or a token that cannot be used.
    """
    names = tuple(each.node for each in fingerprints)
    if len(names) == 1:
        return arranged_here(ask, names[0])
    host, port = getattr(options, "hub", None) or (hub_address(fingerprints), _any_port())
    token = token_of(os.environ, getattr(options, "token_file", None) or "") or fresh_token()
    seats = [Seat(place, len(names), host, port, name) for place, name in enumerate(names)]
    asked = [_asked(ask, seat, names, token) for seat in seats]
    return Arranged(asked[0].options(), {each.seat.node: each.own_options() for each in asked})


def hub_address(fingerprints: Sequence[Fingerprint]) -> str:
    """The address of the first node in whose subnet the most of the others are too.

    Raises:
        UsageError: it has none that others could reach.
    """
    first, *others = fingerprints
    own = _addresses(first)
    if not own:
        raise UsageError(
            f"no address of {first.node} is known by which the other nodes could reach it",
            next_step="Give --hub HOST:PORT, an address of that node.",
        )
    theirs = [[address for address, _ in _addresses(other)] for other in others]

    def near(place: int) -> Tuple[int, bool, int]:
        address, network = own[place]
        count = sum(any(each in network for each in addresses) for addresses in theirs)
        return -count, address.version != 4, place

    return str(own[min(range(len(own)), key=near)][0])


def _addresses(fingerprint: Fingerprint) -> List[Tuple[_Address, _Network]]:
    """Those of interfaces that are up; first those of the interface that NCCL or gloo would take."""
    section = fingerprint.sections.get("network")
    notes = section.notes if section is not None else {}
    interfaces = map_in(notes, "interfaces")
    chosen = [
        str(name)
        for variable in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
        for name in _list(map_in(map_in(notes, "selection"), variable).get("names"))
    ]
    found: List[Tuple[_Address, _Network]] = []
    for name in dict.fromkeys([*chosen, *interfaces]):
        row = map_in(interfaces, name)
        for text in _list(row.get("addresses")) if row.get("up") is not False else []:
            made = _interface(str(text))
            if made is not None and not (made.ip.is_loopback or made.ip.is_link_local):
                found.append((made.ip, made.network))
    return found


def _interface(text: str) -> Optional[Union[ipaddress.IPv4Interface, ipaddress.IPv6Interface]]:
    try:
        return ipaddress.ip_interface(text)
    except ValueError:
        return None


def _list(value: Any) -> List[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _any_port() -> int:
    """Two runs at once on the same nodes meet apart."""
    return JOB_PORTS[int.from_bytes(os.urandom(4), "little") % len(JOB_PORTS)]


def _asked(ask: CheckAsk, seat: Seat, names: Tuple[str, ...], token: bytes) -> Asked:
    return Asked(
        plan=ask.collective_plan,
        seat=seat,
        limits=ask.limits,
        local_ranks=ask.local_ranks,
        names=names,
        token=token,
        requested=ask.requested,
        collectives=ask.collectives,
        kernels=ask.kernels,
        kernels_s=ask.plan.budget_s if ask.kernels else 0,
        mtu=ask.mtu,
    )
