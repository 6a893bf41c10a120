"""All sections at once, each in a child of its own, one answer.

The crash, the hang or the hunger of one section costs that section alone. The interpreter's own
words (see `envaudit.probe.interpreter`) arrive while the sections that do not need them run; each
section waits for them only when it asks.
"""

from __future__ import annotations

import json
import os
import resource
import select
import sys
import time
from typing import Any, Dict, List, Mapping, Optional, Tuple

from envaudit.probe import Refused, child, interpreter, registry
from envaudit.probe.answer import error_row, row_of
from envaudit.probe.context import Context, InterpreterUnknown

ANSWER_LIMIT_BYTES = 4 << 20
_MEMORY_LIMIT_BYTES = 2 << 30
_READ_BYTES = 1 << 16


def probe(request: Mapping[str, Any]) -> Dict[str, Any]:
    """Read this machine, or the fake node that `request["root"]` names.

    Args:
        request: all keys are optional.
            launch: how the node was reached (local, ssh, slurm, exec, inband, prolog);
            python: the interpreter as it was asked for, which says nothing of what it turned out to be;
            workdir: the folder whose repository is meant, default the current one; `~/` is home;
            sections: the names of the sections to read, default all;
            root: `/`, or a folder with `node.json` and `root/`;
            deadline_s: no section gets more seconds than this;
            tool, captured_at: the version and the time to state, default none and now.

    Returns:
        tool, captured_at and the rows of all sections, by name.

    Raises:
        Refused: the request names no such section, or root must not start this interpreter.
    """
    names = _wanted(request.get("sections"))
    root = request.get("root") or "/"
    cap_s = float(request.get("deadline_s") or 3600)
    captured_at = request.get("captured_at") or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    asked = None
    if os.path.normpath(root) == "/":
        interpreter.check_trust(sys.executable)
        workdir = _workdir(request.get("workdir") or ".")
        context = Context(
            environ=_environment(),
            workdir=workdir,
            launch=request.get("launch") or "local",
            asked=request.get("python") or "",
            interpreter={},
        )
        asked = interpreter.Asked(workdir)
    else:
        context = Context.of_fixture(root)
    _load_ahead(names)
    readings = [_Reading(name, context, cap_s) for name in names]
    _gather(readings, asked)
    return {
        "tool": str(request.get("tool") or ""),
        "captured_at": captured_at,
        "sections": [reading.row for reading in readings],
    }


def _load_ahead(names: List[str]) -> None:
    """Import the sections before the fork: what several of them share is then loaded once, not in each.

    It is a fifth of the probe's work, and the interpreter that describes itself needs that time
    anyway. A section that cannot be imported says so from its own child.
    """
    for name in names:
        try:
            registry.load_section(name)
        except Exception:  # noqa: S110
            pass


def _environment() -> Dict[str, str]:
    """This process' variables, and HOME even where a launch such as `srun --export=NONE` leaves it unset.

    Python and NCCL then take the home of the account, and so do the sections.
    """
    environ = dict(os.environ)
    environ.setdefault("HOME", os.path.expanduser("~"))
    return environ


def _workdir(asked: str) -> str:
    try:
        return os.path.abspath(os.path.expanduser(asked))
    except FileNotFoundError:  # the current folder has been removed
        return "/"


def _wanted(names: Optional[List[str]]) -> List[str]:
    known = registry.section_names()
    if names is None:
        return known
    for name in names:
        if name not in known and name not in registry.ON_REQUEST:
            raise Refused(f"there is no section {name!r}; there are {', '.join(known)}.")
    return sorted(set(names))


class _Reading:
    """One section that is being read in its child.

    The child says two lines: its schema and deadline once its module is loaded, then its row.
    """

    def __init__(self, name: str, context: Context, cap_s: float) -> None:
        self.row: Optional[Dict[str, Any]] = None
        self._name = name
        self._schema = 1
        self._said = bytearray()
        self._cap_s = cap_s
        self._started = time.monotonic()
        self.deadline = self._started + min(registry.DEFAULT_DEADLINE_S, cap_s)
        self.fd = self._outlet = -1
        try:
            self._start(context)
        except OSError as error:
            self._fail(f"no process for it: {error.strerror}")

    def _start(self, context: Context) -> None:
        # The interpreter's words go in here; the pipe holds more than `interpreter.LIMIT_BYTES`.
        inbox, self._outlet = os.pipe()

        def read(fd: int) -> None:
            if context.live:
                context.await_interpreter(lambda: _told(inbox))
            _read_section(self._name, context, fd, self._cap_s)

        try:
            self._pid, self.fd = child.fork(read, self.deadline - self._started)
        except OSError:
            os.close(self._outlet)
            raise
        finally:
            os.close(inbox)

    def hear(self) -> None:
        """Take what the child said; the end of its pipe without a row is its crash."""
        chunk = os.read(self.fd, _READ_BYTES)
        self._said += chunk
        while b"\n" in self._said and self.row is None:
            line, _, rest = bytes(self._said).partition(b"\n")
            self._said = bytearray(rest)
            self._take(json.loads(line.decode("ascii")))
        if self.row is not None:
            return
        if not chunk:
            self._fail(child.how_it_ended(child.reap(self._pid)))
        elif len(self._said) > ANSWER_LIMIT_BYTES:
            self._fail(f"more than {ANSWER_LIMIT_BYTES >> 20} MiB of facts")

    def tell(self, line: bytes) -> None:
        """Hand the interpreter's words in."""
        try:
            child.write_all(self._outlet, line)
        except BrokenPipeError:
            pass  # it ended without asking

    def late(self) -> None:
        """Give up: the deadline has passed."""
        self._fail(f"not read within {self.deadline - self._started:g} s")

    def close(self, *, late: bool) -> None:
        """End the child and all below it, at once when it is late, else if it does not end by itself."""
        os.close(self.fd)
        os.close(self._outlet)
        if late:
            child.end(self._pid)
        else:
            child.reap(self._pid)

    def _take(self, said: Dict[str, Any]) -> None:
        if "row" in said:
            self.row = said["row"]
        else:
            self._schema = said["schema"]
            self.deadline = self._started + min(said["deadline_s"], self._cap_s)

    def _fail(self, why: str) -> None:
        self.row = error_row(self._name, self._schema, why)


def _gather(readings: List[_Reading], asked: Optional[interpreter.Asked]) -> None:
    """Listen to all children until each section has its row."""
    poller = select.poll()
    hearing = {reading.fd: reading for reading in readings if reading.row is None}
    for fd in list(hearing) + list(asked.open if asked else ()):
        poller.register(fd, select.POLLIN)
    told = asked is None
    while hearing:
        if asked and not told and not asked.open:
            line = asked.line()
            for reading in hearing.values():
                reading.tell(line)
            told = True
        deadlines = [reading.deadline for reading in hearing.values()]
        if asked and not told:
            deadlines.append(asked.deadline)
        left_s = min(deadlines) - time.monotonic()
        for fd, _ in poller.poll(max(0.0, left_s) * 1000):
            if fd in hearing:
                hearing[fd].hear()
            elif asked and fd in asked.open:
                asked.hear(fd)
                if fd not in asked.open:
                    poller.unregister(fd)
        now = time.monotonic()
        if asked and not told and asked.deadline <= now:
            for fd in asked.open:
                poller.unregister(fd)
            asked.late()
        for fd, reading in list(hearing.items()):
            late = reading.row is None and reading.deadline <= now
            if late:
                reading.late()
            if reading.row is not None:
                poller.unregister(fd)
                del hearing[fd]
                reading.close(late=late)
    if asked and not told:
        asked.line()


def _told(inbox: int) -> Mapping[str, Any]:
    """In a section's child: what the runner hands in about the interpreter."""
    said = bytearray()
    while not said.endswith(b"\n"):
        chunk = os.read(inbox, _READ_BYTES)
        if not chunk:
            raise InterpreterUnknown("the probe ended")
        said += chunk
    told = json.loads(said.decode("ascii"))
    if "error" in told:
        raise InterpreterUnknown(told["error"])
    found: Mapping[str, Any] = told["interpreter"]
    return found


def _read_section(name: str, context: Context, fd: int, cap_s: float) -> None:
    """In a section's child: load, read, answer; whatever goes wrong becomes an error row."""
    resource.setrlimit(resource.RLIMIT_DATA, _memory_limits())
    schema = 1
    try:
        module = registry.load_section(name)
        schema = module.SCHEMA
        deadline_s = float(getattr(module, "DEADLINE_S", registry.DEFAULT_DEADLINE_S))
        child.arm(min(deadline_s, cap_s))
        _say(fd, {"schema": schema, "deadline_s": deadline_s})
        row = row_of(name, schema, module.read(context))
    except InterpreterUnknown as error:
        row = error_row(name, schema, f"the interpreter did not describe itself: {error}")
    except Exception as error:  # a section never raises out of the probe
        row = error_row(name, schema, f"{type(error).__name__}: {error}")
    _say(fd, {"row": row})


def _say(fd: int, what: Mapping[str, Any]) -> None:
    child.write_all(fd, json.dumps(what).encode("ascii") + b"\n")


def _memory_limits() -> Tuple[int, int]:
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    unlimited = resource.RLIM_INFINITY
    bounds = [limit for limit in (soft, hard, _MEMORY_LIMIT_BYTES) if limit != unlimited]
    return min(bounds), hard
