"""envaudit: does every node run the environment we locked, and compute the right numbers.

`snapshot`, `diff` and `gate` are those of `envaudit.api`, `track` is `envaudit.track`; they are imported
when they are first asked for, because every command and every node imports this file.
"""

from envaudit._version import __version__

__all__ = ["__version__", "diff", "gate", "snapshot", "track"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    import envaudit.track as track
    from envaudit.api import diff, gate, snapshot


def __getattr__(name: str) -> object:
    if name in ("gate", "snapshot"):
        from envaudit import api

        return getattr(api, name)
    if name in ("api", "diff", "track"):
        import importlib

        # The room of that name, which can be called: once a room is imported, its name here is its own.
        return importlib.import_module(f"envaudit.{name}")
    raise AttributeError(f"module 'envaudit' has no attribute '{name}'")
