"""What a node is asked for in a run of collectives, as the options of its request: words and numbers."""

from __future__ import annotations

import os
from typing import Any, Dict, Mapping, NamedTuple, Sequence, Tuple

from envaudit.checks.collectives.items import CollectivePlan, options_of, plan_of
from envaudit.checks.collectives.layout import Limits
from envaudit.control.seat import Seat

LOOPBACK = "127.0.0.1"
_MAX_NODES = 100_000
_MAX_LOCAL_RANKS = 1024


class Asked(NamedTuple):
    """What a node is asked for.

    Attributes:
        plan: what every rank runs.
        seat: this node's place; alone it has a hub of its own, on a port that the kernel chooses.
        limits: how long what may last.
        local_ranks: on this node; 0 for as many as it has GPUs, at least one.
        names: all nodes by index, which name who is missing; empty where nobody knows them.
        token: the secret of the run; empty for none.
        requested: whether collectives were asked for by name.
        collectives: whether they are run at all, or the MTU alone.
        kernels: whether section `checks` is read in the course of it, once all are known to agree.
        kernels_s: how long that may take.
        mtu: whether path MTUs are probed.
    """

    plan: CollectivePlan = CollectivePlan()
    seat: Seat = Seat(0, 1, LOOPBACK, 0, "")
    limits: Limits = Limits()
    local_ranks: int = 0
    names: Tuple[str, ...] = ()
    token: bytes = b""
    requested: bool = False
    collectives: bool = True
    kernels: bool = False
    kernels_s: int = 0
    mtu: bool = False

    @property
    def only_collectives(self) -> bool:
        """Whether ranks are the only thing that is run."""
        return self.collectives and not self.kernels and not self.mtu

    def options(self) -> Dict[str, Any]:
        """The inverse of `asked_of`, without what differs from node to node: the seat's index and node."""
        said: Dict[str, Any] = {
            **options_of(self.plan),
            "meeting_count": self.seat.count,
            "meeting_host": self.seat.host,
            "meeting_port": self.seat.port,
            "meeting_local_ranks": self.local_ranks,
            "meeting_names": ",".join(self.names),
            "meeting_token": self.token.decode("ascii", "replace"),
            "meeting_requested": self.requested,
            "meeting_collectives": self.collectives,
            "meeting_kernels": self.kernels,
            "meeting_kernels_s": self.kernels_s,
            "meeting_mtu": self.mtu,
        }
        said.update({f"meeting_{name}": int(value) for name, value in self.limits._asdict().items()})
        return said

    def own_options(self) -> Dict[str, Any]:
        """What this node alone is told."""
        return {"meeting_index": self.seat.index, "meeting_node": self.seat.node}


def asked_of(options: Mapping[str, Any]) -> Asked:
    """The inverse of `Asked.options` and `own_options`; what is not there has its default.

    Raises:
        TypeError, ValueError: a value of another type, or out of range.
    """
    names = tuple(name for name in str(options.get("meeting_names") or "").split(",") if name)
    seat = Seat(
        index=_number(options, "index", 0) if "meeting_index" in options else place_in(names),
        count=_number(options, "count", 1),
        host=str(options.get("meeting_host") or LOOPBACK),
        port=_number(options, "port", 0),
        node=str(options.get("meeting_node") or ""),
    )
    if not 0 <= seat.index < seat.count <= _MAX_NODES or not 0 <= seat.port < 65536:
        raise ValueError("a place in a run that there is not")
    usual = Limits()._asdict()
    limits = Limits(**{name: float(_number(options, name, int(value))) for name, value in usual.items()})
    local_ranks = _number(options, "local_ranks", 0)
    if not 0 <= local_ranks <= _MAX_LOCAL_RANKS or min(limits) < 1:
        raise ValueError("ranks or times out of range")
    return Asked(
        plan=plan_of(options),
        seat=seat,
        limits=limits,
        local_ranks=local_ranks,
        names=names,
        token=str(options.get("meeting_token") or "").encode("ascii", "replace"),
        requested=bool(options.get("meeting_requested", False)),
        collectives=bool(options.get("meeting_collectives", True)),
        kernels=bool(options.get("meeting_kernels", False)),
        kernels_s=_number(options, "kernels_s", 0),
        mtu=bool(options.get("meeting_mtu", False)),
    )


def place_in(names: Sequence[str]) -> int:
    """Which of some nodes this machine is, by its own name: what comes through gateways says it to none.

    Raises:
        ValueError: none of them.
    """
    whole = os.uname().nodename
    for own in (whole, whole.partition(".")[0]):
        if own in names:
            return list(names).index(own)
    if names:
        raise ValueError(f"{whole} is none of the nodes of the run, {', '.join(names)[:200]}")
    return 0


def _number(options: Mapping[str, Any], name: str, default: int) -> int:
    value = options.get(f"meeting_{name}", default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is no number")
    return value
