"""Modules that are executed when something of them is used, not when they are imported."""

from __future__ import annotations

import importlib.util
import sys
from _thread import RLock  # that of threading, which need not be loaded for it
from typing import Any

# ClusterShell imports xml.sax.saxutils, which imports urllib.request, http.client, email and ssl for a
# function that it does not call, and tarfile to copy folders through gateways: 20 of the 50 ms of its import.
UNUSED = ("urllib.request", "tarfile")


def postpone(name: str) -> None:
    """Make the import of a standard library module cost nothing until an attribute of it is asked for.

    (importlib's own LazyLoader executes the module at the second import already, for the import
    statement asks every module for its `__spec__`.)
    """
    spec = None if name in sys.modules else importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    loader = spec.loader
    lock, begun = RLock(), False

    def execute(attribute: str) -> Any:
        nonlocal begun
        # Other threads wait here until the module is whole; its own code is told what is not there yet.
        with lock:
            if not begun:
                begun = True
                loader.exec_module(module)
                if module.__dict__["__getattr__"] is execute:
                    del module.__dict__["__getattr__"]
            elif module.__dict__.get("__getattr__") is execute:
                raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
        return getattr(module, attribute)

    module.__dict__["__getattr__"] = execute
    sys.modules[name] = module
    package, _, child = name.rpartition(".")
    if package:
        setattr(sys.modules[package], child, module)
