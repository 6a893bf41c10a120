"""All tests, in two processes at once: those that wait for nodes and servers, and those that compute.

What the second says is printed whole after the first. Usage: python tests/in_two.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

TESTS = Path(__file__).parent
# Two thirds of the time, most of it spent waiting.
WAITING = ("lab", "lock", "transport")


def main() -> int:
    """Run both parts; 0 when each of them ran tests and all of these passed.

    pytest ends with 5 where it found no test: that is no pass either.
    """
    folders = sorted(each.name for each in TESTS.iterdir() if any(each.glob("test_*.py")))
    with tempfile.TemporaryFile() as said:
        beside = start([name for name in folders if name not in WAITING], said.fileno())
        codes = [start(WAITING, None).wait(), beside.wait()]
        said.seek(0)
        sys.stdout.buffer.write(said.read())
    return next((code for code in codes if code), 0)


def start(folders: Sequence[str], output: int | None) -> subprocess.Popen[bytes]:
    """Run pytest over some folders of the tests, its words to a file or to this terminal."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    return subprocess.Popen([*command, *(str(TESTS / name) for name in folders)], stdout=output)


if __name__ == "__main__":
    sys.exit(main())
