"""Whole-process figures: wall time and peak memory of commands, run in turn so that noise is shared."""

from __future__ import annotations

import os
import statistics
import time
from typing import Mapping, NamedTuple, Sequence


class Run(NamedTuple):
    """One finished process: seconds from start to exit, and its own peak resident bytes."""

    wall_s: float
    peak_bytes: int


class Command(NamedTuple):
    """What to run, where, and the exit code that is right."""

    argv: Sequence[str]
    folder: str = "."
    environment: Mapping[str, str] = {}
    expected: int = 0


def run_once(command: Command) -> Run:
    """Run a command to its end, its output thrown away.

    Raises:
        RuntimeError: it ended with another exit code than expected; then the figure means nothing.
    """
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os.chdir(command.folder)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        try:
            os.execvpe(command.argv[0], list(command.argv), {**os.environ, **command.environment})
        finally:
            os._exit(127)
    _, status, usage = os.wait4(pid, 0)
    wall_s = time.monotonic() - began
    code = os.waitstatus_to_exitcode(status)
    if code != command.expected:
        raise RuntimeError(f"{' '.join(command.argv)}: exit {code}, expected {command.expected}")
    return Run(wall_s, usage.ru_maxrss * 1024)


def in_turn(commands: Mapping[str, Command], runs: int) -> dict[str, list[Run]]:
    """Each command `runs` times, A B A B, after one warm-up of each."""
    for command in commands.values():
        run_once(command)
    results: dict[str, list[Run]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            results[name].append(run_once(command))
    return results


def median_s(runs: Sequence[Run]) -> float:
    """Median wall time in seconds."""
    return statistics.median(run.wall_s for run in runs)


def ratio(results: Mapping[str, Sequence[Run]], ours: str, theirs: str) -> float:
    """Median of the ratios ours / theirs, pair by pair."""
    pairs = zip(results[ours], results[theirs])
    return statistics.median(a.wall_s / b.wall_s for a, b in pairs)
