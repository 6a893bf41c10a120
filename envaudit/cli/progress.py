"""Nodes done, failed and pending, files looked at, on a terminal; silence in a pipe and in CI."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from typing import Callable, Iterator, Optional, Protocol

# Files and bytes that are through, and of how many.
Tell = Callable[[int, int, int, int], None]

_REFRESH_S = 0.1


class Progress(Protocol):
    """What a transport tells while it asks."""

    def update(self, node: str, outcome: str) -> None:
        """A node is through; `outcome` is `done` or why it is missing."""


@contextmanager
def shown_progress(total: int) -> Iterator[Optional[Progress]]:
    """A progress bar over `total` nodes, or None where nobody would see it."""
    if total < 2 or not _is_seen():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("nodes"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} failed"),
        TimeElapsedColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("nodes", total=total, failed=0)
        failed = 0

        class Shown:
            def update(self, node: str, outcome: str) -> None:
                nonlocal failed
                failed += outcome != "done"
                bar.update(task, advance=1, failed=failed)

        yield Shown()


@contextmanager
def shown_files() -> Iterator[Optional[Tell]]:
    """A progress bar over files and bytes, told how far they are; None where nobody would see it."""
    if not _is_seen():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.fields[files]} files"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    # No thread of its own: whoever tells may fork, which a process with threads must not.
    with Bar(*columns, console=Console(stderr=True), transient=True, auto_refresh=False) as bar:
        task = bar.add_task("files", total=None, files=0)
        shown_at = 0.0

        def tell(files: int, size_bytes: int, all_files: int, all_bytes: int) -> None:
            nonlocal shown_at
            bar.update(task, completed=size_bytes, total=all_bytes, files=f"{files} of {all_files}")
            if time.monotonic() - shown_at > _REFRESH_S:
                shown_at = time.monotonic()
                bar.refresh()

        yield tell


@contextmanager
def shown_operations() -> Iterator[Optional[Tell]]:
    """A progress bar over operations, told as over files; None where nobody would see it."""
    if not _is_seen():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("operations"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("operations", total=None)

        def tell(done: int, _done_bytes: int, all_of_them: int, _all_bytes: int) -> None:
            bar.update(task, completed=done, total=all_of_them)

        yield tell


@contextmanager
def followed(tell: Optional[Tell]) -> Iterator[Optional[str]]:
    """A file into which another process of this machine writes how far it is; `tell` is told of it."""
    if tell is None:
        yield None
        return
    import tempfile
    import threading

    ended = threading.Event()
    with tempfile.NamedTemporaryFile(prefix="envaudit-progress-") as file:

        def follow() -> None:
            while not ended.wait(_REFRESH_S):
                numbers = os.pread(file.fileno(), 200, 0).split()
                if len(numbers) == 4:
                    tell(*map(int, numbers))

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield file.name
        finally:
            ended.set()
            thread.join()


def _is_seen() -> bool:
    return sys.stderr.isatty() and not os.environ.get("CI")
