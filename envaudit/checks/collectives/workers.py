"""The workers of one supervisor: started together, heard line by line, ended for certain.

Their lines (`rank.py`) are handed on to the hub, gathered: at most one message a worker and quarter of a
second, but for the last words of one, which go at once.
"""

from __future__ import annotations

import json
import selectors
import shutil
import signal
import subprocess
import time
from types import TracebackType
from typing import Any, Callable, Dict, List, Mapping, Optional, Type

from envaudit.checks import launch
from envaudit.checks.piped import NotItsLines, Piped, how_it_ended
from envaudit.checks.supervise import Started

Send = Callable[[str, Mapping[str, Any]], None]

WORKER = "envaudit.checks.collectives.rank"
EVERY_S = 0.25
# Below the limit of a frame (control/codec.py), with room for what is around it.
_LINES_BYTES = 1 << 18

# A process that is gone and said nothing for so long has said all: its pipe has no end to tell it.
_HELD_OPEN_S = 0.5

# What PyTorch and its libraries do when a peer is gone (torch.distributed, "Other NCCL environment
# variables"); what the user has set stays.
_ENVIRONMENT = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    "NCCL_ASYNC_ERROR_HANDLING": "1",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
}


def start(started: Started, seconds: float, cache: str) -> subprocess.Popen[bytes]:
    """A worker that imports torch and waits for its task.

    Raises:
        OSError: it cannot be started.
    """
    environ = {**_ENVIRONMENT, **started.environ}
    return launch.start(started.interpreter, environ, started.cwd, seconds, cache, WORKER)


class Early:
    """Workers started before there is a task for them; those that got none are ended with the context.

    For a machine alone: between nodes no torch is imported before they are known to agree.

    Args:
        started: how they are started.
        count: how many.
        seconds: after which each ends itself.
    """

    def __init__(self, started: Started, count: int, seconds: float) -> None:
        self._started = started
        self._count = count
        self._seconds = seconds
        self._cache = launch.cache_path("collectives")
        self._waiting: List[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Early:
        """Start them. One that cannot be started is tried anew when its task is there, and then tells why."""
        try:
            for _ in range(self._count):
                self._waiting.append(start(self._started, self._seconds, self._cache))
        except OSError:
            pass
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        """None of them is left."""
        while self._waiting:
            Piped(self._waiting.pop()).end()
        shutil.rmtree(self._cache, ignore_errors=True)

    def take(self) -> Optional[subprocess.Popen[bytes]]:
        """One of them, from now on its taker's to end; None where none is left."""
        return self._waiting.pop(0) if self._waiting else None


class _Worker(Piped):
    """One process, and what of it was not handed on yet."""

    def __init__(self, key: int, process: Any) -> None:
        super().__init__(process)
        self.key = key
        self.progress: List[Any] = []
        self.moved = False
        self.lines: List[Dict[str, Any]] = []
        self.through = False
        self.explained = False


class Workers:
    """All workers of this supervisor.

    Args:
        started: how they are started.
        selector: of the supervisor's loop, which calls `listen` for what it reports of them.
        cache: a folder for what compilers make.
        send: hands a message to the hub.
        early: those that have been started already.
    """

    def __init__(
        self,
        started: Started,
        selector: selectors.BaseSelector,
        cache: str,
        send: Send,
        early: Optional[Early] = None,
    ) -> None:
        self._started = started
        self._selector = selector
        self._cache = cache
        self._send = send
        self._early = early
        self._round = 0
        self._workers: Dict[int, _Worker] = {}
        self._reported_at = 0.0
        self._every_s = EVERY_S

    def launch(self, order: Mapping[str, Any]) -> None:
        """Starts what the hub orders: {"round", "seconds", "every_ms", "tasks": [[key, task], ...]}."""
        self.end_all()
        self._round = int(order["round"])
        self._every_s = int(order["every_ms"]) / 1000
        seconds = float(order["seconds"])
        for key, task in order["tasks"]:
            try:
                early = self._early.take() if self._early else None
                process = early or start(self._started, seconds, self._cache)
            except OSError as error:
                self._gone(int(key), f"{self._started.interpreter}: {error.strerror}", False, "")
                continue
            worker = self._workers[int(key)] = _Worker(int(key), process)
            worker.register(self._selector)
            worker.send(task)

    def listen(self, key: selectors.SelectorKey) -> None:
        """Reads one of their pipes."""
        worker: _Worker = key.data
        if self._workers.get(worker.key) is not worker:
            return
        chunk = worker.take(key, self._selector)
        if chunk:
            self._hear(worker, chunk)
        elif chunk is not None:
            self._ended(worker)

    def report(self) -> None:
        """Hands on what has come since the last time, unless that was just now."""
        now = time.monotonic()
        if now - self._reported_at < self._every_s:
            return
        self._reported_at = now
        moved = {str(each.key): each.progress for each in self._workers.values() if each.moved}
        if moved:
            self._send("col.progress", {"round": self._round, "at": moved})
        for worker in list(self._workers.values()):
            worker.moved = False
            self._hand_on(worker)
            if now - worker.heard_at > _HELD_OPEN_S and worker.process.poll() is not None:
                # Something that a start-up file of its environment has started holds its pipes open.
                self._ended(worker)

    def end_all(self) -> None:
        """No worker is left."""
        workers, self._workers = list(self._workers.values()), {}
        for worker in workers:
            if worker.process.poll() is None:
                worker.process.kill()
        for worker in workers:
            worker.unregister(self._selector)
            worker.end()

    def _hear(self, worker: _Worker, chunk: bytes) -> None:
        try:
            for said in worker.hear(chunk):
                self._take(worker, said)
        except NotItsLines as error:
            self._drop(worker)
            self._gone(worker.key, str(error), False, worker.complaints())

    def _take(self, worker: _Worker, said: Dict[str, Any]) -> None:
        if "heartbeat" in said:
            counts = [said.get(name) for name in ("heartbeat", "entered", "finished")]
            if not all(type(count) is int for count in counts):
                raise NotItsLines("its worker said something else than its results")
            worker.progress = [*counts, str(said.get("at") or "")]
            worker.moved = True
            return
        if len(json.dumps(said)) > _LINES_BYTES:
            raise NotItsLines(f"its worker said more than {_LINES_BYTES >> 10} KiB in one line")
        worker.lines.append(said)
        if "end" in said or "error" in said:
            worker.through = "end" in said
            worker.explained = True
            self._hand_on(worker)

    def _hand_on(self, worker: _Worker) -> None:
        lines, worker.lines = worker.lines, []
        chunk: List[Dict[str, Any]] = []
        size = 0
        for line in lines:
            length = len(json.dumps(line))
            if chunk and size + length > _LINES_BYTES:
                self._send("col.said", {"round": self._round, "key": worker.key, "lines": chunk})
                chunk, size = [], 0
            chunk.append(line)
            size += length
        if chunk:
            self._send("col.said", {"round": self._round, "key": worker.key, "lines": chunk})

    def _ended(self, worker: _Worker) -> None:
        """Its pipe is closed: it left, or something ended it."""
        worker.drain_complaints()
        status = self._drop(worker)
        self._hand_on(worker)
        if worker.through:
            return
        told = "" if worker.explained else how_it_ended(status)
        self._gone(worker.key, told, status == -signal.SIGABRT, worker.complaints())

    def _drop(self, worker: _Worker) -> int:
        self._workers.pop(worker.key, None)
        worker.unregister(self._selector)
        try:
            # Its standard output is closed, so that it leaves by itself if it still runs at all: its own
            # status tells more than the signal that would end it.
            worker.process.wait(timeout=0.2)
        except Exception:  # noqa: S110 - it is ended below
            pass
        return worker.end()

    def _gone(self, key: int, told: str, aborted: bool, stderr: str) -> None:
        self._send(
            "col.gone",
            {"round": self._round, "key": key, "exit": told, "aborted": aborted, "stderr": stderr},
        )
