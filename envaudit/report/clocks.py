"""Clocks as lines: those in step folded, those apart one by one."""

from __future__ import annotations

from typing import Dict, Iterator, List, Sequence, Tuple

from envaudit.model.clockoffset import in_words
from envaudit.model.nodeset import fold
from envaudit.report import Clock
from envaudit.report.lines import Line, Span, line
from envaudit.report.screen import printable, shortened

# What the offsets are relative to, in words.
BASES = {
    "median": "Offsets from the median of the clocks.",
    "pair": "Offsets from the middle between the two clocks: which one is right they cannot tell.",
    "here": "The offset from this machine's clock: there is no other one to hold it against.",
    "alone": "One clock, and no other one to hold it against.",
}

_STATE_CHARACTERS = 60


def clock_lines(clocks: Sequence[Clock], basis: str, verbose: bool) -> List[Line]:
    """One line for all clocks that are in step and kept alike; with `verbose` one for each."""
    if not clocks:
        return []
    rows = list(_rows(clocks, verbose))
    widths = [max(len(cells[column]) for cells, _ in rows) for column in range(3)]
    lines = [line(BASES[basis])]
    for cells, apart in rows:
        text = "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths))
        lines.append(line(Span(f"  {text}", "warning" if apart else "")))
    return lines


def _rows(clocks: Sequence[Clock], verbose: bool) -> Iterator[Tuple[Tuple[str, str, str], bool]]:
    """Nodes, offset and state, and whether the row is one of a clock that is apart; those come first."""
    alike: Dict[Tuple[object, ...], List[Clock]] = {}
    for clock in clocks:
        single = clock.node if verbose or clock.apart else ""
        key = (single, clock.offset_ns is None, state_of(clock))
        alike.setdefault(key, []).append(clock)
    for together in sorted(alike.values(), key=lambda each: not each[0].apart):
        nodes = printable(fold([clock.node for clock in together]))
        state = shortened(printable(state_of(together[0])), 0 if verbose else _STATE_CHARACTERS)
        yield (nodes, _offset(together), state), together[0].apart


def _offset(together: Sequence[Clock]) -> str:
    """`+3.200 s ± 0.064 ms` of one clock, `within 0.012 ms ± 0.064 ms` of several."""
    known = [(clock.offset_ns, clock.bound_ns) for clock in together if clock.offset_ns is not None]
    if not known:
        return "offset not known"
    bound = in_words(max(bound_ns for _, bound_ns in known))
    if len(known) == 1:
        return f"{in_words(known[0][0], signed=True)} ± {bound}"
    return f"within {in_words(max(abs(offset_ns) for offset_ns, _ in known))} ± {bound}"


def state_of(clock: Clock) -> str:
    """By what a clock is kept: `chrony, synchronised`."""
    service = {"none": "no time service", "": "no time service visible"}.get(clock.service, clock.service)
    words = {True: "synchronised", False: "not synchronised", None: "not known whether synchronised"}
    leap = "" if clock.leap in ("normal", "not synchronised", "") else f", leap: {clock.leap}"
    return f"{service}, {words[clock.synchronised]}{leap}"
