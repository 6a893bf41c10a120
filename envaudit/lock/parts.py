"""The files of a cache that are under way, which an interrupted run takes away again."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import IO

from envaudit.errors import NeededError


class Stopped(Exception):
    """Another file failed: this one is not needed any more."""


class Parts:
    """The files that are under way. Once they have been taken away no thread begins another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._paths: set[str] = set()
        self._over = False

    def created(self, path: str) -> IO[bytes]:
        """A new file to write to.

        Raises:
            Stopped: the files have been taken away.
        """
        with self._lock:
            if self._over:
                raise Stopped
            self._paths.add(path)
            return _created(path)

    def forget(self, path: str) -> None:
        """The file is whole and has its name, or is gone."""
        with self._lock:
            self._paths.discard(path)

    def take_away(self) -> None:
        """Remove what is under way."""
        with self._lock:
            self._over = True
            for path in self._paths:
                with suppress(OSError):
                    os.unlink(path)


def cache_failure(path: str, error: OSError) -> NeededError:
    """Why a file of the cache could not be written, with advice."""
    return NeededError(
        "the package cache cannot be written",
        where=os.path.dirname(path),
        why=error.strerror or str(error),
        next_step="Free space there, or choose another place with --cache DIR.",
    )


def _created(path: str) -> IO[bytes]:
    try:
        return open(path, "xb")
    except OSError as error:
        raise cache_failure(path, error) from None
