"""A supervisor whose hub or whose worker says what none says, and one that has nothing left to open."""

from __future__ import annotations

import resource
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from envaudit.checks.collectives.layout import Layout, Limits
from envaudit.checks.collectives.member import Member
from envaudit.checks.piped import GREETING
from envaudit.checks.supervise import Started
from envaudit.control.client import connect
from envaudit.control.hub import Hub
from envaudit.control.listening import listen

LAUNCH = {"round": 1, "seconds": 5, "every_ms": 50, "tasks": [[0, {}]]}


class Room:
    """A hub that sends one message to its one member, and what it hears back."""

    def __init__(self, kind: str, body: Any, until: str) -> None:
        listener = listen("127.0.0.1", 0)
        self.port = listener.getsockname()[1]
        self.hub = Hub(listener, 1)
        self.heard: list[tuple[str, Any]] = []
        self.thread = threading.Thread(target=self._conduct, args=(kind, body, until), daemon=True)
        self.thread.start()

    def _conduct(self, kind: str, body: Any, until: str) -> None:
        self.hub.join(5)
        self.hub.send(0, kind, body)
        ends = time.monotonic() + 10
        while time.monotonic() < ends and until not in [kind for kind, _ in self.heard]:
            self.heard += [(event.kind, event.body) for event in self.hub.poll(0.1)]
        self.hub.close(0.5)

    def result(self, interpreter: str = "/nowhere") -> dict[str, Any]:
        """What the member comes to."""
        with connect("127.0.0.1", self.port, b"", 0, "n0", {}, 5) as client:
            result = Member(client, Layout(), {}, Started(interpreter, {}, "/"), Limits(stall_s=3)).run()
        self.thread.join(12)
        return result


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("col.go", {}),
        ("col.door", {"host": "", "stores": "many"}),
        ("col.try", {"addresses": {"1": ["127.0.0.1", 70000]}, "seconds": 1}),
        ("col.try", {"addresses": {"1": ["a host\0", 80]}, "seconds": 1}),
        ("col.launch", {"round": 1, "seconds": 5, "every_ms": 250, "tasks": 5}),
        ("col.clear", None),
    ],
)
def test_hub_that_says_what_no_hub_says_is_left(kind: str, body: Any) -> None:
    """With a result that says so."""
    ended = Room(kind, body, until="").result()["ended"]
    assert ("hub_lost", f"the hub says what no hub says ({kind})") == (ended["kind"], ended["text"])


def test_supervisor_that_can_open_no_more_ports_tells_why_it_leaves() -> None:
    """The hub names it by that."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = Room("col.door", {"host": "", "stores": 300}, until="col.unable")
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    try:
        ended = room.result()["ended"]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert ("lost", "it has no socket or file left: Too many open files") == (ended["kind"], ended["text"])
    assert ("col.unable", {"why": ended["text"]}) in room.heard


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ('{"heartbeat": null}', "its worker said something else than its results"),
        ('{"error": "' + "x" * 300_000 + '"}', "its worker said more than 256 KiB in one line"),
    ],
)
def test_worker_that_says_what_none_says_is_gone_and_its_supervisor_goes_on(
    tmp_path: Path, said: str, told: str
) -> None:
    """It is the worker that is named: its line would be refused at the hub, or break the connection."""
    (tmp_path / "said").write_text(f"{GREETING.decode()}\n{said}\n")
    worker = tmp_path / "python"
    worker.write_text(f"#!/bin/sh\ncat {tmp_path}/said\nexec sleep 5\n")
    worker.chmod(0o755)
    (gone,) = gone_of(worker)
    assert (0, told) == (gone["key"], gone["exit"])


def test_worker_that_is_killed_while_its_child_holds_its_pipes_is_gone_at_once(tmp_path: Path) -> None:
    """No pipe tells its end; silence would, much later."""
    worker = tmp_path / "python"
    worker.write_text("#!/bin/sh\nsleep 4 &\nkill -9 $$\n")
    worker.chmod(0o755)
    began = time.monotonic()
    (gone,) = gone_of(worker)
    assert time.monotonic() - began < 3.5
    assert "SIGKILL" in gone["exit"]


def gone_of(worker: Path) -> list[dict[str, Any]]:
    """What the hub hears of the end of a worker under this interpreter."""
    room = Room("col.launch", LAUNCH, until="col.gone")
    room.result(str(worker))
    return [body for kind, body in room.heard if kind == "col.gone"]
