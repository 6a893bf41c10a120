"""One supervisor among those of a run: the first one runs the hub beside, all are members."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
from typing import Any, Callable, Dict, List

import pytest

from envaudit.control.client import HubLost, HubUnreachable, connect
from envaudit.control.failures import HubPortTaken
from envaudit.control.hub import Hub, listen
from envaudit.control.listening import listen_for_all
from envaudit.control.meeting import Meeting
from envaudit.control.seat import Seat
from envaudit.errors import UsageError
from tests.control.meeting_place import TOKEN


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody has a moment later either, most likely."""
    with listen(host, 0) as listener:
        return int(listener.getsockname()[1])


def conduct(hub: Hub) -> None:
    """Gather one word of each, and tell all of them."""
    missing = hub.join(20)
    words: Dict[int, Any] = {}
    while len(words) + len(missing) < hub.expected:
        words.update({event.index: event.body for event in hub.poll(1) if event.kind == "word"})
    hub.broadcast("words", [missing, [words.get(index) for index in range(hub.expected)]])


def attend(
    seat: Seat, found: Dict[int, Any], how: Callable[[Hub], None] = conduct, token: bytes = TOKEN
) -> None:
    """One supervisor, from its beginning to its end."""
    try:
        with Meeting(seat, token, {"n": seat.index}, 20, how) as meeting:
            meeting.client.send("word", f"of {seat.index}")
            found[seat.index] = meeting.client.poll(20)
    except Exception as error:
        found[seat.index] = error


def meet(host: str, count: int, token: bytes = TOKEN, port: int = 0) -> Dict[int, Any]:
    """What each supervisor got; they begin with the last one."""
    port = port or free_port()
    found: Dict[int, Any] = {}
    threads = [
        threading.Thread(
            target=attend, args=(Seat(index, count, host, port, f"node{index}"), found, conduct, token)
        )
        for index in reversed(range(count))
    ]
    for thread in threads:
        thread.start()
        time.sleep(0.05)
    for thread in threads:
        thread.join(60)
    return found


def hub_threads() -> List[threading.Thread]:
    """Those that are left."""
    return [thread for thread in threading.enumerate() if thread.name == "envaudit hub"]


@pytest.mark.parametrize("token", [TOKEN, b""], ids=["token", "none"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_supervisors_meet_at_a_host(host: str, token: bytes) -> None:
    """By name and by address, IPv4 and IPv6, the first one last."""
    if host == "::1":
        try:
            listen("::1", 0).close()
        except UsageError:
            pytest.skip("no IPv6 here")
    words = [("words", [[], ["of 0", "of 1", "of 2"]])]
    assert {0: words, 1: words, 2: words} == meet(host, 3, token)
    assert [] == hub_threads()


def test_meeting_of_one_is_a_meeting() -> None:
    """A single machine."""
    assert {0: [("words", [[], ["of 0"]])]} == meet("127.0.0.1", 1)


def test_meeting_at_the_machines_own_name_is_one() -> None:
    """Which is 127.0.1.1 on some machines, and has no address on others."""
    found = meet(socket.gethostname(), 1, b"")
    assert {0: [("words", [[], ["of 0"]])]} == found


def test_port_that_is_taken_is_a_wrong_option() -> None:
    """Before anybody waits."""
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        seat = Seat(0, 2, "127.0.0.1", port, "node0")
        began = time.monotonic()
        for token in (TOKEN, b""):
            found: Dict[int, Any] = {}
            attend(seat, found, token=token)
            assert isinstance(found[0], UsageError)
            assert f"port {port} is taken" in str(found[0])
            assert f"--hub 127.0.0.1:{port}" in str(found[0])
            assert TOKEN.decode() not in str(found[0])
        assert time.monotonic() - began < 5


def test_hub_without_a_token_keeps_to_the_address_it_was_told() -> None:
    """Nobody else's network reaches it; with a token every address does."""
    with listen_for_all("127.0.0.1", 0, authenticated=False) as narrow:
        assert "127.0.0.1" == narrow.getsockname()[0]
    with listen_for_all("localhost", 0, authenticated=False) as named:
        assert named.getsockname()[0] in ("127.0.0.1", "::1")
    with listen_for_all("127.0.0.1", 0, authenticated=True) as wide:
        assert wide.getsockname()[0] in ("::", "0.0.0.0")
        socket.create_connection(("127.0.0.1", wide.getsockname()[1]), 5).close()


@pytest.mark.parametrize("host", ["192.0.2.7", "2001:db8::7"])
def test_listening_at_an_address_that_is_not_here_says_so(host: str) -> None:
    """Documentation's own addresses."""
    with pytest.raises(UsageError, match=r"no address of this machine|cannot listen"):
        listen(host, 0)


def test_host_that_does_not_resolve_is_unreachable_within_the_time() -> None:
    """Its name may come late in a cluster, so it is tried until then."""
    began = time.monotonic()
    with pytest.raises(HubUnreachable, match=r"nowhere\.invalid:4711: no hub in 0\.5 s") as caught:
        connect("nowhere.invalid", 4711, TOKEN, 1, "node1", {}, 0.5)
    assert time.monotonic() - began < 3
    assert 3 == caught.value.exit_code
    assert "--hub" in str(caught.value)


@pytest.mark.parametrize("host", ["", "a b", "x" * 300, "\x00", "\udcff"])
def test_host_that_is_no_name_is_unreachable(host: str) -> None:
    """Whatever stands in a launcher's variables."""
    with pytest.raises(HubUnreachable):
        connect(host, 1, TOKEN, 1, "node1", {}, 0.3)


def test_port_where_nobody_listens_is_unreachable_within_the_time() -> None:
    """The reason is the system's."""
    began = time.monotonic()
    with pytest.raises(HubUnreachable, match="Connection refused"):
        connect("127.0.0.1", free_port(), TOKEN, 1, "node1", {}, 0.7)
    assert 0.7 <= time.monotonic() - began < 3


def test_port_where_something_silent_listens_is_unreachable_within_the_time() -> None:
    """It accepts, and says nothing."""
    with listen("127.0.0.1", 0) as silent:
        began = time.monotonic()
        with pytest.raises(HubUnreachable, match="does not answer as a hub"):
            connect("127.0.0.1", silent.getsockname()[1], TOKEN, 1, "node1", {}, 0.7)
        assert time.monotonic() - began < 3


@pytest.mark.parametrize("answer", [b"HTTP/1.0 400 Bad Request\r\n\r\n", b""])
def test_port_that_another_program_keeps_is_given_up_before_the_time(
    answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the code of the first supervisor, which cannot listen there."""
    monkeypatch.setattr("envaudit.control.client._TAKEN_S", 1.0)

    def serve(listener: socket.socket) -> None:
        try:
            while True:
                with listener.accept()[0] as foreign:
                    foreign.sendall(answer)
        except OSError:
            pass

    with listen("127.0.0.1", 0) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        began = time.monotonic()
        with pytest.raises(HubPortTaken, match="this port is taken") as caught:
            connect("127.0.0.1", listener.getsockname()[1], TOKEN, 1, "node1", {}, 30)
        assert 1 <= time.monotonic() - began < 5
        listener.shutdown(socket.SHUT_RDWR)
    assert UsageError.exit_code == caught.value.exit_code
    assert "--hub" in str(caught.value)


def test_hub_that_begins_where_another_program_ends_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last hub of the same job may still be ending."""
    monkeypatch.setattr("envaudit.control.client._TAKEN_S", 5.0)
    foreign = listen("127.0.0.1", 0)
    port = foreign.getsockname()[1]

    def follow() -> None:
        for _ in range(3):
            foreign.accept()[0].close()
        foreign.close()
        with contextlib.closing(Hub(listen("127.0.0.1", port), 1, TOKEN)) as hub:
            assert [] == hub.join(20)
            hub.poll(5)

    thread = threading.Thread(target=follow)
    thread.start()
    connect("127.0.0.1", port, TOKEN, 0, "node0", {}, 20).close()
    thread.join(20)
    assert not thread.is_alive()


def fails(hub: Hub) -> None:
    """Somebody's mistake."""
    hub.join(20)
    raise RuntimeError("no such luck")


def test_mistake_of_who_conducts_is_raised_where_the_hub_runs() -> None:
    """The others learn that the hub has ended."""
    port = free_port()
    found: Dict[int, Any] = {}
    seats = [Seat(index, 2, "127.0.0.1", port, f"node{index}") for index in (1, 0)]
    threads = [threading.Thread(target=attend, args=(seat, found, fails)) for seat in seats]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert isinstance(found[0], RuntimeError)
    assert isinstance(found[1], HubLost)
    assert "the hub has ended" in str(found[1])
    assert [] == hub_threads()


def waits(hub: Hub) -> None:
    """As a run would that never comes to its end."""
    hub.join(60)
    while True:
        hub.poll(60)


def test_leaving_after_an_error_ends_the_hub_at_once() -> None:
    """Whatever is conducted: the thread is gone, the port is free again."""
    port = free_port()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), Meeting(
        Seat(0, 3, "127.0.0.1", port, "node0"), TOKEN, {}, 20, waits
    ):
        raise KeyboardInterrupt
    assert time.monotonic() - began < 5
    assert [] == hub_threads()
    listen("127.0.0.1", port).close()


def test_leaving_lets_the_others_have_their_result() -> None:
    """The first supervisor is through before the last one has read anything."""
    port = free_port()
    seat = Seat(0, 2, "127.0.0.1", port, "node0")
    late: List[Any] = []
    ready = threading.Event()

    def come() -> None:
        with connect("127.0.0.1", port, TOKEN, 1, "node1", {}, 20) as client:
            client.send("word", 1)
            ready.wait(20)
            time.sleep(0.5)
            late.extend(client.poll(10))

    thread = threading.Thread(target=come)
    thread.start()
    with Meeting(seat, TOKEN, {}, 20, conduct) as meeting:
        meeting.client.send("word", 0)
        assert "words" == meeting.client.poll(20)[0][0]
        ready.set()
    thread.join(20)
    assert [("words", [[], [0, 1]])] == late


def test_facts_that_are_too_long_or_none_are_an_error_of_the_caller() -> None:
    """Before anything is sent."""
    for hello in ({"x": "x" * 70_000}, {"x": object()}):
        with pytest.raises(ValueError, match=r"JSON|allowed"):
            connect("127.0.0.1", 1, TOKEN, 0, "node0", hello, 1)


def test_first_node_that_may_not_open_enough_files_says_so() -> None:
    """Its port would be there and answer nobody, who would take it for somebody else's."""
    code = (
        "import os, resource\n"
        "from envaudit.control.meeting import Meeting\n"
        "from envaudit.control.seat import Seat\n"
        "from envaudit.errors import NeededError\n"
        "seat = Seat(index=0, count=8, host='127.0.0.1', port=0, node='n1')\n"
        "few = len(os.listdir('/proc/self/fd')) + 8\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (few, few))\n"
        "try:\n"
        "    Meeting(seat, b'', {}, 5, lambda hub: None).__enter__()\n"
        "except NeededError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert "a hub needs 12 open files more" in done.stdout
    assert "ulimit -n" in done.stdout
