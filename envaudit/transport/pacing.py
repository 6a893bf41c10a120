"""Many nodes started one after the other, a moment apart, instead of all in one instant.

What a node starts, the interpreter of the environment, is read from its file system before a line
of the probe runs: on a shared one only whoever starts the nodes can spread that. An even spread
has no coincidences, which chance would have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from ClusterShell.Event import EventHandler
from ClusterShell.Task import Task

# So many nodes are started at once.
AT_ONCE = 64
# 65 nodes are spread over an eighth of a second, thousands over one to two seconds.
# ClusterShell takes an interval of a millisecond, or less, for none.
_APART_S = 0.002
_LONGEST_S = 2.0


def spread_s(count: int) -> float:
    """The seconds between the first and the last start of `count` nodes, at most."""
    return min(_LONGEST_S, _APART_S * count) if count > AT_ONCE else 0.0


def start_all(task: Task, starts: Sequence[Callable[[], object]]) -> None:
    """Call what starts each node: at once where they are few, else evenly spread once the task runs."""
    if not spread_s(len(starts)):
        for start in starts:
            start()
        return
    together = math.ceil(len(starts) * _APART_S / _LONGEST_S)
    task.timer(0.0, handler=_Pace(iter(starts), together), interval=_APART_S)


def do_aside(task: Task, pieces: Sequence[Callable[[], object]]) -> None:
    """Do one piece after the other once the task runs, with a look at the nodes in between."""
    if pieces:
        # Nobody waits for what is left of it when the nodes are through.
        task.timer(0.0, handler=_Pace(iter(pieces), 1), interval=_APART_S, autoclose=True)


class _Pace(EventHandler):  # type: ignore[misc]
    def __init__(self, starts: Iterator[Callable[[], object]], together: int) -> None:
        super().__init__()
        self._starts = starts
        self._together = together

    def ev_timer(self, timer: Any) -> None:
        """Start the next ones, or end."""
        due = list(islice(self._starts, self._together))
        for start in due:
            start()
        if not due:
            timer.invalidate()
