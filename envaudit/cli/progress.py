"""Nodes done, failed and pending, on a terminal; silence in a pipe and in CI."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import Iterator, Optional, Protocol


class Progress(Protocol):
    """What a transport tells while it asks."""

    def update(self, node: str, outcome: str) -> None:
        """A node is through; `outcome` is `done` or why it is missing."""


@contextmanager
def shown_progress(total: int) -> Iterator[Optional[Progress]]:
    """A progress bar over `total` nodes, or None where nobody would see it."""
    if total < 2 or not sys.stderr.isatty() or os.environ.get("CI"):
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
