"""Reach nodes and bring their answers back: local, ssh, or a command of the user's.

The names below are loaded when they are first asked for: the node side carries this package
too, and has neither ClusterShell nor the Python that the controller side is written for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from envaudit.transport.gathering import gather
    from envaudit.transport.interface import Progress, Request, Target, Transport

__all__ = ["Progress", "Request", "Target", "Transport", "gather"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    if name == "gather":
        postponed = import_module(f"{__name__}.postponed")
        for unused in postponed.UNUSED:
            postponed.postpone(unused)
    module = "gathering" if name == "gather" else "interface"
    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value
