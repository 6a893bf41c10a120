"""envaudit: does every node run the environment we locked, and compute the right numbers.

`snapshot`, `diff` and `gate` are those of `envaudit.api`, `track` is `envaudit.track`. They are imported when
they are first asked for, because every command and every node imports this file; their types stand in
`__init__.pyi`.
"""

from envaudit._version import __version__

__all__ = ["__version__", "diff", "gate", "snapshot", "track"]


def __getattr__(name: str) -> object:
    import importlib

    if name in ("gate", "snapshot"):
        return getattr(importlib.import_module("envaudit.api"), name)
    if name in ("api", "diff", "track"):
        # The room of differences can be called: once it is imported, its name here is its own.
        return importlib.import_module(f"envaudit.{name}")
    raise AttributeError(f"module 'envaudit' has no attribute '{name}'")


def __dir__() -> "list[str]":
    return sorted({*globals(), *__all__})
