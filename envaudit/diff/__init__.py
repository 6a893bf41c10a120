"""Fingerprints folded into drifts: what differs, on which nodes, measured against what.

The room can be called: `envaudit.diff(a, b)` is that of `envaudit.api`. Python binds the name of a
package's part to that part once it is imported, and here the two are called alike.
"""

import sys
from types import ModuleType
from typing import Any

from envaudit.diff.compare import compare, compare_to_reference
from envaudit.diff.paths import PathFilter

__all__ = ["PathFilter", "compare", "compare_to_reference"]


class _Room(ModuleType):
    """This package as a module that answers a call as the API does."""

    def __call__(self, *sides: Any, **options: Any) -> Any:
        import envaudit

        return envaudit.api.diff(*sides, **options)


sys.modules[__name__].__class__ = _Room
