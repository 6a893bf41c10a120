"""Pings through real pipes: BOOT that answers them, and nodes that make the worst of them."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from envaudit.model.clockoffset import NOTE, Offset, offset_of
from envaudit.model.fingerprint import Fingerprint
from envaudit.transport import Request, Target, gather
from envaudit.transport.boot import PONG, payload_of
from envaudit.transport.clockoffset import THOROUGH, Effort
from envaudit.transport.exec import Exec
from envaudit.transport.local import Local
from tests.transport.asking import interpreters, processes_with, wait_for
from tests.transport.test_boot import header_of, start, zip_with

PINGED = Path(__file__).with_name("pinged.py")
SECOND_NS = 1_000_000_000


def measured(mode: str, **request: Any) -> Fingerprint:
    """The answer of one node that meets its pings in this way."""
    command = f"{shlex.quote(sys.executable)} {PINGED} {mode} {{node}} {{python}}"
    asked = Request(**{"sections": ("clock",), "timeout_s": 20, **request})
    (fingerprint,) = gather(Exec(command), [Target("node01", sys.executable)], asked).fingerprints
    return fingerprint


def reason(fingerprint: Fingerprint) -> object:
    """Why there is no offset."""
    examined = fingerprint.sections["clock"].notes["not_examined"]
    assert isinstance(examined, dict)
    return examined[NOTE]


@pytest.mark.parametrize(
    ("mode", "ahead_ns"), [("honest", 0), ("noisy", 0), ("ahead", 3_200_000_000), ("guessing", 3_200_000_000)]
)
def test_clock_of_a_node_that_answers_is_measured(mode: str, ahead_ns: int) -> None:
    """Inside the bound, and the bound of a pipe is less than a tenth of a second."""
    offset = offset_of(measured(mode, pings=THOROUGH))
    assert offset is not None
    assert abs(offset.offset_ns - ahead_ns) <= offset.bound_ns < SECOND_NS // 10


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("stepping", "the clock was set while it was measured"),
        ("silent", "no answer to a ping"),
        ("leaving", "no answer to a ping"),
        ("flooding", "no answer to a ping"),
        ("absurd", "no answer to a ping"),
    ],
)
def test_node_that_misuses_its_pings_loses_its_offset_alone(
    mode: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer counts, the reason is a note, and nothing of it is left after a few seconds."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv("MARK", mark)
    began = time.monotonic()
    fingerprint = measured(mode)
    assert time.monotonic() - began < 5
    assert (None, why) == (offset_of(fingerprint), reason(fingerprint))
    assert {"service": "chrony", "synchronised": True} == fingerprint.sections["clock"].facts
    assert wait_for(lambda: not processes_with(mark), 2)


def test_replayed_pong_counts_once() -> None:
    """What was measured before the node began to cheat is kept."""
    fingerprint = measured("replaying")
    assert 1 == fingerprint.sections["clock"].notes[NOTE]["pings"]  # type: ignore[index,call-overload]


def test_node_is_not_pinged_where_nobody_wants_to_know() -> None:
    """Neither without the section nor with an effort of none."""
    assert NOTE not in measured("silent", pings=Effort(0, 0, 0)).sections["clock"].notes
    assert NOTE not in measured("silent", sections=("env",)).sections["clock"].notes


def test_this_machine_has_no_offset_from_itself() -> None:
    """Its section clock says nothing of one."""
    targets = [Target("here", sys.executable)]
    (fingerprint,) = gather(Local(), targets, Request(sections=("clock",))).fingerprints
    assert NOTE not in fingerprint.sections["clock"].notes


def test_nodes_of_one_run_are_held_against_each_other() -> None:
    """Each run has a name of its own, and all of its nodes carry it."""
    transport = Exec("/usr/bin/env NAME={node} {python}")
    targets = [Target(f"node{number}", sys.executable) for number in range(3)]
    names = []
    for _ in range(2):
        found = gather(transport, targets, Request(sections=("clock",), timeout_s=20)).fingerprints
        notes = [each.sections["clock"].notes[NOTE] for each in found]
        assert 3 == len(notes)
        names.append({note["run"] for note in notes})  # type: ignore[index,call-overload]
        for each in found:
            offset = offset_of(each)
            assert isinstance(offset, Offset)
            assert abs(offset.offset_ns) <= offset.bound_ns
    assert [1, 1] == [len(each) for each in names]
    assert names[0].isdisjoint(names[1])


def begin(process: subprocess.Popen[bytes], *, pings: bool, body: str = "sys.stdout.write('here')") -> None:
    """Give a node's Python something to run."""
    payload = zip_with(body)
    assert process.stdin is not None
    process.stdin.write(header_of(payload_of(payload.zip_bytes), pings=pings) + payload.zip_bytes)
    process.stdin.flush()


def finish(process: subprocess.Popen[bytes]) -> int:
    """Its exit status, after its standard input has been closed."""
    for stream in (process.stdin, process.stdout, process.stderr):
        assert stream is not None
        stream.close()
    return process.wait(timeout=5)


@pytest.mark.parametrize("python", interpreters("3.8"), ids=lambda python: python.split("/")[-3])
def test_boot_answers_pings_with_its_clock_until_its_input_closes(python: str) -> None:
    """On every supported Python, as often as it is asked, and then it is gone with status 0."""
    process = start(python)
    assert process.stdin is not None
    assert process.stdout is not None
    begin(process, pings=True)
    assert b"here" == process.stdout.read(4)
    for number in range(5):
        before_ns = time.time_ns()
        process.stdin.write(b"%016d\n" % number)
        process.stdin.flush()
        mark, said, word = process.stdout.readline().split()
        assert (PONG.strip(), b"%016d" % number) == (mark, word)
        assert before_ns <= int(said) <= time.time_ns()
    assert 0 == finish(process)


def test_boot_that_is_not_to_be_pinged_leaves_with_its_answer() -> None:
    """Its standard input is still open."""
    process = start(sys.executable)
    begin(process, pings=False)
    assert 0 == process.wait(timeout=5)
    finish(process)


def test_boot_whose_payload_fails_does_not_wait_for_pings() -> None:
    """There is no answer that anybody could wait for."""
    process = start(sys.executable)
    begin(process, pings=True, body="raise RuntimeError('oh')")
    assert 1 == process.wait(timeout=4)
    finish(process)


def test_boot_that_nobody_pings_leaves_by_itself() -> None:
    """A controller that was stopped would keep it for good."""
    process = start(sys.executable)
    began = time.monotonic()
    begin(process, pings=True)
    assert 0 == process.wait(timeout=10)
    assert 4 < time.monotonic() - began < 9
    finish(process)


def test_boot_in_its_pings_ends_with_its_connection() -> None:
    """SIGHUP is what a broken connection looks like."""
    process = start(sys.executable)
    assert process.stdout is not None
    begin(process, pings=True)
    assert b"here" == process.stdout.read(4)
    process.send_signal(1)
    process.wait(timeout=3)
    finish(process)
