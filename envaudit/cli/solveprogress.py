"""What each platform is at while a lock is made, on a terminal; silence in a pipe and in CI."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

_WORDS = {"channels": "reading channels", "solve": "solving", "pip": "resolving pip", "done": "solved"}


class _Shown:
    """One line a platform."""

    def __init__(self, bar: Any, platforms: Sequence[str]) -> None:
        self._bar = bar
        self._guard = threading.Lock()
        self._tasks = {
            platform: bar.add_task(platform, total=None, what=_WORDS["channels"]) for platform in platforms
        }

    def phase(self, platform: str, phase: str, detail: str) -> None:
        """A platform, or all of them where it is empty, has come to a phase."""
        with self._guard:
            for name, task in self._tasks.items():
                if platform in ("", name):
                    self._bar.update(task, what=f"{_WORDS.get(phase, phase)} {detail}"[:60])


@contextmanager
def shown_solve(platforms: Sequence[str]) -> Iterator[_Shown | None]:
    """A spinner for each platform, or None where nobody would see it."""
    if not sys.stderr.isatty() or os.environ.get("CI"):
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TextColumn("{task.fields[what]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield _Shown(bar, platforms)
