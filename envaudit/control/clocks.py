"""How far a member's clock is from the hub's, by pings (Cristian's method).

A ping leaves at t0, the other side reads its clock as T and says it, the pong is here at t1: T was
read some time between, so that the offset is T - (t0 + t1) / 2 and the truth at most (t1 - t0) / 2
away, however the two ways differ (F. Cristian, "Probabilistic clock synchronization", Distributed
Computing 3, 1989). Of many pings the one with the smallest round trip says most.
"""

from __future__ import annotations

import os
import time
from typing import Any, List, NamedTuple, Optional

# Two clocks that are disciplined, each by up to 500 parts per million (MAXFREQ in the kernel's
# timex.h), may drift apart by this much while they are compared. What moves more has been set.
_DRIFT_PPM = 1000

# Until the year 2262, in nanoseconds: what a signed 64-bit clock can say.
_LATEST_NS = 2**63
_COARSEST_NS = 1_000_000_000


class Sample(NamedTuple):
    """One ping: when it left, what the other clock said, when the pong was here."""

    left_ns: int
    said_ns: int
    back_ns: int

    @property
    def round_trip_ns(self) -> int:
        """How long it was on its way."""
        return self.back_ns - self.left_ns

    @property
    def offset_ns(self) -> int:
        """The other clock minus this machine's."""
        return self.said_ns - (self.left_ns + self.back_ns) // 2

    @property
    def bound_ns(self) -> int:
        """Half the round trip, rounded up, and one for what the offset was rounded down by."""
        return self.round_trip_ns // 2 + 1

    def agrees_with(self, other: Sample) -> bool:
        """Whether both can be true of a clock that nobody set in between."""
        drift_ns = abs(self.back_ns - other.back_ns) * _DRIFT_PPM // 1_000_000
        return abs(self.offset_ns - other.offset_ns) <= self.bound_ns + other.bound_ns + drift_ns


class Pings:
    """The pings of one member while it joins; nothing here waits or sends.

    At least three; up to eight until one of them is good to half a millisecond, which among hundreds
    that join at once is a matter of luck: there it stays with three.

    Attributes:
        offset_ns: the member's clock minus the hub's, None where the pings contradict one another
            (its clock was set meanwhile) or it said no time.
        bound_ns: how far at most the truth is from that.
    """

    _LEAST, _MOST, _GOOD_NS, _CROWD = 3, 8, 500_000, 256

    def __init__(self, ahead_ns: int, members: int = 1) -> None:
        """Begin.

        Args:
            ahead_ns: the hub's real-time clock minus its monotonic one when it began: setting the
                hub's clock during a run moves none of the members against the others.
            members: how many join.
        """
        self.offset_ns: Optional[int] = None
        self.bound_ns: Optional[int] = None
        self._ahead_ns = ahead_ns
        self._most = self._MOST if members <= self._CROWD else self._LEAST
        self._samples: List[Sample] = []
        self._word = ""
        self._left_ns = 0
        self._resolution_ns = _resolution_ns()

    def ping(self) -> str:
        """The word of a ping that leaves now: nobody can answer it before it is there."""
        self._word = os.urandom(8).hex()
        self._left_ns = time.monotonic_ns() + self._ahead_ns
        return self._word

    def pong(self, body: Any) -> bool:
        """Take an answer, which is here now. Whether it was the one to the ping that is out."""
        back_ns = time.monotonic_ns() + self._ahead_ns
        if not isinstance(body, list) or len(body) != 3 or not self._word or body[0] != self._word:
            return False
        _, said_ns, step_ns = body
        if type(said_ns) is not int or type(step_ns) is not int or not 0 < said_ns < _LATEST_NS:
            return False
        self._word = ""
        # The other side's word about its clock's steps can make the bound wider only.
        self._resolution_ns = max(self._resolution_ns, min(max(step_ns, 1), _COARSEST_NS))
        self._samples.append(Sample(self._left_ns, said_ns, back_ns))
        return True

    @property
    def done(self) -> bool:
        """Whether no more are wanted; then the outcome stands."""
        count = len(self._samples)
        best = min(self._samples, key=lambda sample: sample.round_trip_ns, default=None)
        if best is None or count < self._LEAST:
            return False
        if count < self._most and best.bound_ns > self._GOOD_NS:
            return False
        if all(sample.agrees_with(best) for sample in self._samples):
            self.offset_ns = best.offset_ns
            self.bound_ns = best.bound_ns + self._resolution_ns
        return True


def pong(word: Any) -> List[Any]:
    """The answer to a ping: its word, this machine's real-time clock, and the steps that it goes in."""
    return [word if isinstance(word, str) else "", time.time_ns(), _resolution_ns()]


def _resolution_ns() -> int:
    steps_s = max(time.clock_getres(time.CLOCK_MONOTONIC), time.clock_getres(time.CLOCK_REALTIME))
    return max(1, round(steps_s * 1_000_000_000))
