"""What the difference between a wrong sum and the right one says about whose contribution was not right.

A sum of known contributions that comes out wrong by exactly −v_r has lost rank r's; by +v_r, it has it
twice. Over many elements no other rank's contribution is the same, so that the kind and the rank are known
together. Standard library; a few hundred wrong elements are enough and are all that is looked at.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from envaudit.checks.collectives.contribution import Law, value

# Fewer wrong elements name nobody.
LEAST = 8
# A wrong value that is within the alphabet weighs little alone, for most values are. So many must be, for
# one rank, and of them so many parts in a thousand outside it for every other rank.
_LEAST_INSIDE = 128
_CONTRADICTING_PERMILLE = 60
EXAMINED = 256

DROPPED, DOUBLED, NEGATED, SHIFTED, INSIDE = "dropped", "doubled", "negated", "shifted", "stale"


class Wrong(NamedTuple):
    """One wrong element of a sum.

    Attributes:
        place: its index in the law.
        got: what came out, None where it is no whole number.
        expected: what should have.
    """

    place: int
    got: Optional[int]
    expected: int


class Residual(NamedTuple):
    """What explains all of the wrong elements.

    Attributes:
        kind: `dropped`, `doubled`, `negated`, `shifted` (by an element), `stale` (within the alphabet
            everywhere); empty when nothing does.
        ranks: those whose contribution it may be; one of them when it is named.
    """

    kind: str = ""
    ranks: Tuple[int, ...] = ()

    def to_json(self) -> Dict[str, Any]:
        """Only strings, integers and lists."""
        return {"kind": self.kind, "ranks": list(self.ranks)}


def classify(law: Law, wrong: Sequence[Wrong], bits: int = 0) -> Residual:
    """The single kind of fault at a single rank that explains every wrong element; else an empty one.

    Args:
        law: of a sum.
        wrong: wrong elements, up to EXAMINED of them.
        bits: the width of an integer dtype, in which a sum wraps around; 0 for floats.
    """
    if len(wrong) < LEAST or any(each.got is None for each in wrong):
        return Residual()
    apart = [(each.place, _wrapped(int(each.got or 0) - each.expected, bits)) for each in wrong]
    exact: List[Tuple[str, Callable[[int, int], int]]] = [
        (DROPPED, lambda rank, index: -value(law, rank, index)),
        (DOUBLED, lambda rank, index: value(law, rank, index)),
        (NEGATED, lambda rank, index: -2 * value(law, rank, index)),
        (SHIFTED, lambda rank, index: value(law, rank, index + 1) - value(law, rank, index)),
        (SHIFTED, lambda rank, index: value(law, rank, index - 1) - value(law, rank, index)),
    ]
    for kind, residual in exact:
        ranks = [rank for rank in range(law.world) if _explains(apart, residual, rank, bits)]
        if ranks:
            return Residual(kind, tuple(ranks)) if len(ranks) == 1 else Residual()
    if len(apart) < _LEAST_INSIDE:
        return Residual()
    outside = [_outside(law, apart, rank) for rank in range(law.world)]
    inside = [rank for rank, count in enumerate(outside) if not count]
    contradicted = [count for count in outside if count * 1000 >= len(apart) * _CONTRADICTING_PERMILLE]
    if len(inside) != 1 or len(contradicted) != law.world - 1:
        return Residual()
    return Residual(INSIDE, (inside[0],))


def _explains(
    apart: Sequence[Tuple[int, int]], residual: Callable[[int, int], int], rank: int, bits: int
) -> bool:
    # A shift leaves its mark at an end of the buffer that the law does not know: before the first element.
    return all(_wrapped(residual(rank, index), bits) == off for index, off in apart if index)


def _outside(law: Law, apart: Sequence[Tuple[int, int]], rank: int) -> int:
    """How many elements are not what another entry of the alphabet from this rank would make them."""
    count = 0
    for place, off in apart:
        own = value(law, rank, place)
        count += own == law.neutral or abs(own + off) > law.k or (not law.signed and own + off < 0)
    return count


def _wrapped(number: int, bits: int) -> int:
    if not bits:
        return number
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number
