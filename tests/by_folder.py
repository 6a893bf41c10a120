"""Tests folder by folder, three folders at a time, for many tests wait: for nodes, servers, deadlines.

All tests but those that `nox -s checks` runs; with `checks` those: what needs torch beside the tests. Whoever
of the three is done takes the next folder; what a folder's pytest says is printed whole when it ends.
Usage: python tests/by_folder.py [checks] [-- PYTEST OPTIONS]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parent
# One more than the cores of a small machine.
AT_ONCE = 3
# The longest first, so that all end at about the same time.
LONGEST = ("lab", "cli", "lock", "checks/collectives_session", "checks", "checks/collectives", "probe")
# What needs torch beside the tests, and runs nowhere else: whole folders, and single files.
FOLDERS_WITH_TORCH = ("checks", "track")
FILES_WITH_TORCH = (
    "cli/test_inband_gate.py",
    "lab/test_check_collectives.py",
    "lab/test_checked_numbers.py",
    "lab/test_collective_endings.py",
    "lab/test_gate_checks.py",
)


class Ended(NamedTuple):
    """One folder's pytest: its exit status, how long it took, and what it said."""

    folder: str
    code: int
    took_s: float
    said: bytes


def main(arguments: Sequence[str]) -> int:
    """Run all folders; 0 when each of them ran tests and all of these passed.

    pytest ends with 5 where it found no test: that is no pass either.
    """
    session, options = ("checks", arguments[1:]) if arguments[:1] == ["checks"] else ("tests", arguments)
    ended = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        runs = [pool.submit(run, files, options) for files in folders_of(session)]
        try:
            for each in as_completed(runs):
                ended.append(each.result())
                sys.stdout.buffer.write(ended[-1].said)
                sys.stdout.flush()
        finally:
            pool.shutdown(cancel_futures=True)
    for folder, code, took_s, _ in ended:
        print(f"{folder}: {'passed' if code == 0 else f'pytest ended with {code}'}, {took_s:.0f} s")
    return next((each.code for each in ended if each.code), 0)


def folders_of(session: str) -> list[list[Path]]:
    """The files that `tests` or `checks` runs, by folder: the longest first, the others by name."""
    every = sorted(TESTS.rglob("test_*.py"))
    files = [path for path in every if path.relative_to(TESTS).parts[0] in FOLDERS_WITH_TORCH]
    files += [TESTS / name for name in FILES_WITH_TORCH]
    if session == "tests":
        files = [path for path in every if path not in files]
    longest = [TESTS / name for name in LONGEST]
    found = {path.parent for path in files}
    folders = [each for each in longest if each in found] + sorted(found - set(longest))
    return [[path for path in files if path.parent == folder] for folder in folders]


def run(files: Sequence[Path], options: Sequence[str]) -> Ended:
    """Run pytest over files of one folder."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, *map(str, files)]
    began = time.monotonic()
    # Not a pipe: what a test left behind might keep it open.
    with tempfile.TemporaryFile() as said:
        code = subprocess.run(command, stdout=said, stderr=subprocess.STDOUT, check=False).returncode
        said.seek(0)
        folder = files[0].parent.relative_to(TESTS).as_posix()
        return Ended(folder, code, time.monotonic() - began, said.read())


if __name__ == "__main__":
    sys.exit(main([each for each in sys.argv[1:] if each != "--"]))
