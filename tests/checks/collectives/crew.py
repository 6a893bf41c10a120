"""Ranks that stay: processes that answer run after run, and the rounds that name a culprit."""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from envaudit.checks.collectives import pairs
from envaudit.checks.collectives.items import CollectivePlan, narrowed
from envaudit.checks.collectives.naming import LINK as A_LINK
from envaudit.checks.collectives.naming import RANK, Suspect, name_culprits
from tests.checks.collectives.faults import LINK, Fault

PROJECT = Path(__file__).resolve().parents[3]
PLAN = CollectivePlan(sizes=(1021,), dtypes=("fp32", "bf16", "int32"), offsets=(1,), ddp=False)
_ANSWER_S = 120.0


class Trial(NamedTuple):
    """A fault that was put in.

    Attributes:
        kind: of `faults.KINDS`.
        rank: who has it.
        source: of a link, where it comes from.
        permille: how many of a thousand calls are spoilt.
    """

    kind: str
    rank: int
    source: int = -1
    permille: int = 1000

    @staticmethod
    def drawn(kind: str, world: int, random: Random) -> Trial:
        """A random rank, and for a link another one."""
        rank = random.randrange(world)
        source = random.choice([each for each in range(world) if each != rank]) if kind == LINK else -1
        return Trial(kind, rank, source)


class Crew:
    """As many processes as there are ranks; a context manager."""

    def __init__(self, world: int) -> None:
        self.world = world
        self._processes: List[subprocess.Popen[bytes]] = []
        self._runs = 0

    def __enter__(self) -> Crew:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        environ = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "PYTHONPATH": str(PROJECT),
        }
        argv = [sys.executable, "-m", "tests.checks.collectives.repeated_rank"]
        for rank in range(self.world):
            process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ, cwd=PROJECT, bufsize=0
            )
            self._processes.append(process)
            self._send(rank, ["127.0.0.1", port, self.world, rank])
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream:
                    stream.close()

    def outcomes(self, trial: Optional[Trial], plan: CollectivePlan, seed: int = 0) -> Dict[int, Any]:
        """What all items came to at each rank."""
        answers = self._run([range(self.world)], trial, plan, seed, "all")
        return {rank: answer["outcomes"] for rank, answer in answers.items()}

    def suspects(
        self, outcomes: Mapping[int, Any], trial: Optional[Trial], plan: CollectivePlan, seed: int = 0
    ) -> List[Suspect]:
        """The whole naming: the matrix, then pair rounds."""
        answers = self._run([range(self.world)], trial, plan, seed + 1, "matrix")
        matrices = {rank: answer["matrix"] for rank, answer in answers.items()}
        wrong = [n for row in outcomes.values() for n, each in row.items() if each["status"] == "wrong"]
        small = narrowed(plan, sorted(set(wrong)))
        results: Dict[Tuple[int, int], Any] = {}
        waiting = pairs.first_rounds(self.world)
        for number in range(6):
            matched = waiting.pop(0) if waiting else pairs.next_round(results, self.world)
            if not matched:
                break
            told = self._run(matched, trial, small, seed + 2 + number, "pair")
            for pair in matched:
                rows = {rank: told[rank].get("outcomes", {}) for rank in pair}
                results[pair] = pairs.result_of(pair, rows, all(rows.values()))
        return name_culprits(self.world, outcomes, matrices, results)

    def _run(
        self,
        groups: Sequence[Sequence[int]],
        trial: Optional[Trial],
        plan: CollectivePlan,
        seed: int,
        purpose: str,
    ) -> Dict[int, Any]:
        self._runs += 1
        asked: List[int] = []
        for number, group in enumerate(groups):
            for place, rank in enumerate(group):
                fault = None
                if trial and trial.rank == rank:
                    source = list(group).index(trial.source) if trial.source in group else -1
                    fault = Fault(trial.kind, seed, source, trial.permille)._asdict()
                task = {
                    "rank": place,
                    "world": len(group),
                    "device": "cpu",
                    "backend": "gloo",
                    "store": ["127.0.0.1", 0],
                    "plan": plan.to_json(),
                    "budget_s": 60,
                    "purpose": purpose,
                    "prefix": f"{self._runs}/{number}",
                    "fault": fault,
                }
                self._send(rank, task)
                asked.append(rank)
        return {rank: self._answer(rank) for rank in asked}

    def _send(self, rank: int, what: Any) -> None:
        stream = self._processes[rank].stdin
        assert stream is not None
        stream.write(json.dumps(what).encode("ascii") + b"\n")

    def _answer(self, rank: int) -> Dict[str, Any]:
        stream = self._processes[rank].stdout
        assert stream is not None
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            said = bytearray()
            while not said.endswith(b"\n"):
                if not selector.select(_ANSWER_S):
                    raise TimeoutError(f"rank {rank} has not answered within {_ANSWER_S:g} s")
                chunk = os.read(stream.fileno(), 1 << 20)
                if not chunk:
                    raise RuntimeError(f"rank {rank} has ended")
                said += chunk
        answer: Dict[str, Any] = json.loads(said)
        if "error" in answer:
            raise RuntimeError(f"rank {rank}: {answer['error']}")
        return answer


def detected(outcomes: Mapping[int, Any]) -> bool:
    """Whether any item came out wrong anywhere."""
    return any(row["status"] == "wrong" for rows in outcomes.values() for row in rows.values())


def names_right(suspects: Sequence[Suspect], trial: Trial) -> bool:
    """Whether the fault is among the suspects, alone or with those it cannot be told from."""
    if trial.kind == LINK:
        link = (trial.source, trial.rank)
        return any(
            (each.link is not None and set(each.link) == set(link)) or set(link) <= set(each.ranks)
            for each in suspects
        )
    return any(trial.rank in each.ranks for each in suspects)


def misnamed(suspects: Sequence[Suspect], trial: Trial) -> bool:
    """Whether somebody is accused who is not at fault, as if nobody else could be."""
    if trial.kind == LINK:
        return any(each.kind == RANK for each in suspects) or any(
            each.kind == A_LINK and set(each.link or ()) != {trial.source, trial.rank} for each in suspects
        )
    return any(trial.rank not in each.ranks or (each.kind == A_LINK and each.sure) for each in suspects)
