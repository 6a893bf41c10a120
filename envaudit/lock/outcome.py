"""What came of a solve where no lock did, as the Section `solve`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from envaudit.lock.credentials import cleaned
from envaudit.lock.entries import Entry
from envaudit.lock.pip import PipConflictError
from envaudit.lock.solve import Conflict
from envaudit.model.canonical import Fact
from envaudit.model.section import Section

NAME = "solve"
SCHEMA = 1

# Where a name ends in `numpy<1.25`, `fsspec[http]`, `tqdm==4.66.1`.
_NAME_END = re.compile(r"[=<>!~\[@]")


@dataclass(frozen=True)
class PipConflict:
    """A pip part without a solution on one platform.

    Attributes:
        entries: those of the pip section that the resolver's explanation names.
        explanation: lines: the resolver's words, and what conda provides of what they name.
    """

    platform: str
    entries: tuple[Entry, ...]
    explanation: tuple[str, ...]
    hint: str = ""


def pip_conflict(
    platform: str, error: PipConflictError, entries: Sequence[Entry], given: Mapping[str, str]
) -> PipConflict:
    """The resolver's complaint, with the lines of the source that it speaks of.

    Args:
        platform: where there is no solution.
        error: as it was raised.
        entries: of the pip section.
        given: distribution to version, of the conda part.
    """
    words = error.explanation.lower().replace("`", " ").split()
    names = {_NAME_END.split(word.strip(".,;:'\"()"))[0] for word in words}
    at_fault = tuple(entry for entry in entries if entry.key and entry.key in names)
    by_conda = [f"{name} {given[name]}" for name in sorted(names) if name in given]
    told = (f"conda provides {', '.join(by_conda)}",) if by_conda else ()
    return PipConflict(platform, at_fault, (error.explanation, *told), error.hint)


def solve_section(
    conflicts: Sequence[Conflict] = (),
    pip_conflicts: Sequence[PipConflict] = (),
    helped: Mapping[str, Sequence[str]] | None = None,
    suggestions: Mapping[str, bool] | None = None,
) -> Section:
    """The facts of a solve.

    Args:
        conflicts: of the conda part.
        pip_conflicts: of the pip part.
        helped: platforms where a channel further down had to help out, with the packages it gave; none
            where every channel had to count for everything.
        suggestions: specs that would ask for a CUDA build, and whether they solve.
    """
    facts: dict[str, Fact] = {
        "conflicts": [
            {
                "platform": conflict.platform,
                "specs": [{"text": cleaned(spec.text), "where": spec.where} for spec in conflict.specs],
                "explanation": [cleaned(line) for line in conflict.explanation],
                "hints": [cleaned(line) for line in conflict.hints],
            }
            for conflict in conflicts
        ],
        "pip_conflicts": [
            {
                "platform": conflict.platform,
                "specs": [{"text": cleaned(each.text), "where": each.place} for each in conflict.entries],
                "explanation": [cleaned(line) for line in conflict.explanation],
                "hints": [conflict.hint] if conflict.hint else [],
            }
            for conflict in pip_conflicts
        ],
        "helped": {platform: list(names) for platform, names in (helped or {}).items()},
        "suggestions": dict(suggestions or {}),
    }
    return Section(NAME, SCHEMA, "ok", facts)
