"""Which category each locked package belongs to: that of the requests that lead to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

MAIN = "main"


class Key(NamedTuple):
    """A package of one platform."""

    manager: str
    name: str


class Root(NamedTuple):
    """A package that a source file asks for, in the category of that file."""

    key: Key
    category: str


def categories_of(roots: Iterable[Root], needs: Mapping[Key, Sequence[Key]]) -> dict[Key, frozenset[str]]:
    """Package to its categories: `main` alone where some request of `main` leads to it.

    What no request leads to is `main` too: a package without a category would be left out of the
    lock when it is written.

    Args:
        roots: the requests; one that was not locked is no root.
        needs: every locked package, with what it depends on.
    """
    found: dict[Key, set[str]] = {key: set() for key in needs}
    for root in roots:
        waiting = [root.key]
        while waiting:
            key = waiting.pop()
            if key in found and root.category not in found[key]:
                found[key].add(root.category)
                waiting += needs[key]
    return {
        key: frozenset({MAIN}) if MAIN in names or not names else frozenset(names)
        for key, names in found.items()
    }
