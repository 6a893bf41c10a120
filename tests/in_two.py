"""Tests in two processes at once, for many wait: for nodes, servers, deadlines.

All tests: those of the lab, the locks, the transports and the like, and beside them the rest. With `checks`
those that need torch: what runs in the environment, and beside it what runs it. What the second process says
is printed whole after the first. Usage: python tests/in_two.py [checks] [-- PYTEST OPTIONS]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

TESTS = Path(__file__).parent
# Half of the time, most of it spent waiting.
WAITING = ("lab", "lock", "transport", "control", "report")
# Outside their folder: what needs torch beside the tests.
WITH_TORCH = (
    "track",
    "cli/test_inband_gate.py",
    "lab/test_check_collectives.py",
    "lab/test_checked_numbers.py",
    "lab/test_collective_endings.py",
    "lab/test_gate_checks.py",
)


def main(arguments: Sequence[str]) -> int:
    """Run both parts; 0 when each of them ran tests and all of these passed.

    pytest ends with 5 where it found no test: that is no pass either.
    """
    folders = sorted(each.name for each in TESTS.iterdir() if any(each.glob("test_*.py")))
    here, beside = WAITING, tuple(name for name in folders if name not in WAITING)
    if arguments[:1] == ["checks"]:
        here, beside, arguments = ("checks",), WITH_TORCH, arguments[1:]
    with tempfile.TemporaryFile() as said:
        second = start(beside, arguments, said.fileno())
        codes = [start(here, arguments, None).wait(), second.wait()]
        said.seek(0)
        sys.stdout.buffer.write(said.read())
    return next((code for code in codes if code), 0)


def start(paths: Sequence[str], options: Sequence[str], output: int | None) -> subprocess.Popen[bytes]:
    """Run pytest over some of the tests, its words to a file or to this terminal."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    return subprocess.Popen([*command, *(str(TESTS / path) for path in paths)], stdout=output)


if __name__ == "__main__":
    sys.exit(main([each for each in sys.argv[1:] if each != "--"]))
