"""One local program with its pipes, in a session of its own, that can be ended for certain."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence

from envaudit.transport.interrupts import held_interrupts

# How long a program has to leave by itself before SIGTERM, and then before SIGKILL.
GRACE_S = 0.3
# A process inside a dead mount does not even end at SIGKILL, and is not waited for any longer.
_UNINTERRUPTIBLE_S = 1.0
# What a pipe may hold without privileges (/proc/sys/fs/pipe-max-size of pipe(7)).
_PIPE_BYTES = 1 << 20
_CANNOT_EXECUTE = 126
_NOT_FOUND = 127

_running: set[Program] = set()


class Program:
    """A started program; the session keeps Ctrl-C at the terminal from reaching it unasked.

    A program that cannot be started looks like one that said why on standard error and ended with
    126 or 127, as a shell reports it.

    Attributes:
        pid: None when it was not started.
        stdin, stdout, stderr: the controller's ends of its pipes, non-blocking; whoever takes
            them closes them.
    """

    def __init__(self, argv: Sequence[str], environ: Mapping[str, str] | None = None) -> None:
        self.pid: int | None = None
        self._thread = threading.get_ident()
        self._process: subprocess.Popen[bytes] | None = None
        self._failed = _CANNOT_EXECUTE
        # A program that Ctrl-C kept from being recorded would outlive this one.
        with held_interrupts():
            self._start(argv, environ)

    def _start(self, argv: Sequence[str], environ: Mapping[str, str] | None) -> None:
        child_in, self.stdin = os.pipe()
        self.stdout, child_out = os.pipe()
        self.stderr, child_err = os.pipe()
        try:
            self._process = subprocess.Popen(
                argv, stdin=child_in, stdout=child_out, stderr=child_err, env=environ, start_new_session=True
            )
        except (OSError, ValueError) as error:
            if isinstance(error, FileNotFoundError):
                self._failed = _NOT_FOUND
            why = error.strerror if isinstance(error, OSError) else str(error)
            os.write(child_err, f"{argv[0]}: {why}\n".encode("utf-8", "replace"))
        else:
            self.pid = self._process.pid
            _running.add(self)
        for fd in (child_in, child_out, child_err):
            os.close(fd)
        for fd in (self.stdin, self.stdout, self.stderr):
            os.set_blocking(fd, False)

    def give(self, data: bytes, patience_s: float) -> bytes:
        """Write to its standard input what it takes within `patience_s`; the rest of `data` comes back."""
        # One piece of data in few turns: a pipe holds 64 KiB unless it is told otherwise.
        try:
            fcntl.fcntl(self.stdin, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        except OSError:
            pass  # more than this user may have; it only takes more turns
        view = memoryview(data)
        deadline = time.monotonic() + patience_s
        writable = select.poll()
        writable.register(self.stdin, select.POLLOUT)
        while view and (left_s := deadline - time.monotonic()) > 0:
            if not writable.poll(1000 * left_s):
                break
            try:
                view = view[os.write(self.stdin, view) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                break  # it has ended, and its exit status tells why
        return bytes(view)

    def poll(self) -> int | None:
        """The exit status, None while it runs; negative for a signal."""
        return self._process.poll() if self._process else self._failed

    def kill(self) -> None:
        """End it at once, with its group."""
        self.signal_group(signal.SIGKILL)

    def wait(self) -> int:
        """The exit status; what does not leave by itself is ended."""
        return self.end(GRACE_S)

    def end(self, patience_s: float, *, with_group: bool = False) -> int:
        """The exit status; a program that is still there after `patience_s` is ended with its group.

        `with_group` ends also what it left behind in its group when it left by itself.
        """
        if self._process is None:
            return self._failed
        if self._process.returncode is None:
            if not self.has_left(patience_s):
                self.signal_group(signal.SIGTERM)
                self.has_left(GRACE_S)
                with_group = True
            if with_group:
                # The program has not been waited for yet, so that its number is still its group's.
                self.signal_group(signal.SIGKILL)
            try:
                self._process.wait(_UNINTERRUPTIBLE_S)
            except subprocess.TimeoutExpired:
                return -signal.SIGKILL
        _running.discard(self)
        return self._process.returncode

    def signal_group(self, number: int) -> None:
        """Signal the program and everything that it started in its session's first group."""
        if self._process is not None and self._process.returncode is None:
            try:
                os.killpg(self._process.pid, number)
            except OSError:
                pass  # it ended meanwhile

    def has_left(self, seconds: float) -> bool:
        """Whether it leaves in time; its exit status is not taken, so that its pid stays its own."""
        if self._process is None or self._process.returncode is not None:
            return True
        deadline = time.monotonic() + seconds
        pause_s = 0.0005
        while True:
            try:
                if os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                    return True
            except ChildProcessError:
                return True  # whoever started us ignores SIGCHLD: the kernel has taken the status
            if time.monotonic() >= deadline:
                return False
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.02)


def end_all() -> None:
    """End every program that is still there, together: SIGTERM to all, SIGKILL to who stays.

    Those of this thread: what another one asks, with a task of its own, goes on.
    """
    own = threading.get_ident()
    programs = [program for program in list(_running) if program._thread == own]
    for program in programs:
        program.signal_group(signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    while any(not program.has_left(0.0) for program in programs) and time.monotonic() < deadline:
        time.sleep(0.005)
    for program in programs:
        program.kill()
    for program in programs:
        program.end(GRACE_S, with_group=True)
