"""How far a node's clock is from the controller's and from the cluster's, always with its bound.

Offsets are measured while nodes are asked (`envaudit.transport.clockoffset`) and kept as a note of
section clock: two healthy nodes differ in them. Only those of one run are held against each other,
for another run has another controller, or the same one at another time.
"""

from __future__ import annotations

from typing import Dict, List, Mapping, NamedTuple, Optional

from envaudit.model.fingerprint import Fingerprint

SECTION = "clock"
NOTE = "against_controller"


class Offset(NamedTuple):
    """A clock minus another one, in nanoseconds: the truth is at most `bound_ns` away from it."""

    offset_ns: int
    bound_ns: int

    @property
    def at_least_ns(self) -> int:
        """How far apart the two are for certain, without a sign."""
        return max(0, abs(self.offset_ns) - self.bound_ns)

    @property
    def at_most_ns(self) -> int:
        """How far apart the two may be, without a sign."""
        return abs(self.offset_ns) + self.bound_ns


class Run(NamedTuple):
    """The nodes that one run tried to measure.

    Attributes:
        measured: offsets from that run's controller.
        reasons: of the other nodes, why there is none.
    """

    measured: Dict[str, Offset]
    reasons: Dict[str, str]


def offset_of(fingerprint: Fingerprint) -> Optional[Offset]:
    """A node's offset from its controller, None where none was measured."""
    note = _note(fingerprint, NOTE)
    offset_ns, bound_ns = note.get("offset_ns"), note.get("bound_ns")
    if not isinstance(offset_ns, int) or not isinstance(bound_ns, int) or bound_ns < 0:
        return None
    return Offset(offset_ns, bound_ns)


def runs(fingerprints: List[Fingerprint]) -> List[Run]:
    """The fingerprints by the run that measured them; without those that no run tried to measure."""
    found: Dict[str, Run] = {}
    for fingerprint in fingerprints:
        name = _note(fingerprint, NOTE).get("run")
        if not isinstance(name, str):
            continue
        run = found.setdefault(name, Run({}, {}))
        offset = offset_of(fingerprint)
        if offset is not None:
            run.measured[fingerprint.node] = offset
        else:
            why = _note(fingerprint, "not_examined").get(NOTE)
            run.reasons[fingerprint.node] = why if isinstance(why, str) else "no answer to a ping"
    return list(found.values())


def against_median(measured: Mapping[str, Offset]) -> Dict[str, Offset]:
    """Each node's offset from the median of all: a few clocks that are off do not move it.

    The median of clocks that are each known to a bound lies between the median of their lower and
    that of their upper ends, since a median grows with each of its values. Both bounds together hold
    the difference. Of two clocks the median is the middle between them, and says of neither that it
    is the wrong one: `apart` holds them against each other.
    """
    if not measured:
        return {}
    middle = _median([each.offset_ns for each in measured.values()])
    low = _median([each.offset_ns - each.bound_ns for each in measured.values()])
    high = _median([each.offset_ns + each.bound_ns for each in measured.values()])
    middle_bound_ns = max(high - middle, middle - low)
    return {
        node: Offset(each.offset_ns - middle, each.bound_ns + middle_bound_ns)
        for node, each in measured.items()
    }


def apart(first: Offset, second: Offset) -> Offset:
    """The second clock minus the first."""
    return Offset(second.offset_ns - first.offset_ns, first.bound_ns + second.bound_ns)


def in_words(nanoseconds: int, *, signed: bool = False) -> str:
    """A span in the unit that suits it, to three places: `+3.200 s`, `0.064 ms`, `12 µs`."""
    size = abs(nanoseconds)
    sign = "+" if signed and nanoseconds > 0 else "-" if nanoseconds < 0 else ""
    if size >= 1_000_000_000:
        return f"{sign}{size / 1_000_000_000:.3f} s"
    if size >= 100_000:
        return f"{sign}{size / 1_000_000:.3f} ms"
    return f"{sign}{-(-size // 1000)} µs"


def _median(values: List[int]) -> int:
    """The middle value, or the middle of the two middle ones, rounded down."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) // 2


def _note(fingerprint: Fingerprint, name: str) -> Mapping[str, object]:
    section = fingerprint.sections.get(SECTION)
    note = section.notes.get(name) if section is not None else None
    return note if isinstance(note, dict) else {}
