"""All sections in a few children at once, one answer.

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
from types import ModuleType
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from envaudit.probe import Refused, child, interpreter, registry, sections, subject
from envaudit.probe.answer import error_row, row_of
from envaudit.probe.context import Context, InterpreterUnknown

ANSWER_LIMIT_BYTES = 4 << 20
_MEMORY_LIMIT_BYTES = 2 << 30
_READ_BYTES = 1 << 16
_CHILDREN = 4


def probe(request: Mapping[str, Any]) -> Dict[str, Any]:
    """Read this machine, or the fake node that `request["root"]` names.

    Args:
        request: all keys are optional.
            launch: how the node was reached (local, ssh, slurm, exec, inband, prolog);
            python: the interpreter as it was asked for, which says nothing of what it turned out to be;
            prefix: an environment that is read in place of the interpreter's, nothing of it executed;
            workdir: the folder whose repository is meant, default the current one; `~/` is home;
            sections: the names of the sections to read, default all;
            also: sections that are read on request only, beside those;
            options: what such sections are told, and the node's part in reading a shared environment
                (see `envaudit.probe.stamp`);
            root: `/`, or a folder with `node.json` and `root/`;
            deadline_s: no section gets more seconds than this;
            tool, captured_at: the version and the time to state, default none and now.

    Returns:
        tool, captured_at and the rows of all sections, by name.

    Raises:
        Refused: the request names no such section, the prefix is no folder, or root must not start
            this interpreter.
    """
    names = _wanted(request.get("sections"), request.get("also") or ())
    cap_s = float(request.get("deadline_s") or 3600)
    captured_at = request.get("captured_at") or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    asked = None
    context = subject.of_request(request, names)
    if context.live and not context.static:
        interpreter.check_trust(interpreter.own_executable())
        if not registry.ASK_NO_INTERPRETER.issuperset(names):
            asked = interpreter.Asked(context.workdir)
    _load_ahead(names)
    if _is_shared(context):
        _stamp().prepare(context)
    answers = _Round(context, asked, cap_s)
    try:
        for chain in _chains(names):
            answers.begin(chain)
        answers.listen()
    finally:
        answers.end()
    return {
        "tool": str(request.get("tool") or ""),
        "captured_at": captured_at,
        "sections": [answers.rows[name] for name in names],
    }


def _chains(names: List[str]) -> List[List[str]]:
    """The sections dealt to children: a fork costs 2 ms of CPU, more than most sections.

    The patient ones come last in their chain, so that nobody waits behind a card that does not answer.
    """

    def patience(name: str) -> Tuple[float, str]:
        module = sys.modules.get(f"{sections.__name__}.{name}")
        return float(getattr(module, "DEADLINE_S", registry.DEFAULT_DEADLINE_S)), name

    behind = {name: first for name, first in registry.BEHIND.items() if {name, first}.issubset(names)}
    ordered = sorted((name for name in names if name not in behind), key=patience)
    chains = [ordered[first::_CHILDREN] for first in range(min(_CHILDREN, len(ordered)))]
    for name, first in behind.items():
        chain = next(each for each in chains if first in each)
        chain.insert(chain.index(first) + 1, name)
    return chains


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


def _wanted(names: Optional[List[str]], also: Sequence[str]) -> List[str]:
    known = registry.section_names()
    names = [*(known if names is None else names), *also]
    for name in names:
        if name not in known and name not in registry.ON_REQUEST:
            raise Refused(f"there is no section {name!r}; there are {', '.join(known)}.")
    return sorted(set(names))


class _Reading:
    """Some sections that are being read in one child, one after the other.

    Of each section the child says two lines: its schema and deadline once its module is loaded, then
    its row.

    Attributes:
        rows: what is known so far, by name.
        left: the sections that nobody reads any more, because the child failed at one before them.
        done: whether no more is to be expected of the child.
        deadline: when the section that is being read is given up (monotonic).
        fd: the pipe to listen to.
    """

    def __init__(self, names: Sequence[str], context: Context, cap_s: float, latest: float) -> None:
        self.rows: Dict[str, Dict[str, Any]] = {}
        self.left: List[str] = []
        self.done = False
        self.fd = self._outlet = -1
        self._ahead = list(names)
        self._cap_s = cap_s
        self._latest = latest
        self._said = bytearray()
        self._begin()
        try:
            self._start(context)
        except OSError as error:
            self._fail(f"no process for it: {error.strerror}")

    def _begin(self) -> None:
        """Expect the next section, from now on."""
        self._schema = 1
        self._started = time.monotonic()
        self._expect(registry.DEFAULT_DEADLINE_S)

    def _expect(self, deadline_s: float) -> None:
        # Told in round numbers, so that nodes that hang alike say the same.
        self._allowed_s = min(deadline_s, self._cap_s)
        self.deadline = min(self._started + deadline_s, self._latest)

    def _start(self, context: Context) -> None:
        # The interpreter's words go in here; the pipe holds more than `interpreter.LIMIT_BYTES`.
        inbox, self._outlet = os.pipe()

        def read(fd: int) -> None:
            if context.live and not context.static:
                context.await_interpreter(lambda: _told(inbox))
            _read_sections(self._ahead, context, fd, self._latest)

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
        while b"\n" in self._said and not self.done:
            line, _, rest = bytes(self._said).partition(b"\n")
            self._said = bytearray(rest)
            self._take(json.loads(line.decode("ascii")))
        if self.done:
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
        self._fail(f"not read within {self._allowed_s:g} s")

    def close(self, *, late: bool) -> None:
        """End the child and all below it, at once when it is late, else if it does not end by itself."""
        os.close(self.fd)
        os.close(self._outlet)
        if late:
            child.end(self._pid)
        else:
            child.reap(self._pid)

    def _take(self, said: Dict[str, Any]) -> None:
        if "row" not in said:
            self._schema = said["schema"]
            self._expect(said["deadline_s"])
            return
        self.rows[self._ahead.pop(0)] = said["row"]
        if not self._ahead or said["last"]:
            self.left, self.done = self._ahead, True
        else:
            self._begin()

    def _fail(self, why: str) -> None:
        name, *self.left = self._ahead
        self.rows[name] = error_row(name, self._schema, why)
        self.done = True


class _Round:
    """All children that are listened to, until each section has its row.

    A child that fails costs the section that it was at; those behind it get a child each.
    """

    def __init__(self, context: Context, asked: Optional[interpreter.Asked], cap_s: float) -> None:
        self.rows: Dict[str, Dict[str, Any]] = {}
        self._context = context
        self._asked = asked
        self._cap_s = cap_s
        self._latest = time.monotonic() + cap_s
        self._poller = select.poll()
        self._hearing: Dict[int, _Reading] = {}
        self._line: Optional[bytes] = None
        for fd in asked.open if asked else ():
            self._poller.register(fd, select.POLLIN)

    def begin(self, names: Sequence[str]) -> None:
        """Let one more child read some sections."""
        reading = _Reading(names, self._context, self._cap_s, self._latest)
        if reading.done:
            self._settle(reading)
            return
        self._hearing[reading.fd] = reading
        self._poller.register(reading.fd, select.POLLIN)
        if self._line is not None:
            reading.tell(self._line)

    def listen(self) -> None:
        """Until no child is left."""
        asked = self._asked
        while self._hearing:
            if asked and self._line is None and not asked.open:
                self._line = asked.line()
                for reading in self._hearing.values():
                    reading.tell(self._line)
            waiting = asked if asked and self._line is None else None
            deadlines = [reading.deadline for reading in self._hearing.values()]
            if waiting:
                deadlines.append(waiting.deadline)
            left_s = min(deadlines) - time.monotonic()
            for fd, _ in self._poller.poll(max(0.0, left_s) * 1000):
                if fd in self._hearing:
                    self._hearing[fd].hear()
                elif waiting and fd in waiting.open:
                    waiting.hear(fd)
                    if fd not in waiting.open:
                        self._poller.unregister(fd)
            now = time.monotonic()
            if waiting and waiting.deadline <= now:
                for fd in waiting.open:
                    self._poller.unregister(fd)
                waiting.late()
            self._end_what_is_through(now)
        if asked and self._line is None:
            self._line = asked.line()

    def end(self) -> None:
        """Leave nobody behind who was not heard to the end, because this process is interrupted."""
        while self._hearing:
            self._hearing.popitem()[1].close(late=True)
        if self._asked and self._line is None:
            self._asked.late()
            self._asked.line()

    def _end_what_is_through(self, now: float) -> None:
        for fd, reading in list(self._hearing.items()):
            late = not reading.done and reading.deadline <= now
            if late:
                reading.late()
            if reading.done:
                self._poller.unregister(fd)
                del self._hearing[fd]
                reading.close(late=late)
                self._settle(reading)

    def _settle(self, reading: _Reading) -> None:
        self.rows.update(reading.rows)
        for name in reading.left:
            if time.monotonic() < self._latest:
                self.begin([name])
            else:
                # A child that is late before it begins would only cost what is left for the answer.
                self.rows[name] = error_row(name, _schema_of(name), f"not read within {self._cap_s:g} s")


def _schema_of(name: str) -> int:
    """The schema of a section's module, where that was loaded."""
    module = sys.modules.get(registry.ON_REQUEST.get(name) or f"{sections.__name__}.{name}")
    return int(getattr(module, "SCHEMA", 1))


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


def _read_sections(names: Sequence[str], context: Context, fd: int, latest: float) -> None:
    """In a child: read one section after the other, until one ends in an error."""
    resource.setrlimit(resource.RLIMIT_DATA, _memory_limits())
    for name in names:
        row = _read_section(name, context, fd, latest)
        # Nobody knows in which state an error left the child: it reads no other section.
        last = row["status"] == "error" and not (_is_shared(context) and _stamp().is_left(row))
        _say(fd, {"row": row, "last": last})
        if last:
            return


def _read_section(name: str, context: Context, fd: int, latest: float) -> Dict[str, Any]:
    """Load, read, answer; whatever goes wrong becomes an error row."""
    schema = 1
    try:
        module = registry.load_section(name)
        schema = module.SCHEMA
        deadline_s = float(getattr(module, "DEADLINE_S", registry.DEFAULT_DEADLINE_S))
        child.arm(max(0.0, min(deadline_s, latest - time.monotonic())))
        _say(fd, {"schema": schema, "deadline_s": deadline_s})
        if _is_shared(context):
            return row_of(name, schema, _stamp().read(name, context, module.read))
        return row_of(name, schema, context.section(name))
    except InterpreterUnknown as error:
        return error_row(name, schema, f"the interpreter did not describe itself: {error}")
    except Exception as error:  # a section never raises out of the probe
        return error_row(name, schema, f"{type(error).__name__}: {error}")


def _is_shared(context: Context) -> bool:
    return "shared_prefix" in context.options


def _stamp() -> ModuleType:
    from envaudit.probe import stamp  # only where several nodes are asked

    return stamp


def _say(fd: int, what: Mapping[str, Any]) -> None:
    child.write_all(fd, json.dumps(what).encode("ascii") + b"\n")


def _memory_limits() -> Tuple[int, int]:
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    unlimited = resource.RLIM_INFINITY
    bounds = [limit for limit in (soft, hard, _MEMORY_LIMIT_BYTES) if limit != unlimited]
    return min(bounds), hard
