"""Files looked at by several processes: all are, once, and no process outlives who asked."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable, List, Tuple

import pytest

from envaudit.probe.crew import processes
from envaudit.probe.hashing import File, Looking
from tests.conftest import PROJECT

FilesIn = Callable[[int], List[File]]


@pytest.fixture
def files_in(tmp_path: Path) -> FilesIn:
    """Makes so many files of growing size, every one as it should be."""

    def make(count: int) -> List[File]:
        made = []
        for number in range(count):
            text = b"%d\n" % number * number
            path = tmp_path / f"{number:05d}"
            path.write_bytes(text)
            digest = ("sha256", hashlib.sha256(text).hexdigest())
            made.append(File(str(path), (digest,), (len(text),)))
        return made

    return make


def test_files_are_all_looked_at_once(files_in: FilesIn) -> None:
    """More than a part's worth; every byte is read, and how far it is ends at all."""
    files = files_in(500)
    told: List[Tuple[int, int]] = []
    with Looking(files, contents=True, deadline_s=30) as looking:
        found = looking.result(lambda *numbers: told.append(numbers))
    total = sum(file.sizes[0] for file in files)
    assert ([], [], {}, total) == (found.changed, found.missing, found.errors, found.read_bytes)
    assert (500, total) == told[-1]
    assert sorted(told) == told


def test_file_larger_than_the_buffer_is_read_to_its_end(tmp_path: Path) -> None:
    """A byte flipped in the last of many pieces is seen."""
    text = bytearray(3 * (256 << 10) + 5)
    digest = ("sha256", hashlib.sha256(text).hexdigest())
    path = tmp_path / "library.so"
    for last, expected in ((0, []), (1, [0])):
        text[-1] = last
        path.write_bytes(text)
        with Looking([File(str(path), (digest,))], contents=True, deadline_s=30) as looking:
            assert expected == looking.result().changed


def test_no_files_are_no_work() -> None:
    """An environment without records."""
    with Looking([], contents=True, deadline_s=30) as looking:
        assert [] == looking.result().changed


def _be_ended(self: object, part: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_file_whose_process_was_ended_is_an_error_and_not_as_recorded(
    files_in: FilesIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel ends whoever takes too much memory; what was not looked at must not pass."""
    files = files_in(200)
    monkeypatch.setattr("envaudit.probe.hashing._Worker.look", _be_ended)
    with Looking(files, contents=True, deadline_s=30) as looking:
        found = looking.result()
    assert set(found.errors) == set(range(200))
    assert {"the process that looked at it was ended"} == set(found.errors.values())


_LOOK_FOR_LONG = """
import sys
from envaudit.probe.hashing import File, Looking

sparse = File(sys.argv[1], (("sha256", "0" * 64),), (1 << 40,))
with Looking([sparse] * 4, contents=True, deadline_s=60) as looking:
    print("looking", flush=True)
    looking.result()
"""
_SCREEN_FOR_LONG = """
import sys
from envaudit.probe.screening import Screening

with Screening(60) as screening:
    screening.offer([sys.argv[1], "0" * 64, str(1 << 40)] * 4)
    print("looking", flush=True)
    screening.result()
"""


def _working_on(path: Path) -> List[int]:
    """The processes that have a file open."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                links = [os.readlink(f"/proc/{entry}/fd/{fd}") for fd in os.listdir(f"/proc/{entry}/fd")]
            except OSError:
                continue
            if str(path) in links:
                found.append(int(entry))
    return found


def _until(held: Callable[[], bool], limit_s: float = 10.0) -> bool:
    deadline = time.monotonic() + limit_s
    while not held() and time.monotonic() < deadline:
        time.sleep(0.02)
    return held()


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda each: each.name
)
@pytest.mark.parametrize("script", [_LOOK_FOR_LONG, _SCREEN_FOR_LONG], ids=["looking", "screening"])
def test_ended_process_leaves_nobody_hashing(tmp_path: Path, script: str, number: signal.Signals) -> None:
    """`kill -9` of who asked, in the middle of a terabyte: the workers are gone at once."""
    path = tmp_path / "sparse"
    path.touch()
    os.truncate(path, 1 << 40)
    argv = [sys.executable, "-c", script, str(path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=PROJECT) as process:
        assert process.stdout is not None
        assert b"looking\n" == process.stdout.readline()
        assert _until(lambda: len(_working_on(path)) == min(4, processes()))
        process.send_signal(number)
        process.wait(10)
    assert _until(lambda: not _working_on(path))


@pytest.mark.parametrize("pieces", [1, 3])
def test_byte_behind_a_full_buffer_is_seen(tmp_path: Path, pieces: int) -> None:
    """A library of exactly so many buffers to which something was appended begins as recorded."""
    text = bytes(pieces * (256 << 10))
    path = tmp_path / "library.so"
    file = File(str(path), (("sha256", hashlib.sha256(text).hexdigest()),), (len(text),))
    for more, expected in ((b"", []), (b"x", [0])):
        path.write_bytes(text + more)
        with Looking([file], contents=True, deadline_s=30) as looking:
            assert expected == looking.result().changed


def test_digest_of_a_hostile_record_is_that_file_s_alone(files_in: FilesIn) -> None:
    """One with a NUL, or a path without one, shifts no other file's."""
    files = files_in(3)
    files[1] = files[1]._replace(accepted=(("sha256", "a\0b\0c"),))
    with Looking(files, contents=True, deadline_s=30) as looking:
        assert [1] == looking.result().changed
