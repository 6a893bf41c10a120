"""Files screened by several processes: what passes is as recorded, and all else is named."""

from __future__ import annotations

import hashlib
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Callable, Dict, List, Tuple

import pytest

from envaudit.probe.screening import Screening
from tests.conftest import PROJECT

BUFFER_BYTES = 256 << 10


class Folder:
    """Files, and what a record would say of each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.words: List[str] = []

    def add(self, name: str, text: bytes) -> Path:
        """A file that is as recorded."""
        place = self.path / name
        place.write_bytes(text)
        self.words += [str(place), hashlib.sha256(text).hexdigest(), str(len(text))]
        return place

    def screen(self) -> Tuple[List[str], int]:
        """The names of those that did not pass, and the bytes of those that did."""
        with Screening(30) as screening:
            screening.offer(self.words)
            screening.all_offered()
            left = screening.result()
        return sorted(os.path.basename(path) for path in left), screening.passed_bytes


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """An empty one."""
    return Folder(tmp_path)


def test_files_as_recorded_pass_and_all_others_are_named(folder: Folder) -> None:
    """Several parts' worth, offered package by package; how far it is ends at all that passed."""
    told: List[Tuple[int, int]] = []
    total = 0
    with Screening(30) as screening:
        for package in range(40):
            folder.words = []
            for number in range(17):
                text = b"%d\n" % number * package * number
                place = folder.add(f"{package}-{number}", text)
                total += len(text)
                if number == package:
                    place.write_bytes(text[:-1] + b"x")
                    total -= len(text)
            screening.offer(folder.words)
        screening.all_offered()
        left = screening.result(lambda *numbers: told.append(numbers))
    assert sorted(f"{number}-{number}" for number in range(17)) == sorted(map(os.path.basename, left))
    assert (40 * 17 - 17, total) == told[-1]
    assert (sorted(told), total) == (told, screening.passed_bytes)


def _flip(place: Path) -> None:
    text = bytearray(place.read_bytes())
    text[-1] ^= 1
    place.write_bytes(text)


def _append(place: Path) -> None:
    place.write_bytes(place.read_bytes() + b"x")


def _cut(place: Path) -> None:
    place.write_bytes(place.read_bytes()[:-1])


def _link(place: Path) -> None:
    place.rename(place.with_name("other"))
    place.symlink_to("other")


def _folder(place: Path) -> None:
    place.unlink()
    place.mkdir()


_CHANGES: Dict[str, Callable[[Path], None]] = {
    "flip": _flip,
    "append": _append,
    "cut": _cut,
    "link": _link,
    "folder": _folder,
    "missing": Path.unlink,
}


@pytest.mark.parametrize("change", list(_CHANGES))
@pytest.mark.parametrize("size_bytes", [5, BUFFER_BYTES, 3 * BUFFER_BYTES, 3 * BUFFER_BYTES + 5])
def test_changed_file_does_not_pass(folder: Folder, size_bytes: int, change: str) -> None:
    """Whatever the change is, in one buffer's worth and at the end of several; its neighbours do pass."""
    for name in ("before", "changed", "after"):
        folder.add(name, os.urandom(size_bytes))
    assert ([], 3 * size_bytes) == folder.screen()
    _CHANGES[change](folder.path / "changed")
    assert (["changed"], 2 * size_bytes) == folder.screen()


def test_empty_file_passes_and_a_fifo_in_its_place_does_not(folder: Folder) -> None:
    """A FIFO that nobody writes to reads as nothing, and so does an empty `py.typed`."""
    place = folder.add("py.typed", b"")
    assert ([], 0) == folder.screen()
    place.unlink()
    os.mkfifo(place)
    assert (["py.typed"], 0) == folder.screen()


@pytest.mark.parametrize("digest", ["", "a\0b\0c", chr(0xDC80), chr(0xD800), "é" * 64], ids=ascii)
def test_hostile_record_passes_nothing_that_it_should_not(folder: Folder, digest: str) -> None:
    """A digest with a NUL or of no text does not shift what is said of other files."""
    for name in ("one", "two", "three"):
        folder.add(name, name.encode())
    folder.words[4] = digest
    left, _ = folder.screen()
    assert "two" in left


def test_file_whose_process_was_ended_does_not_pass(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel ends whoever takes too much memory."""

    def be_ended(*about: object) -> bool:
        os.kill(os.getpid(), signal.SIGKILL)
        return True

    for number in range(200):
        folder.add(str(number), b"x")
    monkeypatch.setattr(Screening, "_passes", be_ended)
    left, passed_bytes = folder.screen()
    assert (200, 0) == (len(left), passed_bytes)


@pytest.mark.parametrize("limit", [resource.RLIMIT_AS, resource.RLIMIT_NPROC], ids=["memory", "processes"])
def test_without_memory_or_processes_nothing_passes(folder: Folder, limit: int) -> None:
    """Under a limit of its own it says so of every file, and does not fail."""
    folder.add("one", b"1")
    script = (
        "import os, resource, sys\n"
        "from envaudit.probe.screening import Screening\n"
        "with Screening(30) as screening:\n"
        "    if int(sys.argv[1]) == resource.RLIMIT_NPROC:\n"
        "        os.setuid(65534)\n"  # the limit does not hold for root
        "    resource.setrlimit(int(sys.argv[1]), (1 << 27 if os.getuid() == 0 else 0,) * 2)\n"
        "    screening.offer(sys.argv[2:])\n"
        "    print(*screening.result())\n"
    )
    argv = [sys.executable, "-c", script, str(limit), *folder.words]
    said = subprocess.run(argv, stdout=subprocess.PIPE, cwd=PROJECT, check=True, timeout=30)
    assert folder.words[0] == said.stdout.decode().strip()


def test_nothing_offered_starts_no_process() -> None:
    """An environment without records, or one that is not hashed."""
    with Screening(30) as screening:
        screening.offer([])
        screening.all_offered()
        assert [] == screening.result()
        assert {} == screening._crew._pids
