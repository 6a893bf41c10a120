import envaudit.track as track
from envaudit._version import __version__ as __version__
from envaudit.api import diff as diff
from envaudit.api import gate as gate
from envaudit.api import snapshot as snapshot

__all__ = ["__version__", "diff", "gate", "snapshot", "track"]
