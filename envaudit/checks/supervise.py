"""One worker a device, watched: the hang, the crash or the hunger of one case costs that case alone.

Standard library only. The worker's lines are read as they come; a case that outlives its time, or whose
process ends under it, has its outcome written here, and a new worker goes on behind it. When the budget
is over the rest is listed as not run. Workers stay in this process's group, carry an alarm of their own,
and die with this process (`checks/launch.py`).
"""

from __future__ import annotations

import selectors
import shutil
import subprocess
import time
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Set

from envaudit.checks import launch, registry
from envaudit.checks.outcome import ERROR, NOT_RUN, TIMEOUT, Outcome
from envaudit.checks.piped import NotItsLines, Piped, how_it_ended
from envaudit.checks.plan import Plan

_TICK_S = 0.2
# A worker whose last heartbeat is older than this is stopped or starved, not busy.
_SILENT_S = 2.0
# A process that is gone and said nothing for so long has said all: its pipe has no end to tell it.
_HELD_OPEN_S = 0.5
# What is kept of the budget for ending workers and for telling.
_ENDING_S = 0.3

# What has been done and of how many cases.
Tell = Callable[[int, int], None]


class Started(NamedTuple):
    """How workers are started.

    Attributes:
        interpreter: the audited one, absolute.
        environ: the environment of the audited work.
        cwd: the working directory; None for this process's own.
        gpus: how many GPUs the machine has by its device nodes.
        busy: ordinals on which nothing is launched, and why.
        only: the one device to be tried; None for all of them.
    """

    interpreter: str
    environ: Mapping[str, str]
    cwd: Optional[str] = None
    gpus: int = 0
    busy: Mapping[int, str] = {}
    only: Optional[int] = None


class DeviceRun:
    """What became of one device.

    Attributes:
        ordinal: its number as torch counts; 0 for the CPU.
        facts: what torch says of it; empty where no worker came so far.
        cases: name, dtype and shape of each case, in order.
        outcomes: of each case that was begun or given up, by name.
        unusable: why nothing ran at all.
        absent: set where there is no torch.
        running: the case that is under way.
    """

    def __init__(self, ordinal: int) -> None:
        self.ordinal = ordinal
        self.facts: Dict[str, Any] = {}
        self.cases: List[List[str]] = []
        self.outcomes: Dict[str, Outcome] = {}
        self.unusable = ""
        self.absent = ""
        self.running = ""

    def give_up(self, reason: str) -> None:
        """Every case without an outcome was not run, for this reason."""
        names = [case[0] for case in self.cases] or registry.operation_names()
        for name in names:
            self.outcomes.setdefault(name, Outcome(name, NOT_RUN, reason))


def supervise(
    started: Started, plan: Plan, tell: Optional[Tell] = None, began: Optional[float] = None
) -> List[DeviceRun]:
    """The outcomes of all devices, by ordinal; ends within the plan's budget.

    Args:
        started: how workers are started.
        plan: what they do.
        tell: is told how far they are.
        began: when the budget did, by the monotonic clock; None for now.
    """
    ends = (time.monotonic() if began is None else began) + plan.budget_s - _ENDING_S
    # Made by a compiler when there is one to use it: most runs have none, and a run that is killed leaves
    # then nothing behind.
    cache = launch.cache_path("checks")
    watch = _Watch(started, plan, ends, cache, tell)
    try:
        return watch.run()
    finally:
        watch.end_all()
        shutil.rmtree(cache, ignore_errors=True)


class _Worker(Piped):
    """One process, and what it is at."""

    def __init__(self, device: DeviceRun, process: subprocess.Popen[bytes]) -> None:
        super().__init__(process)
        self.device = device
        self.begun_at: Optional[float] = None
        self.began_any = False
        self.waits = False
        self.through = False


class _Watch:
    """All workers, until each device is through or the budget is over."""

    def __init__(self, started: Started, plan: Plan, ends: float, cache: str, tell: Optional[Tell]) -> None:
        self._started = started
        self._plan = plan
        self._ends = ends
        self._cache = cache
        self._tell = tell
        self._devices: Dict[int, DeviceRun] = {}
        self._workers: Set[_Worker] = set()
        self._selector = selectors.DefaultSelector()

    def run(self) -> List[DeviceRun]:
        """Start a worker for every GPU that has a device node, or one for the CPU, and listen."""
        for ordinal in range(max(1, self._started.gpus, (self._started.only or 0) + 1)):
            self._open(ordinal)
        while self._workers and time.monotonic() < self._ends:
            self._listen()
            self._end_what_is_late()
            self._let_go()
        for worker in list(self._workers):
            self._stop(worker)
            self._budget_over(worker)
        return [self._devices[ordinal] for ordinal in sorted(self._devices)]

    def end_all(self) -> None:
        """No worker is left, whatever happened."""
        for worker in list(self._workers):
            self._stop(worker)
        self._selector.close()

    def _open(self, ordinal: int) -> None:
        if ordinal in self._devices or self._started.only not in (None, ordinal):
            return
        device = self._devices[ordinal] = DeviceRun(ordinal)
        busy = self._started.busy.get(ordinal)
        if busy:
            device.give_up(busy)
            return
        self._launch(device)

    def _launch(self, device: DeviceRun) -> None:
        left_s = self._ends - time.monotonic()
        try:
            process = launch.start(
                self._started.interpreter, self._started.environ, self._started.cwd, left_s + 1, self._cache
            )
        except OSError as error:
            device.unusable = f"{self._started.interpreter}: {error.strerror}"
            device.give_up(device.unusable)
            return
        worker = _Worker(device, process)
        self._workers.add(worker)
        worker.register(self._selector)
        worker.send(
            {
                "ordinal": device.ordinal,
                "gpus": self._started.gpus,
                "plan": self._plan.to_json(),
                "skip": list(device.outcomes),
                "budget_s": max(0.0, left_s),
                "busy": {str(ordinal): why for ordinal, why in self._started.busy.items()},
            }
        )

    def _listen(self) -> None:
        for key, _ in self._selector.select(_TICK_S):
            worker: _Worker = key.data
            if worker not in self._workers:
                continue
            chunk = worker.take(key, self._selector)
            if chunk:
                self._hear(worker, chunk)
            elif chunk is not None:
                self._ended(worker)

    def _hear(self, worker: _Worker, chunk: bytes) -> None:
        try:
            for said in worker.hear(chunk):
                try:
                    self._take(worker, said)
                except (ValueError, KeyError, TypeError, AttributeError):
                    raise NotItsLines("its worker said something else than its results") from None
                if worker.through:
                    # It leaves, and something of its environment may hold its pipes open.
                    self._stop(worker)
                    return
        except NotItsLines as error:
            self._stop(worker)
            self._failed(worker, str(error))

    def _take(self, worker: _Worker, said: Mapping[str, Any]) -> None:
        device = worker.device
        if "begin" in said:
            device.running = str(said["begin"])
            worker.begun_at = time.monotonic()
            worker.began_any = True
        elif "outcome" in said:
            outcome = Outcome.from_json(said["outcome"])
            if outcome.case != device.running:
                raise ValueError("an outcome of what was not begun")
            self._settle(device, outcome)
            worker.begun_at = None
        elif "device" in said:
            device.facts = dict(said["device"])
            for ordinal in range(int(device.facts["count"])):
                self._open(ordinal)
        elif "cases" in said:
            device.cases = device.cases or [[str(text) for text in case] for case in said["cases"]]
        elif "surplus" in said:
            worker.through = True
            del self._devices[device.ordinal]
        elif "absent" in said or "unusable" in said:
            worker.through = True
            device.absent = str(said.get("absent", ""))
            device.unusable = str(said.get("unusable", ""))
            device.give_up(device.absent or device.unusable)
        elif "alone" in said:
            worker.waits = True
        elif "end" in said:
            worker.through = True
            if device.cases:
                device.give_up("its worker left it out")

    def _settle(self, device: DeviceRun, outcome: Outcome) -> None:
        device.running = ""
        device.outcomes[outcome.case] = outcome
        if self._tell:
            total = sum(len(each.cases) or len(each.outcomes) for each in self._devices.values())
            self._tell(sum(len(each.outcomes) for each in self._devices.values()), total)

    def _ended(self, worker: _Worker) -> None:
        """Its pipe is closed: it left, or something ended it."""
        worker.drain_complaints()
        status = self._stop(worker)
        if worker.through:
            return
        self._failed(worker, "; ".join(text for text in (how_it_ended(status), worker.complaint()) if text))

    def _failed(self, worker: _Worker, reason: str, status: str = ERROR) -> None:
        """A worker is gone before it was through: name the case, and go on behind it."""
        device = worker.device
        if device.running:
            self._settle(device, Outcome(device.running, status, reason))
        elif not worker.began_any and not device.cases:
            device.unusable = f"the worker failed before its first case: {reason}"
            device.give_up(device.unusable)
            return
        elif not worker.began_any:
            device.give_up(f"a new worker failed before its first case: {reason}")
            return
        if any(case[0] not in device.outcomes for case in device.cases):
            self._launch(device)

    def _end_what_is_late(self) -> None:
        now = time.monotonic()
        limit_s = self._plan.case_limit_s
        for worker in list(self._workers):
            if now - worker.heard_at > _HELD_OPEN_S and worker.process.poll() is not None:
                # Something that a start-up file of its environment has started holds its pipes open.
                self._ended(worker)
                continue
            if worker.begun_at is None or worker.waits or now - worker.begun_at < limit_s:
                continue
            silent = now - worker.heard_at > _SILENT_S
            self._stop(worker)
            heard = "its process silent" if silent else "its process alive"
            self._failed(worker, f"not finished within {limit_s:.0f} s, {heard}", TIMEOUT)

    def _let_go(self) -> None:
        """What needs all devices to itself begins when nobody else is at work."""
        if self._workers and all(worker.waits for worker in self._workers):
            for worker in self._workers:
                worker.waits = False
                worker.send({"go": True})

    def _budget_over(self, worker: _Worker) -> None:
        device = worker.device
        over = f"the budget of {self._plan.budget_s} s was over"
        if device.running:
            began = worker.begun_at or time.monotonic()
            took_s = int(time.monotonic() - began)
            reason = f"{over} when it had run for {took_s} s"
            self._settle(device, Outcome(device.running, NOT_RUN, reason))
        elif not device.cases:
            over = f"{over} before torch was imported and told of its devices"
        device.give_up(over)

    def _stop(self, worker: _Worker) -> int:
        self._workers.discard(worker)
        worker.unregister(self._selector)
        return worker.end()
