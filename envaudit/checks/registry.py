"""All cases of a device, from the modules under `envaudit.checks.operations`."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import List, Sequence

from envaudit.checks import operations
from envaudit.checks.device import DeviceFacts
from envaudit.checks.operations import Case


def operation_names() -> List[str]:
    """The modules' names, sorted; works in a folder and inside a zip, and imports none."""
    return sorted(module.name for module in pkgutil.iter_modules(operations.__path__))


def cases(facts: DeviceFacts, only: Sequence[str] = ()) -> List[Case]:
    """The cases of a device in the order in which they run.

    Args:
        facts: of the device.
        only: names or beginnings of names, `gemm` or `gemm/bf16`; empty for all but those that run on
            request.
    """
    found = [
        case
        for name in operation_names()
        for case in import_module(f"{operations.__name__}.{name}").CASES(facts)
    ]
    if not only:
        return [case for case in found if not case.on_request]
    return [case for case in found if any(_begins(case.name, wanted) for wanted in only)]


def _begins(name: str, wanted: str) -> bool:
    return name == wanted or name.startswith(wanted.rstrip("/") + "/")
