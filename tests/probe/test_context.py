"""How sections read: only what is a plain file, never more than asked, never for ever."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Callable

import pytest

from envaudit.probe.context import ChildFailed, Context, ProgramFailed, ProgramMissing, ProgramTimeout
from tests.probe.processes import is_gone

MakeNode = Callable[..., Context]


@pytest.fixture
def live(tmp_path: Path) -> Context:
    """This machine."""
    return Context(environ=dict(os.environ), workdir=str(tmp_path), launch="local", interpreter={})


def test_read_of_a_fifo_does_not_block(live: Context, tmp_path: Path) -> None:
    """A FIFO in place of a file is refused at once, where open() would wait for a writer."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="Not a regular file"):
        live.read_text(str(tmp_path / "pipe"))


def test_read_of_a_device_is_refused(live: Context) -> None:
    """A device in place of a file is refused: reading one may have effects, or never end."""
    with pytest.raises(OSError, match="Not a regular file"):
        live.read_bytes("/dev/zero")


def test_read_of_a_folder_says_so(live: Context, tmp_path: Path) -> None:
    """A folder in place of a file is an error with its own reason."""
    with pytest.raises(IsADirectoryError):
        live.read_text(str(tmp_path))


def test_read_of_a_link_that_leads_to_itself_ends(live: Context, tmp_path: Path) -> None:
    """A loop of symbolic links is an error, not a hang."""
    os.symlink("loop", tmp_path / "loop")
    with pytest.raises(OSError, match="symbolic links"):
        live.read_text(str(tmp_path / "loop"))


@pytest.mark.parametrize("size", [0, 1, 9, 10])
def test_read_of_a_file_within_its_limit_is_whole(live: Context, tmp_path: Path, size: int) -> None:
    """A file of up to the limit comes back byte for byte."""
    (tmp_path / "file").write_bytes(b"x" * size)
    assert b"x" * size == live.read_bytes(str(tmp_path / "file"), limit_bytes=10)


@pytest.mark.parametrize("size", [11, 1000])
def test_read_of_a_file_beyond_its_limit_is_refused(live: Context, tmp_path: Path, size: int) -> None:
    """A longer file is an error; it is never cut silently."""
    (tmp_path / "file").write_bytes(b"x" * size)
    with pytest.raises(OSError, match="Longer than 10 bytes"):
        live.read_bytes(str(tmp_path / "file"), limit_bytes=10)


def test_head_of_a_long_file_is_its_first_bytes(live: Context, tmp_path: Path) -> None:
    """`read_head` takes the beginning of what is too long to take whole."""
    (tmp_path / "file").write_bytes(b"abcdef" * 1000)
    assert b"abcd" == live.read_head(str(tmp_path / "file"), 4)


@pytest.mark.parametrize(("offset", "expected"), [(0, b"abcd"), (4, b"ef"), (9, b"")])
def test_part_of_a_file_ends_where_the_file_does(
    live: Context, tmp_path: Path, offset: int, expected: bytes
) -> None:
    """`read_at` reads what is asked for and no more: each byte of a device's registers costs time."""
    (tmp_path / "file").write_bytes(b"abcdef")
    assert expected == live.read_at(str(tmp_path / "file"), offset, 4)


def test_part_of_a_device_is_refused(live: Context) -> None:
    """As with whole files, only what is a plain file is read."""
    with pytest.raises(OSError, match="Not a regular file"):
        live.read_at("/dev/zero", 0, 4)


def test_read_of_proc_is_whole_though_it_says_size_zero(live: Context) -> None:
    """Files of /proc say size 0 and come in pieces."""
    with open("/proc/self/maps", encoding="utf-8") as file:
        first = file.readline()
    assert live.read_text("/proc/self/maps").startswith(first.split()[0])
    assert len(live.read_text("/proc/self/mountinfo")) > 10


def test_names_that_are_not_utf8_survive(live: Context, tmp_path: Path) -> None:
    """A file name that is no UTF-8 can be listed and read."""
    with open(os.path.join(os.fsencode(tmp_path), b"caf\xe9"), "wb") as file:
        file.write(b"\xff")
    (name,) = live.list_dir(str(tmp_path))
    assert "\udcff" == live.read_text(os.path.join(str(tmp_path), name))


def test_path_with_a_null_byte_is_an_os_error(live: Context) -> None:
    """A path from a garbled file is an error that every section already handles."""
    with pytest.raises(OSError, match="Invalid argument"):
        live.read_text("/etc/\0x")


def test_path_of_a_fake_node_stays_in_its_root(make_node: MakeNode) -> None:
    """An absolute path is one of the fake node's root."""
    node = make_node({"/etc/os-release": "ID=here\n"})
    assert "ID=here" == node.peek("/etc/os-release")
    assert node.peek("/proc/self/limits") is None


def test_denied_path_of_a_fake_node_raises(make_node: MakeNode) -> None:
    """What node.json lists under `denied` cannot be read, nor what lies below it."""
    node = make_node({"/etc/a/b": "x", "/etc/ab": "y"}, denied=["/etc/a"])
    with pytest.raises(PermissionError):
        node.read_text("/etc/a/b")
    assert "y" == node.read_text("/etc/ab")


def test_program_gets_no_input_and_speaks_english(live: Context) -> None:
    """Standard input is empty and messages are in the C locale."""
    ran = live.run(["sh", "-c", "cat; echo $LC_ALL; echo oops >&2; exit 3"])
    assert (3, "C\n", "oops\n") == ran


def test_program_that_is_absent_is_missing(live: Context) -> None:
    """A program that PATH does not find is told apart from one that fails."""
    with pytest.raises(ProgramMissing, match="no-such-program: not found"):
        live.run(["no-such-program"])


def test_program_in_the_working_directory_is_not_found(
    live: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty or relative entry of PATH runs nothing that lies where the probe stands."""
    (tmp_path / "planted").write_text("#!/bin/sh\necho run\n")
    (tmp_path / "planted").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    node = Context(environ={"PATH": ":.:/usr/bin"}, workdir="/", launch="local", interpreter={})
    with pytest.raises(ProgramMissing):
        node.run(["planted"])


def test_program_that_hangs_is_ended_with_all_below_it(live: Context, tmp_path: Path) -> None:
    """At the deadline the program and its grandchildren are gone."""
    note = tmp_path / "pid"
    script = f"sh -c 'sleep 60 & echo $! > {note}; wait' & wait"
    started = time.monotonic()
    with pytest.raises(ProgramTimeout, match=r"sh: no answer within 0\.5 s"):
        live.run(["sh", "-c", script], timeout_s=0.5)
    assert time.monotonic() - started < 5
    assert is_gone(int(note.read_text()))


def test_program_that_says_too_much_is_ended(live: Context) -> None:
    """A program cannot fill the memory of the probe."""
    with pytest.raises(ProgramFailed, match="more than 1000 bytes"):
        live.run(["yes"], limit_bytes=1000)


def test_program_whose_interpreter_is_absent_fails_with_the_reason(live: Context, tmp_path: Path) -> None:
    """A script without its interpreter is a failed program, with the system's reason."""
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    ran = live.run([str(script)])
    assert 126 == ran.rc
    assert "No such file" in ran.stderr


def test_program_ended_by_a_signal_has_a_negative_status(live: Context) -> None:
    """A crash of a program is its status, as in subprocess."""
    assert -11 == live.run(["sh", "-c", "kill -SEGV $$"]).rc


def test_call_returns_what_the_function_returns(live: Context) -> None:
    """A function's value comes back from its child."""
    assert {"a": [1, None]} == live.call(lambda: {"a": [1, None]}, 5)


def _crash() -> None:
    os.kill(os.getpid(), 11)


def _raise() -> None:
    raise ValueError("no such thing")


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (_crash, "SIGSEGV"),
        (_raise, "ValueError: no such thing"),
        (lambda: time.sleep(60), r"no answer within 0\.5 s"),
        (lambda: "x" * (2 << 20), "more than 1048576 bytes"),
        (lambda: os._exit(3), "exit status 3"),
    ],
    ids=["crash", "exception", "hang", "flood", "exit"],
)
def test_call_that_fails_says_how(live: Context, function: Callable[[], object], why: str) -> None:
    """Crash, exception, hang, flood and exit of a called function are one error, with the cause."""
    with pytest.raises(ChildFailed, match=why):
        live.call(function, 0.5)
