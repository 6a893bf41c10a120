"""Phases of a long work on a terminal; silence in a pipe and in CI."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_WORDS = {"fetch": "fetching", "link": "linking", "pip": "pip packages"}


class _Shown:
    """One bar, of the phase that is under way."""

    def __init__(self, bar: Any) -> None:
        self._bar = bar
        self._task: Any = None
        self._guard = threading.Lock()

    def begin(self, phase: str, total: int) -> None:
        """A phase of so many steps starts."""
        with self._guard:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task = self._bar.add_task(_WORDS.get(phase, phase), total=total, what="")

    def advance(self, what: str) -> None:
        """One step of it is done."""
        with self._guard:
            if self._task is not None:
                self._bar.update(self._task, advance=1, what=what[:40])


@contextmanager
def shown_phases() -> Iterator[_Shown | None]:
    """A progress bar, or None where nobody would see it."""
    if not sys.stderr.isatty() or os.environ.get("CI"):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[what]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield _Shown(bar)
