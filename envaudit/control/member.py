"""Who is at a hub, what they say, and who was turned away: plain values."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Deque, Dict, NamedTuple, Optional

# Of those who were turned away so many are remembered.
_KEPT_REFUSALS = 16


@dataclass(frozen=True)
class Event:
    """What a member said or did.

    Attributes:
        index: whose.
        kind: of its message; "" where it has left, and `body` is why.
        body: of its message.
    """

    index: int
    kind: str
    body: Any


@dataclass
class Member:
    """One supervisor that has joined.

    Attributes:
        index: its number, from 0.
        node: its node's name, as it says.
        hello: its first facts, as it says.
        address: its host and port.
        heard_at: monotonic time of its last sound message, heartbeats too.
        offset_ns: its clock minus the hub's, None where its clock was set meanwhile.
        bound_ns: how far at most the truth is from that.
        received_bytes: how much it has sent.
        left: "" while it is connected, then why it is not any more.
    """

    index: int
    node: str
    hello: Dict[str, Any]
    address: str
    heard_at: float
    offset_ns: Optional[int] = None
    bound_ns: Optional[int] = None
    received_bytes: int = 0
    left: str = ""


class Refusal(NamedTuple):
    """A connection that came to nothing: its address, a code of `link`, why."""

    address: str
    code: str
    why: str


@dataclass
class Refusals:
    """All of them counted, the last ones kept."""

    counts: Dict[str, int] = field(default_factory=dict)
    last: Deque[Refusal] = field(default_factory=lambda: deque(maxlen=_KEPT_REFUSALS))

    def add(self, refusal: Refusal) -> None:
        """Take one more."""
        self.counts[refusal.code] = self.counts.get(refusal.code, 0) + 1
        self.last.append(refusal)
