"""What all collectives of a default run cost, against importing torch alone in as many processes."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from typing import List, NamedTuple

from envaudit.checks.collectives.items import CollectivePlan
from tests.bench.measure import Command, run_once
from tests.checks.collectives.launching import run_ranks


class Ratios(NamedTuple):
    """The medians of the ratios to importing torch: of the ranks alone, and of the whole command."""

    ranks: float
    command: float


def ratios(world: int, runs: int) -> Ratios:
    """Both, each import followed by what is held against it.

    Raises:
        RuntimeError: a rank did not come to its end, or had a wrong result.
    """
    ranks: List[float] = []
    command: List[float] = []
    _imports_s(world)
    for _ in range(runs):
        imports_s = _imports_s(world)
        ranks.append(_collectives_s(world) / imports_s)
        command.append(_command_s(world) / imports_s)
    return Ratios(statistics.median(ranks), statistics.median(command))


def _command_s(world: int) -> float:
    argv = [sys.executable, "-m", "envaudit", "check", "--python", sys.executable, "--nproc", str(world)]
    return run_once(Command([*argv, "--only", "collectives"])).wall_s


def _imports_s(world: int) -> float:
    began = time.monotonic()
    processes = [subprocess.Popen([sys.executable, "-c", "import torch"]) for _ in range(world)]
    for process in processes:
        if process.wait():
            raise RuntimeError("torch does not import here")
    return time.monotonic() - began


def _collectives_s(world: int) -> float:
    began = time.monotonic()
    told = run_ranks(world, CollectivePlan())
    took_s = time.monotonic() - began
    for rank, each in enumerate(told):
        wrong = [name for name, row in each.outcomes.items() if row["status"] == "wrong"]
        if not each.line("end") or wrong:
            raise RuntimeError(f"rank {rank}: {each.line('error') or wrong or each.complained[-500:]}")
    return took_s
