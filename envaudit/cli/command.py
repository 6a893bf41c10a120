"""A command run as if it stood in this process' place: its code, and every signal that comes."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

NOT_FOUND, NOT_EXECUTABLE = 127, 126

FORWARDED = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGWINCH),
)
# Of these, once the command has ended, each would end this process before it can pass the code on.
_PAST = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)
# sigaction(2): a signal of the kernel's, such as the terminal's for Ctrl-C.
_SI_KERNEL = 0x80
# prctl(2)
_PR_SET_PDEATHSIG = 1


class Ended(NamedTuple):
    """How a command ended.

    Attributes:
        code: as a shell has it: its own, 128 and the signal's number, 127 or 126 where it did not start.
        signal: the name of the signal that ended it, `SIGTERM`; empty where none did.
        started: whether it ran at all.
        why: why it did not start.
    """

    code: int
    signal: str = ""
    started: bool = True
    why: str = ""


def cannot_start(argv: Sequence[str], environ: Mapping[str, str]) -> Ended | None:
    """Why a command is not one that can be started; None where it looks as if it could."""
    program = argv[0]
    if shutil.which(program, path=environ.get("PATH")) is not None:
        return None
    if "/" in program and os.path.exists(program):
        return Ended(NOT_EXECUTABLE, started=False, why=f"{program}: not executable")
    return Ended(NOT_FOUND, started=False, why=f"{program}: command not found")


def run(argv: Sequence[str]) -> Ended:
    """Run a command to its end, on this process' own streams.

    A signal for this process goes to the command. On a terminal the command stays in the terminal's
    group, which has Ctrl-C from the kernel already; elsewhere it has a group of its own, so that what
    is sent to this process' group reaches it once. It is told to end (SIGTERM) when this process does,
    whatever ends that.

    What is sent once it has ended is for nobody, and must not change the code: SIGHUP, SIGUSR1, SIGUSR2 and
    SIGALRM are ignored from then on.
    """
    on_terminal = _is_foreground()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*FORWARDED, signal.SIGCHLD})
    try:
        try:
            process = _started(argv, _prepared(before, os.getpid(), not on_terminal))
        except (FileNotFoundError, NotADirectoryError) as error:
            return Ended(NOT_FOUND, started=False, why=f"{argv[0]}: {error.strerror}")
        except OSError as error:
            return Ended(NOT_EXECUTABLE, started=False, why=f"{argv[0]}: {error.strerror}")
        while process.poll() is None:
            told = signal.sigwaitinfo({*FORWARDED, signal.SIGCHLD})
            of_terminal = on_terminal and told.si_code == _SI_KERNEL
            if told.si_signo != signal.SIGCHLD and not of_terminal:
                _send(process, told.si_signo)
        for number in _PAST:
            signal.signal(number, signal.SIG_IGN)
        while signal.sigtimedwait(FORWARDED, 0) is not None:
            pass  # came too late for it
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    code = process.returncode
    if code >= 0:
        return Ended(code)
    return Ended(128 - code, _name(-code))


def _started(argv: Sequence[str], prepare: Callable[[], None]) -> subprocess.Popen[bytes]:
    """The command, with the descriptors that the caller has opened for it: `envaudit run -- CMD 3>log`.

    A script without a line that names its interpreter is the shell's, as execvp(3) has it.
    """
    try:
        return subprocess.Popen(argv, close_fds=False, preexec_fn=prepare)
    except OSError as error:
        path = shutil.which(argv[0]) or argv[0]
        if error.errno != errno.ENOEXEC or _is_binary(path):
            raise
    return subprocess.Popen(["/bin/sh", path, *argv[1:]], close_fds=False, preexec_fn=prepare)


def _is_binary(path: str) -> bool:
    """Whether a file is no script, such as a program for another machine."""
    with open(path, "rb") as file:
        return b"\0" in file.read(128)


def _prepared(mask: set[int | signal.Signals], parent: int, own_group: bool) -> Callable[[], None]:
    """What the child does before it becomes the command: the caller's mask again, and its own group."""
    libc = ctypes.CDLL(None)

    def prepare() -> None:
        if own_group:
            os.setpgid(0, 0)
        libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)  # it ended before this was asked for
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    return prepare


def _send(process: subprocess.Popen[bytes], number: int) -> None:
    try:
        os.kill(process.pid, number)
    except OSError:
        pass  # it has just ended; its status is not read yet, so the number is no other's


def _is_foreground() -> bool:
    try:
        return os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
