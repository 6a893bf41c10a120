"""ClusterShell's workers with bounds: argv lists only, raw reads, programs that end for certain.

ClusterShell's own exec client hands a string to a shell, keeps a line without end in memory, and
copies it once per read. Everything else stays its own: fan-out, timers, the event loop, and for
ssh the tree of gateways where the user has configured one.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ClusterShell.Event import EventHandler
from ClusterShell.Task import Task, task_self
from ClusterShell.Worker.Exec import ExecClient, ExecWorker
from ClusterShell.Worker.Ssh import SshClient, WorkerSsh

from envaudit.transport.program import GRACE_S, Program, end_all

__all__ = ["ArgvWorker", "BoundedSshWorker", "Listener", "new_task"]

# ClusterShell logs a broken pipe as a warning; a node that leaves early is reported as missing.
logging.getLogger("ClusterShell").addHandler(logging.NullHandler())


class Listener(EventHandler):  # type: ignore[misc]
    """An event handler that takes what its node says in raw pieces."""

    def hear(self, node: str, client: Any, chunk: bytes, *, is_stderr: bool) -> None:
        """Take a piece of output; `client.abort()` ends the command, None means it has ended."""
        raise NotImplementedError

    def late(self, node: str) -> None:
        """The node's time is over; its command is about to be ended."""
        raise NotImplementedError


def new_task(fanout: int) -> Task:
    """This thread's task, which keeps no output of its own; end it with `abort(kill=True)`."""
    task = task_self()
    task.set_default("stdout_msgtree", False)
    task.set_default("stderr_msgtree", False)
    task.set_default("distant_worker", BoundedSshWorker)
    task.set_info("fanout", fanout)
    return task


class _BoundedClient:
    """What the clients of both workers do differently from ClusterShell's own."""

    worker: Any
    streams: Any
    key: Any
    popen: Any
    _asked_to_leave = False

    def _exec_nonblock(
        self, commandlist: Sequence[str], shell: bool = False, env: Mapping[str, str] | None = None
    ) -> Program:
        assert not shell, "a command is a list of words"
        program = self._program(commandlist, {**os.environ, **env} if env else None)
        worker = self.worker
        # What daemonises itself (ssh with ControlPersist) may keep standard error open for good:
        # it is read while the command lasts, and does not make it last.
        retain = _listener(worker) is None
        self.streams.set_reader(worker.SNAME_STDERR, program.stderr, retain=retain)
        self.streams.set_reader(worker.SNAME_STDOUT, program.stdout)
        self.streams.set_writer(worker.SNAME_STDIN, program.stdin, retain=False)
        return program

    def _program(self, argv: Sequence[str], environ: Mapping[str, str] | None) -> Program:
        return Program(argv, environ)

    def _handle_read(self, sname: str) -> None:
        listener = _listener(self.worker)
        if listener is None:
            super()._handle_read(sname)  # type: ignore[misc]
        else:
            chunk = self._read(sname)  # type: ignore[attr-defined]
            is_stderr = sname == self.worker.SNAME_STDERR
            listener.hear(str(self.key), self, chunk, is_stderr=is_stderr)

    def _fire(self) -> None:
        """The time is over: ask the program to leave, and end it when it is still there a little later.

        In between the others are attended to: hundreds may be late at the same moment.
        """
        listener = _listener(self.worker)
        if listener is None or self._asked_to_leave:
            super()._fire()  # type: ignore[misc]
            return
        self._asked_to_leave = True
        listener.late(str(self.key))
        # A node's BOOT ends everything it started when its standard input closes.
        self._set_write_eof(self.worker.SNAME_STDIN)  # type: ignore[attr-defined]
        self.popen.signal_group(signal.SIGTERM)
        self.set_nextfire(GRACE_S)  # type: ignore[attr-defined]

    def _close(self, abort: bool, timeout: bool) -> None:
        listener = _listener(self.worker)
        if listener is not None:
            self._end_program(abort, timeout)
            stderr = self.worker.SNAME_STDERR
            last_words = _rest_of(self.streams[stderr].fd) if stderr in self.streams else b""
            if last_words:
                listener.hear(str(self.key), None, last_words, is_stderr=True)
        super()._close(abort, timeout)  # type: ignore[misc]

    def _end_program(self, abort: bool, timeout: bool) -> None:
        stdin = self.worker.SNAME_STDIN
        if stdin in self.streams:
            del self.streams[stdin]
        if isinstance(sys.exc_info()[1], KeyboardInterrupt):
            # The engine closes one client after the other; their programs are ended together.
            end_all()
        elif timeout:
            self.popen.kill()
        unwanted = abort or self._asked_to_leave
        self.popen.end(0.0 if abort else GRACE_S, with_group=unwanted)


class _ArgvClient(_BoundedClient, ExecClient):  # type: ignore[misc]
    """Runs its worker's argv, for its node alone."""

    def _build_cmd(self) -> tuple[Sequence[str], None]:
        return self.command, None

    def _program(self, argv: Sequence[str], environ: Mapping[str, str] | None) -> Program:
        return self.worker.begun or super()._program(argv, environ)


class ArgvWorker(ExecWorker):  # type: ignore[misc]
    """Runs one argv list for one node, or goes on with the program that was begun with it."""

    SHELL_CLASS = _ArgvClient

    def __init__(
        self,
        node: str,
        handler: Listener,
        timeout_s: float,
        argv: Sequence[str],
        begun: Program | None = None,
    ) -> None:
        self.begun = begun
        # A tuple of words, where ClusterShell expects a text to look for `%hosts` in: a word that
        # is exactly that cannot be told from it, and no transport has such a word.
        super().__init__(node, handler, timeout_s, command=tuple(argv), stderr=True)


class _BoundedSshClient(_BoundedClient, SshClient):  # type: ignore[misc]
    """ClusterShell's ssh client, bounded."""


class BoundedSshWorker(WorkerSsh):  # type: ignore[misc]
    """ClusterShell's ssh worker with the bounded client; also reaches the gateways of a tree."""

    SHELL_CLASS = _BoundedSshClient


def _listener(worker: Any) -> Listener | None:
    """Who listens to the raw output of a worker; None for the channel to a gateway."""
    handler = worker.eh
    # In a tree, a node that needs no gateway has a worker below the tree's own.
    above = getattr(handler, "metaworker", None)
    if above is not None:
        handler = above.eh
    return handler if isinstance(handler, Listener) else None


def _rest_of(fd: int, limit_bytes: int = 65536) -> bytes:
    try:
        return os.read(fd, limit_bytes)
    except OSError:
        return b""
