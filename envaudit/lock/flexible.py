"""Conda's flexible channel priority, made of the strict and the missing one that py-rattler knows.

Flexible means that a lower channel is let in only for what the higher ones cannot do. A strict
solve that fails says which package of which lower channel it had to leave out; that package is
asked for by its channel, which excuses it alone, and the solve begins again. Without priority at
all, one package that only the second channel has would open that channel to every other one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

MAX_EXCUSED = 40
"""Packages; a CUDA toolkit has some 20. Beyond that every channel counts for everything."""

_LEFT_OUT = re.compile(
    r"─ (\S+) [^\n]* is excluded because due to strict channel priority not using this option from: '([^']+)'"
)


async def solve_flexible(
    sources: Sequence[Any], asked: Sequence[Any], roots: Iterable[str], arguments: Mapping[str, Any]
) -> tuple[list[Any], tuple[str, ...] | None]:
    """The records, and the names that a lower channel had to give; None where none had to.

    Args:
        sources: in order of priority.
        asked: match specs.
        roots: the names that are wanted for themselves.
        arguments: of py-rattler's `solve`.

    Raises:
        SolverError: there is no solution with every channel either.
    """
    from rattler import ChannelPriority, MatchSpec, solve
    from rattler.exceptions import SolverError

    excused: dict[str, Any] = {}
    while len(excused) <= MAX_EXCUSED:
        try:
            records = await solve(
                sources, [*asked, *excused.values()], channel_priority=ChannelPriority.Strict, **arguments
            )
        except SolverError as error:
            left_out = _LEFT_OUT.search(str(error))
            if left_out is None or left_out.group(1) in excused or len(sources) < 2:
                break
            name, place = left_out.groups()
            excused[name] = MatchSpec(f"{place}::{name}", strict=False)
            continue
        if not excused:
            return records, None
        needed = _needed(records, roots)
        names = tuple(sorted(record.name.normalized for record in needed))
        return needed, tuple(name for name in names if name in excused)
    records = await solve(sources, asked, channel_priority=ChannelPriority.Disabled, **arguments)
    return records, ()


def _needed(records: Sequence[Any], roots: Iterable[str]) -> list[Any]:
    """The records that the roots need: one that was excused may be needed by nothing in the end."""
    by_name = {record.name.normalized: record for record in records}
    reached: set[str] = set()
    open_names = list(roots)
    while open_names:
        name = open_names.pop()
        if name in by_name and name not in reached:
            reached.add(name)
            open_names += [re.split(r"[\s=<>!~\[]", text, maxsplit=1)[0] for text in by_name[name].depends]
    return [record for record in records if record.name.normalized in reached]
