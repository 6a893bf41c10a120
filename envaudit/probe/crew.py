"""Processes that share work: each takes the next piece from one pipe, and answers in lines on its own.

Threads would take turns at the interpreter's lock for every small file. A process that loses its
parent finds the pipe at its end, and ends by itself.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import sys
import termios
import time
from typing import Callable, Dict, Iterator

from envaudit.probe import child

_MAX_PROCESSES = 8
_READ_BYTES = 1 << 16
# Answers are gathered for so long: each wakes the parent, which takes a processor from the work.
_ANSWER_S = 0.02


class Crew:
    """Up to so many processes, from entering to leaving this context; they end with it."""

    def __init__(
        self, work: Callable[[bytes], bytes], piece_bytes: int, most: int, deadline_s: float
    ) -> None:
        """Prepare them.

        Args:
            work: what a process does with a piece; returns its answer, without a line's end in it.
            piece_bytes: length of every piece; a power of two up to 4096, so that none is read by halves.
            most: no more processes than this.
            deadline_s: after so many seconds they end by their own alarm.
        """
        self._work = work
        self._piece_bytes = piece_bytes
        self._most = min(most, processes())
        self._deadline_s = deadline_s
        self._pids: Dict[int, int] = {}
        self._open = False
        self._parent = 0

    def __enter__(self) -> Crew:
        """Start them; fewer, or none, where no more are to be had."""
        if self._most:
            self._reading, self._writing = os.pipe()
            self._open = True
            os.set_blocking(self._writing, False)
        parent = os.getpid()

        def take_pieces(fd: int) -> None:
            self._parent = parent
            self._take_pieces(fd)

        for _ in range(self._most):
            try:
                pid, fd = child.fork(take_pieces, self._deadline_s)
            except OSError:
                break
            self._pids[fd] = pid
        return self

    def __exit__(self, *about: object) -> None:
        """End whatever is still running."""
        self._no_more()
        for fd, pid in self._pids.items():
            os.close(fd)
            child.end(pid)
        self._pids.clear()

    def __len__(self) -> int:
        """How many processes there are."""
        return len(self._pids)

    def give(self, piece: bytes) -> bool:
        """Put a piece behind those that wait; False where no more can wait."""
        try:
            return bool(os.write(self._writing, piece))
        except BlockingIOError:
            return False

    def waiting(self) -> int:
        """How many pieces wait that no process has taken yet."""
        count = fcntl.ioctl(self._writing, termios.FIONREAD, bytes(4))
        return int.from_bytes(count, sys.byteorder) // self._piece_bytes

    def leave_if_orphaned(self) -> None:
        """For work that takes long: a process ends here when its parent has."""
        if self._parent and os.getppid() != self._parent:
            os._exit(0)

    def answers(self, give: Callable[[], bool]) -> Iterator[bytes]:
        """All lines, until every process has ended.

        `give` is called when more pieces can wait; once it returns False, there are no more to come.
        """
        poller = select.poll()
        said = {fd: bytearray() for fd in self._pids}
        for fd in said:
            poller.register(fd, select.POLLIN)
        if self._open:
            poller.register(self._writing, select.POLLOUT)
        while said:
            for fd, _ in poller.poll():
                if fd not in said:
                    if not give():
                        poller.unregister(fd)
                        self._no_more()
                    continue
                chunk = os.read(fd, _READ_BYTES)
                *lines, rest = bytes(said[fd] + chunk).split(b"\n")
                said[fd] = bytearray(rest)
                yield from lines
                if not chunk:
                    poller.unregister(fd)
                    del said[fd]
                    os.close(fd)
                    child.reap(self._pids.pop(fd))

    def _take_pieces(self, fd: int) -> None:
        os.close(self._writing)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        said = bytearray()
        due = 0.0
        while True:
            piece = os.read(self._reading, self._piece_bytes)
            if not piece:
                break
            self.leave_if_orphaned()
            said += self._work(piece) + b"\n"
            now = time.monotonic()
            if now > due:
                child.write_all(fd, bytes(said))
                said.clear()
                due = now + _ANSWER_S
        child.write_all(fd, bytes(said))

    def _no_more(self) -> None:
        if self._open:
            os.close(self._writing)
            os.close(self._reading)
            self._open = False


def processes() -> int:
    """How many share the work: one for each processor that this process may use, up to 8."""
    return max(1, min(_MAX_PROCESSES, len(os.sched_getaffinity(0))))
