"""Programs: found on PATH, run without a shell and without input, ended at their deadline."""

from __future__ import annotations

import os
import signal
import time
from typing import Dict, List, Mapping, NamedTuple, NoReturn, Optional, Sequence, Tuple

from envaudit.probe import child


class Ran(NamedTuple):
    """What a program said: its exit status (negative: the signal that ended it) and its two texts."""

    rc: int
    stdout: str
    stderr: str


class ProgramFailed(Exception):
    """A program gave no answer; the text names it and says why."""


class ProgramMissing(ProgramFailed):
    """The program is not on PATH, or not executable."""


class ProgramRefused(ProgramFailed):
    """The program lies in a prefix of which nothing is executed."""


class ProgramTimeout(ProgramFailed):
    """The program was ended at its deadline."""


def run(
    argv: Sequence[str],
    environ: Mapping[str, str],
    timeout_s: float,
    *,
    cwd: Optional[str] = None,
    limit_bytes: int = 1 << 20,
) -> Ran:
    """Run a program without a shell, without standard input, with English messages.

    Raises:
        ProgramMissing: it is not on the PATH of `environ`.
        ProgramTimeout: it, or who inherited its output, was still there after `timeout_s`.
        ProgramFailed: it said more than `limit_bytes`, or could not be started.
    """
    pid, out, err = start(argv, dict(environ, LC_ALL="C", LANGUAGE="C"), timeout_s, cwd=cwd)
    status = None
    try:
        (stdout, stderr), late = child.read_until([out, err], time.monotonic() + timeout_s, limit_bytes)
        too_long = max(len(stdout), len(stderr)) > limit_bytes
        if not late and not too_long:
            status = child.wait(pid, timeout_s)
    finally:
        os.close(out)
        os.close(err)
        if status is None:
            status = child.end(pid)
    if late:
        raise ProgramTimeout(f"{argv[0]}: no answer within {timeout_s:g} s")
    if too_long:
        raise ProgramFailed(f"{argv[0]}: more than {limit_bytes} bytes of output")
    rc = 0 if status is None else child.exit_code(status)
    return Ran(rc, stdout.decode("utf-8", "surrogateescape"), stderr.decode("utf-8", "surrogateescape"))


def outside(prefix: str, argv: Sequence[str], environ: Mapping[str, str]) -> Dict[str, str]:
    """The variables under which a program takes nothing from a prefix: no program, library or module.

    Raises:
        ProgramRefused: the program itself lies in the prefix.
    """
    kept = {name: value for name, value in environ.items() if not name.startswith(("LD_", "PYTHON"))}
    folders = kept.get("PATH", os.defpath).split(os.pathsep)
    kept["PATH"] = os.pathsep.join(folder for folder in folders if folder and not is_inside(prefix, folder))
    if is_inside(prefix, find_program(argv[0], kept)):
        raise ProgramRefused(f"{argv[0]}: lies in {prefix}, of which nothing is executed")
    return kept


def is_inside(prefix: str, path: str) -> bool:
    """Whether a path lies in a prefix of which nothing may be executed, as it is written or in truth.

    The programs and libraries of the machine itself are no part of an environment that an audit may
    distrust: nothing lies inside of `/`, `/usr` and `/usr/local`.
    """
    own = os.path.realpath(prefix)
    places = (path, os.path.realpath(path))
    return own not in ("/", "/usr", "/usr/local") and any(
        f"{one}/".startswith((f"{own}/", f"{prefix}/")) for one in places
    )


def start(
    argv: Sequence[str], environ: Mapping[str, str], timeout_s: float, *, cwd: Optional[str] = None
) -> Tuple[int, int, int]:
    """Start a program; returns its pid and the reading ends of its stdout and stderr.

    Raises:
        ProgramMissing: it is not on the PATH of `environ`.
        ProgramFailed: no more processes or descriptors are to be had.
    """
    program = find_program(argv[0], environ)
    pipes: List[int] = []
    try:
        pipes.extend(os.pipe())
        pipes.extend(os.pipe())
        pid = os.fork()
    except OSError as error:
        for fd in pipes:
            os.close(fd)
        raise ProgramFailed(f"{argv[0]}: no process for it: {error.strerror}") from error
    out_reading, out_writing, err_reading, err_writing = pipes
    if not pid:
        _exec(program, list(argv), dict(environ), cwd, timeout_s, (out_writing, err_writing))
    os.close(out_writing)
    os.close(err_writing)
    return pid, out_reading, err_reading


def workplace(workdir: str) -> str:
    """The folder to start a program in: `workdir`, or `/` where this user cannot stand in it.

    Whoever became another user (`sudo -u` from root's home) may be in a folder that is not theirs.
    """
    return workdir if os.path.isdir(workdir) and os.access(workdir, os.X_OK) else "/"


def find_program(name: str, environ: Mapping[str, str]) -> str:
    """The path of a program as the PATH of `environ` finds it.

    Raises:
        ProgramMissing: nothing executable of that name is there.
    """
    if "/" in name:
        candidates = [name]
    else:
        candidates = [os.path.join(folder, name) for folder in environ.get("PATH", os.defpath).split(":")]
    for candidate in candidates:
        # A relative PATH entry would run what lies in the working directory.
        if os.path.isabs(candidate) and os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    raise ProgramMissing(f"{name}: not found")


def _exec(
    program: str,
    argv: List[str],
    environ: Dict[str, str],
    cwd: Optional[str],
    timeout_s: float,
    outputs: Tuple[int, int],
) -> NoReturn:
    try:
        child.become_child(timeout_s)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(outputs[0], 1)
        os.dup2(outputs[1], 2)
        if cwd is not None:
            os.chdir(cwd)
        os.execve(program, argv, environ)  # noqa: S606 (no shell is the point)
    except OSError as error:
        os.write(2, f"{program}: {error.strerror}\n".encode("utf-8", "surrogateescape"))
    finally:
        os._exit(126)
