"""How far a node's clock is from this machine's, by pings over the channel that is already open.

The method is Cristian's (F. Cristian, "Probabilistic clock synchronization", Distributed Computing
3, 1989): a ping leaves at t0, the node reads its clock as T and sends it back, the pong is here at
t1. The node read its clock some time between t0 and t1, so that

    offset = T - (t0 + t1) / 2,  and the truth is at most (t1 - t0) / 2 away,

however the way there and the way back differ. Of many pings the one with the smallest round trip
says most. This is the offset of NTP (RFC 5905, section 8) with its second and third timestamp in
one, since the node answers at once.

A node may lie about its clock, as about every fact; it cannot make its answer look more precise
than it is. Each ping carries a word that nobody can guess, a pong counts for the ping that is out,
and what is said without one, early or twice counts for nothing.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from envaudit.control.clocks import Sample
from envaudit.model.clockoffset import NOTE, SECTION
from envaudit.model.fingerprint import Fingerprint
from envaudit.transport.boot import PONG

# How long a node may keep silent, and how long it may take for all pings together.
SILENCE_S = 2.0
PATIENCE_NS = 1_000_000_000
# No more of a node's talk is looked at than this.
MAX_HEARD_BYTES = 64 * 1024
_MAX_LINE_BYTES = 512

# The closest of so many readings of two clocks; each takes less than a microsecond.
_READINGS = 16

# Until the year 2262, in nanoseconds: what a signed 64-bit clock can say.
_LATEST_NS = 2**63
_WORD_BYTES = 8


class Effort(NamedTuple):
    """How many pings a node is sent.

    Attributes:
        least: so many in any case.
        most: no more than these.
        good_bound_ns: after the first `least`, a bound as good as this ends it.
    """

    least: int
    most: int
    good_bound_ns: int


# For a look at the clocks along with everything else, and for a look at them alone.
PASSING = Effort(3, 8, 500_000)
THOROUGH = Effort(64, 64, 0)


@dataclass(frozen=True)
class Timebase:
    """This machine's clock as it was when a run began, carried on by the monotonic clock.

    Setting this machine's clock during a run moves none of the nodes against the others.

    Attributes:
        run: the name of the run; offsets of two runs are not comparable.
        ahead_ns: the real-time clock minus the monotonic clock at its beginning.
        bound_ns: how far the truth may be from that; part of every offset's bound.
    """

    run: str
    ahead_ns: int
    bound_ns: int = 0

    @classmethod
    def start(cls) -> Timebase:
        """From now on.

        The two clocks cannot be read at once, and whoever reads them may be put aside in between: the
        one is read between two readings of the other, often, and the closest pair counts.
        """
        width_ns, ahead_ns = min(_read_clocks() for _ in range(_READINGS))
        return cls(os.urandom(8).hex(), ahead_ns, width_ns // 2 + 1)

    def now_ns(self) -> int:
        """Nanoseconds since the epoch."""
        return self.ahead_ns + time.monotonic_ns()


def _read_clocks() -> tuple[int, int]:
    """How long it took, and the real-time clock minus the monotonic one in the middle of that."""
    before_ns = time.monotonic_ns()
    now_ns = time.time_ns()
    after_ns = time.monotonic_ns()
    return after_ns - before_ns, now_ns - (before_ns + after_ns) // 2


class Measure:
    """The pings of one node, from the first to the last; nothing here waits or sends.

    Attributes:
        done: whether no more is wanted of the node.
    """

    def __init__(self, timebase: Timebase, effort: Effort) -> None:
        self.done = False
        self._timebase = timebase
        self._effort = effort
        self._samples: list[Sample] = []
        self._word = b""
        self._left_ns = self._began_ns = 0
        self._partial = b""
        self._heard_bytes = 0

    def begin(self) -> bytes:
        """The first ping, to be sent at once."""
        ping = self._ping()
        self._began_ns = self._left_ns
        return ping

    def hear(self, chunk: bytes, heard_ns: int) -> bytes:
        """Take what the node said; the next ping, to be sent at once, or b"" where there is none.

        Args:
            chunk: a piece of its standard output.
            heard_ns: when it was here, in the time of the timebase.
        """
        self._heard_bytes += len(chunk)
        if self._heard_bytes > MAX_HEARD_BYTES:
            self.done = True
        if self.done:
            return b""
        *lines, self._partial = (self._partial + chunk)[-MAX_HEARD_BYTES:].split(b"\n")
        self._partial = self._partial[-_MAX_LINE_BYTES:]
        if not any(self._pong(line, heard_ns) for line in lines):
            return b""
        self.done = self._is_enough(heard_ns)
        return b"" if self.done else self._ping()

    def _ping(self) -> bytes:
        self._word = os.urandom(_WORD_BYTES).hex().encode("ascii")
        self._left_ns = self._timebase.now_ns()
        return self._word + b"\n"

    def _pong(self, line: bytes, heard_ns: int) -> bool:
        """Whether a line answers the ping that is out; a prompt may stand before it."""
        words = line[-_MAX_LINE_BYTES:].partition(PONG)[2].split()
        if not self._word or len(words) != 2 or words[1] != self._word:
            return False
        self._word = b""
        if words[0].isdigit() and len(words[0]) < 20 and int(words[0]) < _LATEST_NS:
            self._samples.append(Sample(self._left_ns, int(words[0]), heard_ns))
            return True
        self.done = True
        return False

    def _is_enough(self, now_ns: int) -> bool:
        count = len(self._samples)
        if count >= self._effort.most or now_ns - self._began_ns > PATIENCE_NS:
            return True
        return count >= self._effort.least and self._best().bound_ns <= self._effort.good_bound_ns

    def _best(self) -> Sample:
        return min(self._samples, key=lambda sample: sample.round_trip_ns)

    def outcome(self) -> Sample | str:
        """The ping that says most, or why nothing is known."""
        if not self._samples:
            return "no answer to a ping"
        best = self._best()
        if not all(sample.agrees_with(best) for sample in self._samples):
            return "the clock was set while it was measured"
        return best

    @property
    def count(self) -> int:
        """How many pings were answered."""
        return len(self._samples)


def noted(fingerprint: Fingerprint, timebase: Timebase, measure: Measure | str) -> Fingerprint:
    """The fingerprint with what was measured among the notes of section clock, or with the reason.

    What the node itself has said under that name is dropped.
    """
    section = fingerprint.sections.get(SECTION)
    if section is None:
        return fingerprint
    notes = dict(section.notes)
    outcome = measure if isinstance(measure, str) else measure.outcome()
    told: dict[str, Any] = {"run": timebase.run}
    if isinstance(measure, Measure) and isinstance(outcome, Sample):
        told["offset_ns"] = outcome.offset_ns
        told["bound_ns"] = outcome.bound_ns + timebase.bound_ns + _resolution_ns(notes)
        told["round_trip_ns"] = outcome.round_trip_ns
        told["pings"] = measure.count
    else:
        examined = notes.get("not_examined")
        notes["not_examined"] = {**(examined if isinstance(examined, dict) else {}), NOTE: outcome}
    notes[NOTE] = told
    sections = {**fingerprint.sections, SECTION: section.with_details(notes, section.errors)}
    return replace(fingerprint, sections=sections)


def _resolution_ns(notes: dict[str, Any]) -> int:
    """The steps of the two clocks; the node's own word can make its bound wider only."""
    told = notes.get("resolution_ns")
    node_ns = told if isinstance(told, int) and 0 < told <= 1_000_000_000 else 1
    return node_ns + round(time.clock_getres(time.CLOCK_MONOTONIC) * 1_000_000_000)
