"""Members and hubs as processes: killed, stopped, of other Pythons, with clocks that are off."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest

from tests.conftest import PACKAGE_HOME
from tests.control.meeting_place import TOKEN, hub_of, left, members_of, port_of, until
from tests.probe.pythons import interpreters

SCRIPT = Path(__file__).with_name("member.py")


class Started:
    """The processes of one test."""

    def __init__(self) -> None:
        self.processes: List[subprocess.Popen[str]] = []

    def __call__(self, *arguments: object, python: str = sys.executable) -> subprocess.Popen[str]:
        """One more of them."""
        environ = {**os.environ, "PYTHONPATH": str(PACKAGE_HOME), "ENVAUDIT_TOKEN": TOKEN.decode()}
        process = subprocess.Popen(
            [python, str(SCRIPT), *map(str, arguments)], stdout=subprocess.PIPE, text=True, env=environ
        )
        self.processes.append(process)
        return process


@pytest.fixture
def start() -> Iterator[Started]:
    """Starts processes, which end with the test."""
    started = Started()
    yield started
    for process in started.processes:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def line(process: subprocess.Popen[str]) -> Dict[str, Any]:
    """What it says next."""
    assert process.stdout is not None
    told: Dict[str, Any] = json.loads(process.stdout.readline())
    return told


def test_member_that_is_killed_is_known_at_once_and_costs_itself_alone(start: Started) -> None:
    """SIGKILL of one of two."""
    with hub_of(2) as hub, members_of(hub, []):
        doomed, other = start("member", port_of(hub), 0), start("member", port_of(hub), 1)
        until(hub, lambda: len(hub.members) == 2, joining=True)
        assert {"joined": 0, "python": list(sys.version_info[:2])} == line(doomed)
        began = time.monotonic()
        doomed.send_signal(signal.SIGKILL)
        assert "its connection ended without a goodbye" == left(hub, 0)
        assert time.monotonic() - began < 2
        hub.broadcast("end")
        assert 1 == line(other)["joined"]
        assert {"kind": "end", "body": None} == line(other)
        assert "goodbye" == left(hub, 1)


def test_member_that_is_stopped_falls_silent_and_can_come_back(start: Started) -> None:
    """SIGSTOP: its connection stays, its heartbeats do not; SIGCONT: they are back."""
    with hub_of(2) as hub:
        stopped, other = start("member", port_of(hub), 0), start("member", port_of(hub), 1)
        until(hub, lambda: len(hub.members) == 2, joining=True)
        stopped.send_signal(signal.SIGSTOP)
        silent_s = 2.0
        until(hub, lambda: time.monotonic() - hub.members[0].heard_at > silent_s)
        assert "" == hub.members[0].left
        assert time.monotonic() - hub.members[1].heard_at < silent_s
        stopped.send_signal(signal.SIGCONT)
        until(hub, lambda: time.monotonic() - hub.members[0].heard_at < 0.5)
        hub.broadcast("end")
        assert ["goodbye", "goodbye"] == [left(hub, 0), left(hub, 1)]
        assert [0, 0] == [process.wait(10) for process in (stopped, other)]


def test_hub_that_is_killed_is_lost_to_its_members_at_once(start: Started) -> None:
    """Each of them says so, and ends."""
    hub = start("hub", 0, 2)
    port = line(hub)["port"]
    members = [start("member", port, index) for index in range(2)]
    assert [] == line(hub)["missing"]
    for index, member in enumerate(members):
        assert index == line(member)["joined"]
    began = time.monotonic()
    hub.send_signal(signal.SIGKILL)
    for member in members:
        told = line(member)
        while "lost" not in told:
            told = line(member)
        assert f"127.0.0.1:{port}: the hub is lost" in told["lost"]
    assert time.monotonic() - began < 3


def test_hub_that_is_stopped_is_lost_after_its_silence(start: Started) -> None:
    """Its kernel goes on acknowledging; only its heartbeats tell."""
    hub = start("hub", 0, 1)
    member = start("member", line(hub)["port"], 0)
    assert [] == line(hub)["missing"]
    line(member)
    hub.send_signal(signal.SIGSTOP)
    told = line(member)
    while "lost" not in told:
        told = line(member)
    assert "no word from it for 3 s" in told["lost"]


def test_member_that_begins_before_its_hub_joins_it(start: Started) -> None:
    """A job's nodes start in any order."""
    with hub_of(1) as hub:
        port = port_of(hub)
    member = start("member", port, 0)
    time.sleep(1)
    hub_process = start("hub", port, 1)
    assert {"port": port} == line(hub_process)
    assert [] == line(hub_process)["missing"]
    assert 0 == line(member)["joined"]


@pytest.mark.parametrize("clock_ns", [0, 3_000_000_000, -86_400_000_000_000])
def test_clock_of_a_member_is_measured(start: Started, clock_ns: int) -> None:
    """Its offset is known to the bound."""
    with hub_of(1) as hub:
        start("member", port_of(hub), 0, clock_ns)
        until(hub, lambda: len(hub.members) == 1, joining=True)
        member = hub.members[0]
        assert member.offset_ns is not None
        assert member.bound_ns is not None
        assert abs(member.offset_ns - clock_ns) <= member.bound_ns + 1_000_000
        assert member.bound_ns < 2_000_000_000


@pytest.mark.parametrize(("hubs", "members"), [("3.8", "3.13"), ("3.13", "3.8")])
def test_pythons_of_hub_and_member_may_differ(start: Started, hubs: str, members: str) -> None:
    """The oldest and the newest, in either role."""
    pythons = interpreters()
    if hubs not in pythons or members not in pythons:
        pytest.skip(f"needs Python {hubs} and {members}")
    hub = start("hub", 0, 1, python=pythons[hubs])
    member = start("member", line(hub)["port"], 0, python=pythons[members])
    assert {"missing": [], "python": [int(part) for part in hubs.split(".")]} == line(hub)
    assert {"joined": 0, "python": [int(part) for part in members.split(".")]} == line(member)
    assert {"index": 0, "kind": "word", "body": ["from", 0]} == line(hub)
    assert {"kind": "word", "body": ["from", 0]} == line(member)
