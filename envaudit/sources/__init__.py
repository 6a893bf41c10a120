"""Foreign reports read as sections: what others wrote down of an environment, and what they locked.

One file of `kinds/` is one kind of report, and its name is its registration. It has

- `KIND`, what a message calls it;
- `IS_LOCK`, whether it names every package, so that an environment can be held to it;
- `matches(text) -> bool`, by content alone: a file's name proves nothing;
- `read(text, where, setting) -> list[Section]`, which raises `InputError` and nothing else.

Facts stand at the paths where the probe puts them. A section is `partial`, for no report says
everything; a map that it lists to the end is named in `Section.whole`. What a report does not say
is unknown, never absent.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from collections.abc import Mapping, Sequence
from typing import Protocol

from envaudit.errors import InputError
from envaudit.model.canonical import check_fact
from envaudit.model.section import Section
from envaudit.sources import kinds as _kinds
from envaudit.sources.setting import Setting

# What people send instead, by a line of it, and what to send.
_NEAR_MISSES = (
    (
        r"dependencies[ \t]*:",
        "An environment file asks for packages and tells of none: lock it with 'envaudit lock'.",
    ),
    (r"Package +Version\b", "'pip list' is not read: give 'pip freeze' or 'pip inspect'."),
    (
        r"# packages in environment at |List of packages in environment:",
        "'conda list' is not read: give 'conda list --json'.",
    ),
    (
        r"\| NVIDIA-SMI |=+NVSMI LOG=+",
        "Of nvidia-smi the XML is read: give 'nvidia-smi -q -x'.",
    ),
    (r'\{"head":', "It is a snapshot: 'envaudit diff' and 'envaudit show' take it as it is."),
)

__all__ = ["Kind", "Setting", "kinds", "recognised", "sections_of"]


class Kind(Protocol):
    """What a module of `kinds/` is."""

    @property
    def KIND(self) -> str:  # noqa: N802
        """What a message calls it, `pip freeze`."""

    @property
    def IS_LOCK(self) -> bool:  # noqa: N802
        """Whether it names every package, so that an environment can be held to it."""

    def matches(self, text: str) -> bool:
        """Whether a text is of this kind."""

    def read(self, text: str, where: str, setting: Setting) -> list[Section]:
        """The sections that it speaks of."""


@functools.cache
def kinds() -> Mapping[str, Kind]:
    """Every kind that is read, by the name of its module, sorted."""
    names = sorted(module.name for module in pkgutil.iter_modules(_kinds.__path__))
    return {name: importlib.import_module(f"{_kinds.__name__}.{name}") for name in names}


def recognised(text: str, where: str, among: Sequence[Kind]) -> Kind:
    """The one kind that a text is of.

    Raises:
        InputError: it is of none of them, or more than one claims it.
    """
    claims = [kind for kind in among if kind.matches(text)]
    if len(claims) == 1:
        return claims[0]
    if claims:
        raise InputError(
            f"could be more than one kind of report: {', '.join(kind.KIND for kind in claims)}",
            where=where,
            next_step="Give each report a file of its own.",
        )
    if not text.strip():
        raise InputError(
            "is empty", where=where, next_step="See whether the program that should write it ended well."
        )
    advice = (step for sign, step in _NEAR_MISSES if re.search(rf"^(?:{sign})", text, re.MULTILINE))
    raise InputError(
        "no report that is known",
        where=where,
        why=f"tried an envaudit snapshot, {', '.join(kind.KIND for kind in among)}",
        next_step=next(advice, "Give the program's whole output, as it printed it."),
    )


def sections_of(kind: Kind, text: str, where: str, setting: Setting) -> dict[str, Section]:
    """What a report says, by section, every fact within the model's limits.

    Raises:
        InputError: it cannot be read, or says nothing at all.
    """
    sections = {section.name: section for section in kind.read(text, where, setting)}
    if not sections:
        raise InputError(f"says nothing, taken for {kind.KIND}", where=where)
    for name, section in sections.items():
        check_fact(section.facts, f"{where}: {name}")
        check_fact(section.notes, f"{where}: {name}")
    return sections
