"""Whoever connects and whatever it says: the members that are there go on, and memory has an end."""

from __future__ import annotations

import resource
import socket
import time
from typing import Any, Iterator, List, Tuple, Type

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envaudit.control import codec
from envaudit.control import hub as hub_module
from envaudit.control.client import Client
from envaudit.control.failures import HubRefused
from envaudit.control.hub import Hub, listen
from envaudit.control.joining import Handshake
from envaudit.control.stream import Stream
from tests.control.meeting_place import TOKEN, Stranger, hub_of, join_all, members_of, port_of, until

Place = Tuple[Hub, Client]

# One hub with one member for all examples of a test: none of them may harm it.
HOSTILE = settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def place() -> Iterator[Place]:
    """A hub with its first member; two more are expected and never come."""
    with hub_of(3) as hub, members_of(hub, [0]) as clients:
        yield hub, clients[0]


def goes_on(place: Place) -> bool:
    """Whether the member is heard and hears."""
    hub, client = place
    client.send("echo", "there?")
    events: List[Any] = []
    deadline = time.monotonic() + 10
    while not events and time.monotonic() < deadline:
        events += [event for event in hub.poll(0.1) if event.index == 0]
    assert [("echo", "there?")] == [(event.kind, event.body) for event in events]
    hub.send(0, "echo", "here")
    return client.poll(10) == [("echo", "here")]


@HOSTILE
@given(data=st.binary(max_size=300))
def test_arbitrary_first_bytes_harm_nobody(place: Place, data: bytes) -> None:
    """What scanners, browsers and strays say."""
    hub, _ = place
    stranger = Stranger(hub)
    stranger.say(data)
    stranger.listen()
    assert b"" == stranger.heard
    stranger.close()
    assert goes_on(place)
    assert [0] == sorted(hub.members)


@HOSTILE
@given(data=st.binary(max_size=300))
def test_arbitrary_bytes_after_a_greeting_harm_nobody(place: Place, data: bytes) -> None:
    """Who knows no token gets no further than 256 bytes."""
    hub, _ = place
    stranger = Stranger(hub)
    stranger.greet()
    stranger.say(data)
    stranger.close()
    assert goes_on(place)
    assert [0] == sorted(hub.members)


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["_join", "_hello", "_pong", "_beat", "_bye", "_ping", "_welcome", "word"]),
            st.sampled_from(
                [
                    None,
                    0,
                    1,
                    2,
                    3,
                    True,
                    "x",
                    ["node", {}],
                    ["n" * 300, {}],
                    ["n", []],
                    {"a": [1]},
                    ["", 1, 1],
                ]
            ),
        ),
        st.binary(min_size=1, max_size=60),
    ),
    max_size=6,
)


@HOSTILE
@given(steps=STEPS)
def test_any_sequence_of_sealed_messages_harms_nobody(place: Place, steps: List[Any]) -> None:
    """One that knows the token, and the steps of the handshake in any order, with garbage between."""
    hub, _ = place
    stranger = Stranger(hub)
    stranger.greet()
    for step in steps:
        stranger.say(step if isinstance(step, bytes) else stranger.frame(*step))
    stranger.close()
    assert goes_on(place)
    assert [0] == sorted(hub.members)


@settings(max_examples=25)
@given(data=st.binary(min_size=4, max_size=300))
def test_arbitrary_bytes_of_a_member_cost_itself_alone(data: bytes) -> None:
    """One that has joined, then says something else."""
    with hub_of(2) as hub, members_of(hub, [0]) as clients:
        stranger = Stranger(hub)
        stranger.join(1)
        hub.join(0)
        stranger.say(stranger.frame("word", 1) + b"\xff" + data)
        until(hub, lambda: hub.members[1].left != "")
        stranger.close()
        assert "at most 1048576 are allowed" in hub.members[1].left
        assert goes_on((hub, clients[0]))


def test_handshakes_that_are_interleaved_do_not_mix(place: Place) -> None:
    """Two strangers byte by byte in turn: each is known by its own connection alone."""
    hub, _ = place
    first, second = Stranger(hub), Stranger(hub)
    for stranger in (first, second):
        stranger.greet()
    frames = first.frame("_join", 1), second.frame("_join", 2)
    for at in range(max(map(len, frames))):
        for stranger, frame in zip((first, second), frames):
            stranger.say(frame[at : at + 1])
    assert ["_welcome"] == [message.kind for message in first.messages(1)]
    assert ["_welcome"] == [message.kind for message in second.messages(1)]
    # Frames of one in the other's connection.
    second.say(first.frame("_hello", ["node", {}]))
    assert second.ended()
    assert goes_on(place)


def test_handshake_that_was_recorded_is_refused(place: Place) -> None:
    """The hub's nonce is new in each connection."""
    hub, _ = place
    told = Stranger(hub)
    told.greet()
    join = told.frame("_join", 1)
    told.say(join)
    assert "_welcome" == told.messages(1)[0].kind
    again = Stranger(hub)
    again.greet()
    again.say(join)
    assert again.ended()
    assert "token" == hub.refused.last[-1].code
    for stranger in (told, again):
        stranger.close()
    assert goes_on(place)


def test_message_that_was_recorded_ends_its_member(place: Place) -> None:
    """A replay in the same connection."""
    hub, _ = place
    stranger = Stranger(hub)
    stranger.join(1)
    hub.join(0)
    frame = stranger.frame("word", "once")
    stranger.say(frame)
    stranger.say(frame)
    events = until(hub, lambda: hub.members[1].left != "") + hub.poll(0)
    assert ["once"] == [event.body for event in events if event.kind == "word"]
    assert "repeated" in hub.members[1].left
    stranger.close()
    assert goes_on(place)


def test_stranger_gets_no_more_memory_than_its_first_message(place: Place) -> None:
    """A long one is refused by its length, before anything of it is kept."""
    hub, _ = place
    stranger = Stranger(hub, b"another token of the tests")
    stranger.greet()
    stranger.say((codec.MAX_JOIN_BYTES + 1).to_bytes(4, "big") + b"x" * 100_000)
    assert stranger.ended()
    assert 0 == hub._partial_bytes
    assert "257 bytes" in hub.refused.last[-1].why
    stranger.close()


def test_facts_beyond_their_limit_are_refused(place: Place) -> None:
    """64 KiB before a member is one, whatever it knows."""
    hub, _ = place
    stranger = Stranger(hub)
    stranger.greet()
    stranger.say(stranger.frame("_join", 1))
    stranger.messages(1)
    stranger.say(stranger.frame("_hello", ["node", {"x": "x" * codec.MAX_HELLO_BYTES}]))
    assert stranger.ended()
    assert [0] == sorted(hub.members)
    assert goes_on(place)
    stranger.close()


def test_idle_connections_are_ended_and_nobody_waits_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silent from the beginning, after half a greeting, after the greeting, after half a message."""
    monkeypatch.setattr(hub_module, "STRANGER_S", 1.0)
    with hub_of(2) as hub:
        strangers = [Stranger(hub) for _ in range(4)]
        strangers[1].say(b"envau")
        for stranger in strangers[2:]:
            stranger.greet()
        strangers[3].say(strangers[3].frame("_join", 1)[:20])
        began = time.monotonic()
        clients = join_all(hub, [0, 1])
        assert time.monotonic() - began < 1
        for stranger in strangers:
            assert stranger.ended()
            stranger.close()
        assert {"foreign": 4} == hub.refused.counts
        assert set() == hub._strangers
        for client in clients.values():
            client.close(0)


def test_port_scanners_are_forgotten(place: Place) -> None:
    """They connect and go, with and without a reset."""
    hub, _ = place
    for number in range(40):
        sock = socket.create_connection(("127.0.0.1", port_of(hub)), 10)
        if number % 2:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        sock.close()
    assert goes_on(place)
    until(hub, lambda: not hub._strangers)
    assert len(hub.refused.last) <= 16


def test_thousand_connections_of_one_host_are_bounded_and_members_still_join() -> None:
    """The oldest of that host is ended for each new one; files are not used up."""
    with hub_of(2) as hub:
        most, crowd = 0, []
        for _ in range(1000):
            sock = socket.create_connection(("127.0.0.1", port_of(hub)), 10)
            crowd.append(sock)
            hub.join(0)
            most = max(most, len(hub._strangers))
            if len(crowd) > 300:
                crowd.pop(0).close()
        assert most <= 2 + hub_module.SPARE_STRANGERS
        clients = join_all(hub, [0, 1])
        assert goes_on((hub, clients[0]))
        for each in [*crowd, *clients.values()]:
            each.close()


def test_hub_without_descriptors_waits_for_some_without_spinning() -> None:
    """Members that are there go on; who comes when there are some again joins."""
    with hub_of(2) as hub, members_of(hub, [0]) as clients:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        probe = socket.socket()
        next_free = probe.fileno()
        probe.close()
        waiting = socket.socket()
        waiting.setblocking(False)
        resource.setrlimit(resource.RLIMIT_NOFILE, (waiting.fileno() + 1, hard))
        try:
            assert next_free <= waiting.fileno()
            waiting.connect_ex(("127.0.0.1", port_of(hub)))
            began_s = time.process_time()
            assert [] == hub.poll(1)
            assert time.process_time() - began_s < 0.3
            assert goes_on((hub, clients[0]))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            waiting.close()
        other = join_all(hub, [1])
        other[1].close(0)


def test_member_of_another_version_is_refused_and_learns_the_hubs(place: Place) -> None:
    """The greeting is understood for good."""
    hub, _ = place
    stranger = Stranger(hub)
    stranger.say(codec.Greeting(9, False, True, b"n" * codec.NONCE_BYTES).to_bytes())
    assert stranger.ended()
    theirs = codec.greeting_of(stranger.heard)
    assert theirs is not None
    assert codec.VERSION == theirs.version
    assert "version" == hub.refused.last[-1].code


HUB = codec.Greeting(codec.VERSION, True, True, b"n" * codec.NONCE_BYTES)


@pytest.mark.parametrize(
    ("said", "error", "words"),
    [
        (HUB._replace(version=9).to_bytes(), HubRefused, "another version of envaudit"),
        (HUB._replace(is_hub=False).to_bytes(), OSError, "something else"),
        (b"SSH-2.0-OpenSSH_9.2p1", OSError, "something else"),
        (HUB.to_bytes() + b"x" * 80, HubRefused, "token"),
        (HUB.to_bytes() + b"\0\0\0\2", OSError, "does not answer as a hub"),
        (b"", OSError, "does not answer as a hub"),
    ],
    ids=["version", "a member", "ssh", "garbage", "half a message", "nothing"],
)
def test_member_that_meets_no_hub_of_its_own_says_what_it_met(
    said: bytes, error: Type[Exception], words: str
) -> None:
    """Whatever listens at the port, it is left within the time."""
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()) as ours:
        theirs, _ = listener.accept()
        with theirs:
            theirs.send(said)
            with pytest.raises(error, match=words):
                shake_hands(ours)


def shake_hands(sock: socket.socket) -> None:
    """A member's handshake, for half a second."""
    handshake = Handshake(Stream(sock), TOKEN, 0, b"[]", "hub:1")
    for left_s in (0.3, 0.2, 0):
        handshake.step(left_s)
