"""The hub's side of a run against members that say what they must not, or nothing."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from envaudit.checks.collectives.coordinator import Coordinator
from envaudit.checks.collectives.items import CollectivePlan
from envaudit.checks.collectives.layout import Layout, Limits
from envaudit.control.client import Client, connect
from envaudit.control.failures import HubRefused
from envaudit.control.hub import Hub
from envaudit.control.listening import listen

ADDRESSES = {"before_s": 0, "own": "127.0.0.1", "hub": "127.0.0.1"}
LIMITS = Limits(join_s=2.0, start_s=5.0, stall_s=1.5, total_s=10.0, door_s=0.5)


class Pair:
    """Two members that the test speaks for, and the result of the run that is conducted over them."""

    def __init__(self) -> None:
        listener = listen("127.0.0.1", 0)
        self.port = listener.getsockname()[1]
        self.hub = Hub(listener, 2)
        self.result: dict[str, Any] = {}
        self.others: list[tuple[int, str]] = []
        self.thread = threading.Thread(target=self._conduct, daemon=True)
        self.thread.start()
        self.clients: list[Client] = [
            connect("127.0.0.1", self.port, b"", index, f"n{index}", {}, 5.0) for index in range(2)
        ]
        self.beating = set(range(2))
        self.heard: list[list[tuple[str, Any]]] = [[], []]

    def _conduct(self) -> None:
        missing = self.hub.join(5.0)
        coordinator = Coordinator(self.hub, CollectivePlan(), LIMITS)
        self.result = coordinator.run(missing)
        self.others = [(event.index, event.kind) for event in coordinator.others]

    def here(self, index: int, **changes: Any) -> None:
        """A sound first word."""
        body = {
            "facts": {},
            "layout": Layout().to_json(),
            "before_s": 0,
            "own": "127.0.0.1",
            "hub": "127.0.0.1",
        }
        self.clients[index].send("col.here", {**body, **changes})

    def go_on(self, seconds: float) -> None:
        """Lets members beat and listen for so long, or until the result is there."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends and not self.result:
            for index in self.beating:
                for kind, body in self.clients[index].poll(0.02):
                    self.heard[index].append((kind, body))
                    if kind == "col.clear":
                        self.clients[index].send("col.cleared", body)
                    elif kind == "col.result":
                        self.clients[index].send("col.bye", {})
                self.clients[index].beat()

    def until(self, index: int, kind: str) -> Any:
        """Likewise until a member has heard that; its body."""
        ends = time.monotonic() + 5
        while not any(kind == each for each, _ in self.heard[index]):
            assert time.monotonic() < ends
            self.go_on(0.05)
        return next(body for each, body in self.heard[index] if each == kind)

    def close(self) -> None:
        """Ends all of it."""
        for client in self.clients:
            client.close(0.2)
        self.thread.join(10)
        self.hub.close(0.2)


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two members at a hub of the loopback interface."""
    pair = Pair()
    yield pair
    pair.close()


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("col.here", None),
        ("col.here", {"facts": [], "layout": {}, "before_s": 0}),
        ("col.here", {"facts": {}, "layout": {**Layout().to_json(), "local_ranks": 10**9}, "before_s": 0}),
        ("col.here", {"facts": {"gpus": 5}, "layout": Layout(devices=("cuda:0",)).to_json(), **ADDRESSES}),
        ("col.here", {"facts": {}, "layout": {**Layout().to_json(), "devices": ["cuda:x"]}, **ADDRESSES}),
        ("col.here", {"facts": {}, "layout": Layout().to_json(), **ADDRESSES, "own": "a host\0"}),
        ("col.door", {"port": "x", "stores": 3}),
        ("col.door", {"port": 65536, "stores": []}),
        ("col.unable", {}),
        ("col.tried", {"failed": [1]}),
    ],
)
def test_member_that_says_what_no_supervisor_says_is_lost_and_named(pair: Pair, kind: str, body: Any) -> None:
    """The run ends, the hub does not fail."""
    pair.here(0)
    pair.clients[1].send(kind, body)
    pair.go_on(4)
    ended = pair.result["ended"]
    assert ("lost", ["n1"]) == (ended["kind"], ended["nodes"])
    assert kind in ended["text"]


def test_member_that_never_says_who_it_is_is_named_after_the_time_to_join(pair: Pair) -> None:
    """Though it beats."""
    pair.here(0)
    began = time.monotonic()
    pair.go_on(6)
    assert LIMITS.join_s - 0.5 < time.monotonic() - began < LIMITS.join_s + 3
    assert ("stuck", ["n1"]) == (pair.result["ended"]["kind"], pair.result["ended"]["nodes"])
    assert [{}] * 2 == [body for kind, body in pair.heard[1] if kind == "col.who"][:2]


def test_member_that_has_another_token_is_told_with_its_address_where_one_is_missing() -> None:
    """Its node is up and its process runs: what is wrong with it is what the others have to know."""
    listener = listen("127.0.0.1", 0)
    with ThreadPoolExecutor(1) as pool:
        hub = Hub(listener, 2, b"0123456789abcdef")
        joining = pool.submit(hub.join, 2.0)
        port = listener.getsockname()[1]
        with pytest.raises(HubRefused):
            connect("127.0.0.1", port, b"fedcba9876543210", 1, "n1", {}, 5.0)
        with socket.create_connection(("127.0.0.1", port)) as scanner:
            scanner.sendall(b"GET / HTTP/1.0\r\n\r\n")
        missing = joining.result()
    result = Coordinator(hub, CollectivePlan(), LIMITS).run(missing)
    hub.close(0.2)
    assert "missing: 0, 1; refused: 127.0.0.1 (another token)" in result["ended"]["text"]


def test_member_that_falls_silent_before_any_worker_is_named(pair: Pair) -> None:
    """Its connection stands."""
    pair.here(0)
    pair.here(1)
    pair.until(1, "col.go")
    pair.clients[0].send("col.prepared", {})
    pair.beating = {0}
    began = time.monotonic()
    pair.go_on(6)
    assert time.monotonic() - began < LIMITS.stall_s + 2
    assert ("silent", ["n1"]) == (pair.result["ended"]["kind"], pair.result["ended"]["nodes"])


def test_member_that_wants_a_day_for_its_own_work_has_as_long_as_the_first_one_has(pair: Pair) -> None:
    """It beats, and would keep all of them waiting."""
    pair.here(0, before_s=1)
    pair.here(1, before_s=86400)
    pair.until(0, "col.go")
    pair.clients[0].send("col.prepared", {})
    began = time.monotonic()
    pair.go_on(8)
    assert time.monotonic() - began < 6
    assert ("stuck", ["n1"]) == (pair.result["ended"]["kind"], pair.result["ended"]["nodes"])


def test_port_between_two_nodes_that_is_shut_names_both(pair: Pair) -> None:
    """The firewall may be the one's that is not reached, or the other's."""
    for index in range(2):
        pair.here(index)
    for index in range(2):
        pair.until(index, "col.go")
        pair.clients[index].send("col.prepared", {})
    for index in range(2):
        pair.until(index, "col.door")
        pair.clients[index].send("col.door", {"port": pair.port, "stores": [1]})
    for index, failed in enumerate(({}, {"0": "no answer in 0.5 s"})):
        pair.until(index, "col.try")
        pair.clients[index].send("col.tried", {"failed": failed})
    pair.go_on(4)
    ended = pair.result["ended"]
    assert ("unreachable", [0, 1], ["n0", "n1"]) == (ended["kind"], ended["ranks"], ended["nodes"])
    assert "n1 cannot reach n0" in ended["text"]


def test_member_that_leaves_early_is_told_so_in_words(pair: Pair) -> None:
    """Somebody ended its command."""
    pair.here(0)
    pair.clients[1].close(0.5)
    pair.beating = {0}
    pair.go_on(4)
    ended = pair.result["ended"]
    assert ("lost", ["n1"]) == (ended["kind"], ended["nodes"])
    assert "it left before the end" in ended["text"]


def launched_at(pair: Pair) -> Any:
    """Goes as far as the launch of workers; the order to the second member."""
    for index in range(2):
        pair.here(index)
    for index in range(2):
        pair.until(index, "col.go")
        pair.clients[index].send("col.prepared", {})
    for _ in range(2):
        for index in range(2):
            pair.until(index, "col.door")
            pair.heard[index] = []
            pair.clients[index].send("col.door", {"port": pair.port, "stores": [1]})
        if _ == 0:
            for index in range(2):
                pair.until(index, "col.try")
                pair.clients[index].send("col.tried", {"failed": {}})
    return pair.until(1, "col.launch")


@pytest.mark.parametrize(
    "line",
    [
        {"outcomes": [{"item": "barrier", "status": "ok"}]},
        {"outcomes": [{"item": {}, "status": "wrong"}]},
        {"outcomes": 7},
        {"matrix": {"wrong": {"x": 1}, "compared": 1}},
        {"matrix": [1]},
        {"device": "cpu"},
        {"ready": "soon"},
    ],
)
def test_member_whose_worker_tells_what_none_tells_is_lost(pair: Pair, line: Any) -> None:
    """What the hub cannot reckon with ends with its name, not with the hub."""
    launched = launched_at(pair)
    pair.clients[1].send("col.said", {"round": launched["round"], "key": 1, "lines": [line]})
    pair.go_on(4)
    pair.thread.join(5)
    ended = pair.result["ended"]
    assert ("lost", [1], ["n1"]) == (ended["kind"], ended["ranks"], ended["nodes"])
    # It is told, too, as long as it is there.
    assert pair.result == pair.until(1, "col.result")


def test_member_that_has_no_port_left_is_named_with_its_reason(pair: Pair) -> None:
    """It says why it leaves."""
    pair.here(0)
    pair.here(1)
    pair.until(1, "col.go")
    pair.clients[1].send("col.unable", {"why": "it has no socket or file left: Too many open files"})
    pair.go_on(4)
    ended = pair.result["ended"]
    assert ("lost", ["n1"]) == (ended["kind"], ended["nodes"])
    assert "Too many open files" in ended["text"]


def test_member_that_speaks_of_a_rank_that_is_not_its_own_is_lost(pair: Pair) -> None:
    """Its word would end another node's run."""
    launched = launched_at(pair)
    gone = {"round": launched["round"], "key": 0, "exit": "ended", "aborted": False, "stderr": ""}
    pair.clients[1].send("col.gone", gone)
    pair.go_on(4)
    ended = pair.result["ended"]
    assert ("lost", [1], ["n1"]) == (ended["kind"], ended["ranks"], ended["nodes"])


def test_words_that_are_for_somebody_else_are_kept_for_him(pair: Pair) -> None:
    """A run is one part of a meeting."""
    pair.clients[1].send("gate.facts", {"a": 1})
    pair.here(0)
    pair.clients[1].send("col.here", None)
    pair.go_on(4)
    pair.thread.join(5)
    assert (1, "gate.facts") in pair.others


def test_member_that_talks_to_somebody_else_without_end_fills_no_memory(pair: Pair) -> None:
    """A few words are kept, and that it has left."""
    for number in range(200):
        pair.clients[1].send("gate.facts", {"number": number})
    pair.here(0)
    pair.clients[1].send("col.here", None)
    pair.go_on(4)
    pair.thread.join(5)
    assert 1 <= pair.others.count((1, "gate.facts")) <= 16
