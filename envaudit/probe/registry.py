"""The sections: one module each under `envaudit.probe.sections`, its file name is its registration.

A section module has

- `SCHEMA`: the number of its facts' layout, from 1;
- `DEADLINE_S`: the seconds after which it is ended, `DEFAULT_DEADLINE_S` when it has none;
- `read(context) -> Answer`.

What takes too long for every snapshot stands outside that folder, in `ON_REQUEST`: it is read only
where it is asked for by name.
"""

from __future__ import annotations

import os
import zipimport
from importlib import import_module
from types import ModuleType
from typing import Iterable, List, Set

from envaudit.probe import sections

DEFAULT_DEADLINE_S = 5.0

# Section to its module.
ON_REQUEST = {
    "checks": "envaudit.checks.section",
    "collectives": "envaudit.checks.collectives.section",
    "deep": "envaudit.probe.deep",
    "integrity": "envaudit.probe.integrity",
}

# What is read in the process of another section and behind it, for that one may read it in its course.
BEHIND = {"checks": "collectives"}

# Sections that do not want to know how the interpreter describes itself: it is not started for them.
ASK_NO_INTERPRETER = frozenset({"clock"})


def section_names() -> List[str]:
    """The names of all sections, sorted; works in a folder and inside a zip, and imports none."""
    found: Set[str] = set()
    for place in sections.__path__:
        found.update(name[: -len(".py")] for name in _files(place) if name.endswith(".py"))
    return sorted(name for name in found if not name.startswith("_"))


def _files(place: str) -> Iterable[str]:
    # pkgutil answers the same, from the same table of the zip, and imports inspect to do so: 5 to
    # 10 ms on every node.
    try:
        return os.listdir(place)
    except NotADirectoryError:
        archive = zipimport.zipimporter(place).archive
        prefix = place[len(archive) + 1 :] + os.sep
        table = zipimport._zip_directory_cache[archive]  # type: ignore[attr-defined]
        inside = (path[len(prefix) :] for path in table if path.startswith(prefix))
        return [name for name in inside if os.sep not in name]


def load_section(name: str) -> ModuleType:
    """The module of one section.

    Raises:
        ImportError: there is none of that name, or it does not import on this Python.
    """
    return import_module(ON_REQUEST.get(name) or f"{sections.__name__}.{name}")
