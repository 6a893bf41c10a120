"""Child processes that cannot outlive their welcome, and functions called in one.

Every child stays in the process group it was born into, so that whoever ends that group (the
transport's boot, Ctrl-C) ends all of them. Every child also carries an alarm with the default
action, which survives exec: it ends on time even when everybody above it was killed, and even
inside a library call that never returns to Python.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

GRACE_S = 1.0
_EXIT_S = 0.3
_READ_BYTES = 1 << 16
# A child keeps no handler of the process it came from: neither for being ended nor, as pytest and
# `-X faulthandler` have them, for a crash.
_SIGNALS = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGALRM,
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGABRT,
    signal.SIGFPE,
    signal.SIGILL,
)


class ChildFailed(Exception):
    """A forked function crashed, hung, raised, or said too much."""


def fork(function: Callable[[int], None], deadline_s: float) -> Tuple[int, int]:
    """Run `function(write_fd)` in a forked child; returns its pid and the pipe's reading end.

    The child's standard streams are /dev/null: what a library prints is no part of an answer. It
    leaves by `os._exit`, and its own alarm ends it a second after `deadline_s`.

    Raises:
        OSError: no more processes or descriptors are to be had.
    """
    reading, writing = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        raise
    if pid:
        os.close(writing)
        return pid, reading
    try:
        os.close(reading)
        become_child(deadline_s)
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        function(writing)
    finally:
        os._exit(0)


def call(function: Callable[[], Any], timeout_s: float, limit_bytes: int = 1 << 20) -> Any:
    """What `function()` returns, run in a forked child and passed back as JSON.

    For calls that may crash or never return: a damaged library, a resolver, a dead mount.

    Raises:
        ChildFailed: it crashed, hung, raised, or its answer is longer than `limit_bytes`.
    """

    def say(fd: int) -> None:
        try:
            text = json.dumps({"value": function()})
        except Exception as error:  # whatever a foreign library raises becomes a text
            text = json.dumps({"error": f"{type(error).__name__}: {error}"})
        write_all(fd, text.encode("ascii"))

    try:
        pid, fd = fork(say, timeout_s)
    except OSError as error:
        raise ChildFailed(f"no process for it: {error.strerror}") from error
    ended = False
    try:
        (said,), late = read_until([fd], time.monotonic() + timeout_s, limit_bytes)
        ended = not late and len(said) <= limit_bytes
    finally:
        os.close(fd)
        status = reap(pid) if ended else end(pid)
    if late:
        raise ChildFailed(f"no answer within {timeout_s:g} s")
    if len(said) > limit_bytes:
        raise ChildFailed(f"more than {limit_bytes} bytes of answer")
    try:
        answer = json.loads(said.decode("ascii"))
    except ValueError:
        raise ChildFailed(how_it_ended(status)) from None
    if "error" in answer:
        raise ChildFailed(answer["error"])
    return answer["value"]


def read_until(fds: Sequence[int], deadline: float, limit_bytes: int) -> Tuple[List[bytes], bool]:
    """All of several pipes up to their ends; the flag says that `deadline` (monotonic) came first.

    A pipe that gives more than `limit_bytes` ends the reading: its text is then longer than that.
    """
    chunks: Dict[int, bytearray] = {fd: bytearray() for fd in fds}
    poller = select.poll()
    for fd in fds:
        poller.register(fd, select.POLLIN)
    open_fds = set(fds)
    while open_fds:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return [bytes(chunks[fd]) for fd in fds], True
        for fd, _ in poller.poll(left_s * 1000):
            chunk = os.read(fd, _READ_BYTES)
            chunks[fd] += chunk
            if len(chunks[fd]) > limit_bytes:
                open_fds.clear()
            elif not chunk:
                poller.unregister(fd)
                open_fds.discard(fd)
    return [bytes(chunks[fd]) for fd in fds], False


def write_all(fd: int, text: bytes) -> None:
    """Write all of `text`; os.write alone may stop short."""
    view = memoryview(text)
    while view:
        view = view[os.write(fd, view) :]


def wait(pid: int, timeout_s: float) -> Optional[int]:
    """The wait status of a child that is about to end, or None while it has not.

    Never blocks for good: a process inside a dead mount does not even end at SIGKILL.
    """
    deadline = time.monotonic() + timeout_s
    pause_s = 0.0002
    while True:
        try:
            ended, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return None
        if ended:
            return status
        if time.monotonic() > deadline:
            return None
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, 0.02)


def end(pid: int) -> Optional[int]:
    """End a child and all below it; its wait status, None when it cannot be ended or is no child."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    if ended:
        return status
    for one in _tree(pid):
        _signal(one, signal.SIGKILL)
    return wait(pid, GRACE_S)


def reap(pid: int) -> Optional[int]:
    """The wait status of a child that has said all it had to say; one that lingers is ended.

    A pipe closes a moment before its process has ended, and `end` lists all processes of the node.
    """
    status = wait(pid, _EXIT_S)
    return end(pid) if status is None else status


def how_it_ended(status: Optional[int]) -> str:
    """A wait status in words: `ended by SIGSEGV`."""
    if status is None:
        return "could not be ended"
    code = exit_code(status)
    if code >= 0:
        return f"ended with exit status {code} and no answer"
    try:
        return f"ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"ended by signal {-code}"


def arm(deadline_s: float) -> None:
    """Set this child's own alarm: it ends a second after `deadline_s` from now."""
    signal.setitimer(signal.ITIMER_REAL, deadline_s + GRACE_S)


def become_child(deadline_s: float) -> None:
    """In a forked child: drop the handlers it was born with, and arm its alarm."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    arm(deadline_s)


def exit_code(status: int) -> int:
    """A wait status as subprocess has it: the exit status, or the negative number of the signal."""
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _tree(top: int) -> List[int]:
    """The process and all below it, each stopped before its children are listed: none escapes."""
    found: List[int] = []
    pending: Set[int] = {top}
    while pending:
        for pid in pending:
            _signal(pid, signal.SIGSTOP)
        found.extend(pending)
        parents = _parents()
        known = set(found)
        pending = {pid for pid, parent in parents.items() if parent in known and pid not in known}
    return found


def _parents() -> Dict[int, int]:
    parents: Dict[int, int] = {}
    try:
        entries = os.listdir("/proc")
    except OSError:
        return parents
    for entry in entries:
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:
                    # The name, in parentheses, may itself hold spaces and parentheses.
                    parents[int(entry)] = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue  # it ended meanwhile
    return parents


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass  # it ended meanwhile, or belongs to another user
