"""Ranks as a supervisor starts them: one process each, through `checks/launch.py`."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from envaudit.checks import launch
from envaudit.checks.collectives.items import CollectivePlan

MODULE = "envaudit.checks.collectives.rank"


class Told(NamedTuple):
    """What one rank has said.

    Attributes:
        lines: in order.
        complained: its standard error.
        status: its exit status.
    """

    lines: List[Dict[str, Any]]
    complained: str
    status: int

    @property
    def outcomes(self) -> Dict[str, Dict[str, Any]]:
        """By item, in order."""
        return {each["item"]: each for line in self.lines for each in line.get("outcomes", ())}

    def line(self, key: str) -> Optional[Any]:
        """What the last line with this key says."""
        return next((line[key] for line in reversed(self.lines) if key in line), None)


def run_ranks(
    world: int,
    plan: CollectivePlan,
    *,
    interpreter: str = sys.executable,
    purpose: str = "all",
    environs: Sequence[Mapping[str, str]] = (),
    budget_s: int = 60,
) -> List[Told]:
    """All ranks of a world on this machine, over gloo; a rank that has not ended by then is killed.

    Args:
        world: how many.
        plan: what they are asked for.
        interpreter: with a torch.
        purpose: as the task has it.
        environs: variables of single ranks, by rank.
        budget_s: until then all have ended.
    """
    with tempfile.TemporaryDirectory() as cache:
        processes = _started(world, plan, interpreter, purpose, environs, budget_s, cache)
        said = _heard(processes, budget_s)
    return [
        Told(
            [json.loads(line) for line in said[rank][0].splitlines() if line.startswith(b"{")],
            said[rank][1].decode("utf-8", "replace"),
            processes[rank].returncode,
        )
        for rank in range(world)
    ]


def _started(
    world: int,
    plan: CollectivePlan,
    interpreter: str,
    purpose: str,
    environs: Sequence[Mapping[str, str]],
    budget_s: int,
    cache: str,
) -> List[subprocess.Popen[bytes]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes: List[subprocess.Popen[bytes]] = []
    for rank in range(world):
        environ = {**os.environ, "OMP_NUM_THREADS": "1", **(environs[rank] if rank < len(environs) else {})}
        processes.append(launch.start(interpreter, environ, None, budget_s, cache, MODULE))
        task = {
            "rank": rank,
            "world": world,
            "local_rank": rank,
            "device": "cpu",
            "backend": "gloo",
            "store": ["127.0.0.1", port],
            "plan": plan.to_json(),
            "budget_s": budget_s,
            "purpose": purpose,
            "interface": "lo",
        }
        stdin = processes[rank].stdin
        assert stdin is not None
        stdin.write(json.dumps(task).encode("ascii") + b"\n")
    return processes


def _heard(processes: Sequence[subprocess.Popen[bytes]], budget_s: int) -> Dict[int, Any]:
    said: Dict[int, Any] = {}

    def listen(rank: int) -> None:
        try:
            said[rank] = processes[rank].communicate(timeout=budget_s)
        except subprocess.TimeoutExpired:
            processes[rank].kill()
            said[rank] = processes[rank].communicate()

    listeners = [threading.Thread(target=listen, args=(rank,)) for rank in range(len(processes))]
    for listener in listeners:
        listener.start()
    for listener in listeners:
        listener.join()
    return said
