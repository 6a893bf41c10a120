"""The sections: one module each under `envaudit.probe.sections`, its file name is its registration.

A section module has

- `SCHEMA`: the number of its facts' layout, from 1;
- `DEADLINE_S`: the seconds after which it is ended, `DEFAULT_DEADLINE_S` when it has none;
- `read(context) -> Answer`.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from types import ModuleType
from typing import List

from envaudit.probe import sections

DEFAULT_DEADLINE_S = 5.0


def section_names() -> List[str]:
    """The names of all sections, sorted; works in a folder and inside a zip, and imports none."""
    found = pkgutil.iter_modules(sections.__path__)
    return sorted(module.name for module in found if not module.name.startswith("_"))


def load_section(name: str) -> ModuleType:
    """The module of one section.

    Raises:
        ImportError: there is none of that name, or it does not import on this Python.
    """
    return import_module(f"{sections.__name__}.{name}")


def section_modules() -> List[ModuleType]:
    """The modules of all sections, sorted by name."""
    return [load_section(name) for name in section_names()]
