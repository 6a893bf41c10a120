"""The process of one rank: joins the group, goes through all items in order, and tells every step.

It imports torch, and then reads one line of JSON from standard input:

    {"rank": 0, "world": 4, "local_rank": 0, "device": "cpu" or "cuda:0", "backend": "gloo" or "nccl",
     "store": [host, port], "plan": {...}, "budget_s": 60, "purpose": "all", "matrix" or "pair",
     "interface": "" or the network interface to take where the environment names none}

and writes lines of JSON:

    {"device": {...}}                       as `checks/worker.py`
    {"ready": 812}                          milliseconds from the start of torch to a group that stands
    {"heartbeat": 7, "entered": 12, "finished": 11, "at": "all_reduce/sum/fp32/4097+1"}   four a second
    {"outcomes": [{...}, ...]}              as they come, in order (`outcome_of`)
    {"matrix": {"wrong": {"3": 4097}, "compared": 65537}}   which ranks' raw contributions did not arrive
    {"parameters": "0123456789abcdef", "expected": "..."}   after the DDP step
    {"error": "..."}                        an exception; the process ends with CONTEXT_LOST behind it
    {"end": true}

Rank 0 makes the store. Every rank decides alike what is not run, before the first collective
(`abilities.py`); after that each goes through all of them, whatever came out: who leaves out a call leaves
the others hanging. Time over is therefore the supervisor's business, not this process's.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from datetime import timedelta
from statistics import median_low
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

from envaudit.checks import readiness
from envaudit.checks.collectives import items as names
from envaudit.checks.collectives.abilities import Abilities, Disagreement
from envaudit.checks.collectives.calls import Call, Scene, call_of, seed_of
from envaudit.checks.collectives.ending import NO_TORCH
from envaudit.checks.collectives.evidence import Evidence, evidence_of
from envaudit.checks.collectives.items import CollectivePlan, Item, items
from envaudit.checks.counterhash import digest
from envaudit.checks.outcome import NOT_RUN, OK, WRONG
from envaudit.checks.worker import CONTEXT_LOST, Say, describe, read_task, speaker

HEARTBEAT_S = 0.25
ALL, MATRIX, PAIR = "all", "matrix", "pair"
# Outcomes told in one line; what is not told yet goes out with the next heartbeat.
_BATCH = 32
# The raw contributions that name a source or a link: fp32's bits, in two sizes.
MATRIX_ITEMS = (Item(names.ALL_GATHER, "", "fp32", 1021, 1), Item(names.ALL_GATHER, "", "fp32", 65537, 0))
_MATRIX_REPEATS = 3


class Task(NamedTuple):
    """What a rank is told; see the module."""

    rank: int
    world: int
    local_rank: int
    device: str
    backend: str
    host: str
    port: int
    plan: CollectivePlan
    budget_s: float
    purpose: str
    interface: str

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Task:
        """Read a task.

        Raises:
            KeyError, TypeError, ValueError: it is none.
        """
        host, port = row["store"]
        task = cls(
            rank=int(row["rank"]),
            world=int(row["world"]),
            local_rank=int(row.get("local_rank", 0)),
            device=str(row["device"]),
            backend=str(row["backend"]),
            host=str(host),
            port=int(port),
            plan=CollectivePlan.from_json(row["plan"]),
            budget_s=float(row["budget_s"]),
            purpose=str(row.get("purpose", ALL)),
            interface=str(row.get("interface", "")),
        )
        if not 0 <= task.rank < task.world or task.purpose not in (ALL, MATRIX, PAIR):
            raise ValueError("a rank outside its world, or an unknown purpose")
        return task


class Progress:
    """What the heartbeat tells, and outcomes that wait to be told.

    Attributes:
        entered: collectives begun.
        finished: of them, how many have returned.
        at: the one under way, or what comes before them.
    """

    def __init__(self, say: Say) -> None:
        self.entered = 0
        self.finished = 0
        self.at = "torch"
        self._say = say
        self._waiting: List[Dict[str, Any]] = []
        self._lock = threading.Lock()

    def tell(self, outcome: Dict[str, Any]) -> None:
        """Tell an outcome, soon."""
        with self._lock:
            self._waiting.append(outcome)
            full = len(self._waiting) >= _BATCH
        if full:
            self.flush()

    def flush(self) -> None:
        """Tell what waits."""
        with self._lock:
            ready, self._waiting = self._waiting, []
            if ready:
                self._say({"outcomes": ready})

    def beat(self) -> None:
        """Heartbeats for as long as the process lives."""
        number = 0
        while True:
            number += 1
            self.flush()
            state = {"entered": self.entered, "finished": self.finished, "at": self.at}
            self._say({"heartbeat": number, **state})
            time.sleep(HEARTBEAT_S)


def main() -> None:
    """Read the task, run it, leave without running what torch would do at its exit."""
    out = os.dup(1)
    os.dup2(2, 1)
    say = speaker(out)
    progress = Progress(say)
    threading.Thread(target=progress.beat, daemon=True).start()
    began = time.monotonic()
    try:
        torch = _torch()
        work(torch, Task.from_json(read_task()), say, progress, began)
        code = 0
    except ModuleNotFoundError as error:
        progress.flush()
        missing = NO_TORCH if error.name == "torch" else str(error)
        say({"error": missing})
        code = CONTEXT_LOST
    except (readiness.Unusable, Disagreement) as error:
        say({"error": str(error)})
        code = CONTEXT_LOST
    except Exception as error:  # of torch, of the backend: the others hang now, and hear why
        progress.flush()
        say({"error": f"{progress.at}: {type(error).__name__}: {readiness.last_line(error)}"})
        code = CONTEXT_LOST
    os._exit(code)


def _torch() -> Any:
    """The module torch.

    Raises:
        ModuleNotFoundError: there is none.
        Unusable: it cannot be imported.
    """
    # cuBLAS would take TF32 for the step of DDP, which is its user's choice and no fault of a rank.
    os.environ.pop("NVIDIA_TF32_OVERRIDE", None)
    # What torch deprecates is its user's business, and with -W error would be the end of one rank.
    warnings.simplefilter("ignore")
    return readiness.imported_torch()


def work(torch: Any, task: Task, say: Say, progress: Progress, began: float) -> None:
    """Join the group and go through what is asked for.

    Args:
        torch: the module.
        task: what is asked for.
        say: where the lines go.
        progress: what the heartbeat tells.
        began: when torch was begun to be imported, by the monotonic clock.

    Raises:
        Unusable: the device cannot be used.
        Disagreement: this rank's backend takes other calls than rank 0's.
    """
    _say_interface(task)
    on_gpu = _take_device(torch, task)
    say({"device": describe(torch, task.device, 1 if on_gpu else 0)})
    progress.at = "abilities"
    abilities = Abilities(task.backend, task.device, task.budget_s)
    wanted = list(MATRIX_ITEMS) if task.purpose == MATRIX else _items(task, on_gpu)
    abilities.learn(wanted)
    progress.at = "rendezvous"
    store = _join(task)
    abilities.agree(store, task.rank)
    say({"ready": int((time.monotonic() - began) * 1000)})
    scene = Scene(task.rank, task.world, task.device, task.backend, abilities.forms)
    runner = Runner(task, scene, progress)
    if task.purpose == MATRIX:
        say({"matrix": runner.matrix(abilities.judged(wanted))})
    else:
        for item in abilities.judged(wanted):
            if item.op == names.DDP:
                _ddp(runner, item, say)
            else:
                progress.tell(runner.run(item))
    progress.at = ""
    progress.flush()
    say({"end": True})


def _items(task: Task, on_gpu: bool) -> List[Item]:
    return items(task.plan, task.backend, task.world, on_gpu)


def _say_interface(task: Task) -> None:
    """Name the network interface to both backends, where the user has not."""
    if task.interface:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", task.interface)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", task.interface)


def _take_device(torch: Any, task: Task) -> bool:
    kind, _, ordinal = task.device.partition(":")
    if kind != "cuda":
        # Ranks share the cores; threads that wait for each other cost more than they bring.
        torch.set_num_threads(1)
        return False
    count = readiness.device_count(torch, int(ordinal) + 1)
    if int(ordinal) >= count:
        raise readiness.Unusable(f"no {task.device}: torch has {count} devices")
    readiness.check_device(torch, int(ordinal))
    torch.cuda.set_device(int(ordinal))
    return True


def _join(task: Task) -> Any:
    import torch.distributed as dist

    limit = timedelta(seconds=task.budget_s)
    store = dist.TCPStore(task.host, task.port, task.world, task.rank == 0, limit)
    dist.init_process_group(task.backend, store=store, rank=task.rank, world_size=task.world, timeout=limit)
    return store


def _ddp(runner: Runner, item: Item, say: Say) -> None:
    from envaudit.checks.collectives.ddp import step

    runner.enter(item.name)
    began = time.monotonic_ns()
    made = step(runner.scene, runner.task.plan.seed)
    took_ns = time.monotonic_ns() - began
    runner.leave()
    say({"parameters": made.digest, "expected": made.expected})
    evidence = Evidence(wrong=made.mismatch.wrong, mismatch=made.mismatch) if made.mismatch else None
    runner.progress.tell(outcome_of(item, [took_ns], made.digest, made.size_bytes, evidence))


class Runner:
    """Runs items at one rank."""

    def __init__(self, task: Task, scene: Scene, progress: Progress) -> None:
        self.task = task
        self.scene = scene
        self.progress = progress
        self._on_gpu = scene.device != "cpu"

    def enter(self, name: str) -> None:
        """A collective begins: from here on the others count on this rank."""
        self.progress.at = name
        self.progress.entered += 1

    def leave(self) -> None:
        """It has returned."""
        self.progress.finished += 1

    def run(self, item: Item) -> Dict[str, Any]:
        """Run an item as often as the plan asks; every repeat is compared."""
        if item.not_run:
            return outcome_of(item, [], "", 0, None)
        times: List[int] = []
        found: Optional[Evidence] = None
        mixed, size_bytes = 0, 0
        for repeat in range(self.task.plan.repeats_on(self.task.backend)):
            call = call_of(item, self.scene, seed_of(self.task.plan.seed, item, repeat))
            times.append(self._timed(item.name, call))
            size_bytes = call.size_bytes
            blocks = call.blocks()
            found = found or evidence_of(item, call, blocks)
            for block in blocks:
                mixed ^= digest(block.got, seed=repeat)
        return outcome_of(item, times, f"{mixed:016x}" if item.dtype else "", size_bytes, found)

    def matrix(self, wanted: List[Item]) -> Dict[str, Any]:
        """Which ranks' raw contributions arrive here with other bits than they have."""
        wrong: Dict[str, int] = {}
        compared = 0
        for item in wanted:
            for repeat in range(0 if item.not_run else _MATRIX_REPEATS):
                call = call_of(item, self.scene, seed_of(self.task.plan.seed, item, repeat))
                self._timed(item.name, call)
                found = evidence_of(item, call, call.blocks())
                compared += item.size
                for source, count in (found.sources if found else {}).items():
                    wrong[str(source)] = wrong.get(str(source), 0) + count
        return {"wrong": wrong, "compared": compared}

    def _timed(self, name: str, call: Call) -> int:
        if self._on_gpu:
            import torch

            torch.cuda.synchronize()
        self.enter(name)
        began = time.monotonic_ns()
        call.run()
        if self._on_gpu:
            torch.cuda.synchronize()
        took_ns = time.monotonic_ns() - began
        self.leave()
        return took_ns


def outcome_of(
    item: Item, times: List[int], digest_text: str, size_bytes: int, found: Optional[Evidence]
) -> Dict[str, Any]:
    """What an item came to at this rank, as it is told.

    `item`, `status` (ok, wrong, not_run), `reason`, `digest` of what came out here, `shortest_ns` and
    `median_ns` inside the collective, `size_bytes` (S of nccl-tests), and `wrong`: null, or the evidence
    (`evidence.Evidence.to_json`).
    """
    status = NOT_RUN if item.not_run else WRONG if found else OK
    return {
        "item": item.name,
        "status": status,
        "reason": item.not_run or (found.words() if found else ""),
        "digest": digest_text,
        "shortest_ns": min(times) if times else None,
        "median_ns": median_low(times) if times else None,
        "size_bytes": size_bytes,
        "wrong": found.to_json() if found else None,
    }
