"""Hubs, members and strangers of the tests: real sockets on this machine."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager
from typing import Any, Callable, ClassVar, Dict, Iterator, List, Optional

from envaudit.control import codec
from envaudit.control.client import Client, connect
from envaudit.control.hub import Event, Hub, listen

TOKEN = b"a token of the tests"


@contextmanager
def hub_of(expected: int, token: bytes = TOKEN, host: str = "127.0.0.1") -> Iterator[Hub]:
    """A hub at a free port, which the test itself keeps going by `join` and `poll`."""
    hub = Hub(listen(host, 0), expected, token)
    try:
        yield hub
    finally:
        hub.close(0.2)


def port_of(hub: Hub) -> int:
    """Where it listens."""
    return int(hub._listener.getsockname()[1])


@contextmanager
def members_of(hub: Hub, indices: List[int], token: bytes = TOKEN) -> Iterator[Dict[int, Client]]:
    """Members that have joined, while the test runs."""
    clients = join_all(hub, indices, token)
    try:
        yield clients
    finally:
        for client in clients.values():
            client.close(0)


def join_all(hub: Hub, indices: List[int], token: bytes = TOKEN) -> Dict[int, Client]:
    """Have members of those numbers join, and wait for it."""
    clients: Dict[int, Client] = {}

    def come(index: int) -> None:
        clients[index] = connect(
            "127.0.0.1", port_of(hub), token, index, f"node{index:02d}", {"n": index}, 20
        )

    threads = [threading.Thread(target=come, args=(index,)) for index in indices]
    for thread in threads:
        thread.start()
    until(hub, lambda: all(index in hub.members for index in indices), joining=True)
    for thread in threads:
        thread.join(20)
    assert sorted(indices) == sorted(clients)
    return clients


def until(hub: Hub, reached: Callable[[], bool], seconds: float = 20, joining: bool = False) -> List[Event]:
    """Keep a hub going until something is so; what happened meanwhile."""
    deadline = time.monotonic() + seconds
    events: List[Event] = []
    while not reached():
        assert time.monotonic() < deadline, "it never came to that"
        if joining:
            hub.join(0.01)
        else:
            events += hub.poll(0.01)
    return events


def left(hub: Hub, index: int) -> str:
    """Keep a hub going until a member has left; why it says it has."""
    until(hub, lambda: hub.members[index].left != "")
    return hub.members[index].left


class Stranger:
    """A connection that says whatever a test wants it to, sound or not."""

    opened: ClassVar[List[socket.socket]] = []

    def __init__(self, hub: Hub, token: bytes = TOKEN) -> None:
        self.hub = hub
        self.token = token
        self.socket = socket.create_connection(("127.0.0.1", port_of(hub)), 10)
        self.opened.append(self.socket)
        self.socket.setblocking(False)
        self.heard = b""
        self.sealer: Optional[codec.Sealer] = None
        self.opener: Optional[codec.Opener] = None

    def say(self, data: bytes) -> None:
        """Send bytes, while the hub takes them."""
        at = 0
        deadline = time.monotonic() + 20
        while at < len(data) and time.monotonic() < deadline:
            try:
                at += self.socket.send(data[at : at + 65536])
            except BlockingIOError:
                pass
            except OSError:
                return
            self.listen()

    def listen(self) -> bool:
        """Take what the hub says; whether the connection still is."""
        # As while the hub still waits for others.
        self.hub._begun = False
        self.hub._turn(0)
        try:
            data = self.socket.recv(65536)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.heard += data
        return data != b""

    def ended(self, seconds: float = 10) -> bool:
        """Whether the hub ends it."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not self.listen():
                return True
            time.sleep(0.001)
        return False

    def greet(self) -> None:
        """Exchange greetings: from then on it has a key."""
        ours = codec.Greeting(codec.VERSION, False, bool(self.token), b"n" * codec.NONCE_BYTES)
        self.say(ours.to_bytes())
        deadline = time.monotonic() + 10
        while len(self.heard) < codec.GREETING_BYTES and time.monotonic() < deadline:
            self.listen()
        theirs = codec.greeting_of(self.heard[: codec.GREETING_BYTES])
        assert theirs is not None
        key = codec.key_of(self.token, ours.nonce, theirs.nonce)
        self.heard = b""
        self.sealer = codec.Sealer(key, codec.TO_HUB)
        self.opener = codec.Opener(key, codec.TO_MEMBER, codec.MAX_TO_MEMBER_BYTES)

    def frame(self, kind: str, body: Any) -> bytes:
        """The next frame in its key."""
        assert self.sealer is not None
        return b"".join(self.sealer.seal(kind, codec.encode_body(body, 1 << 30)))

    def raw_frame(self, payload: bytes) -> bytes:
        """The next frame in its key, whatever its JSON is."""
        assert self.sealer is not None
        return sealed(self.sealer, payload)

    def messages(self, wanted: int, seconds: float = 10) -> List[codec.Message]:
        """What the hub has said, at least so much of it."""
        assert self.opener is not None
        deadline = time.monotonic() + seconds
        found: List[codec.Message] = []
        while len(found) < wanted and time.monotonic() < deadline:
            self.listen()
            self.opener.feed(self.heard)
            self.heard = b""
            message = self.opener.next()
            while message is not None:
                found.append(message)
                message = self.opener.next()
        assert len(found) >= wanted, (found, self.opener.error)
        return found

    def join(self, index: int) -> None:
        """Become a member as the rules are."""
        from envaudit.control.clocks import pong

        self.greet()
        self.say(self.frame("_join", index))
        assert "_welcome" == self.messages(1)[0].kind
        self.say(self.frame("_hello", [f"node{index:02d}", {}]))
        while True:
            (message,) = self.messages(1)
            if message.kind == "_joined":
                return
            self.say(self.frame("_pong", pong(message.body)))

    def close(self) -> None:
        """Go without a word."""
        self.socket.close()


def sealed(sealer: codec.Sealer, payload: bytes) -> bytes:
    """A frame around any bytes, with the HMAC that its receiver expects next."""
    mac = sealer._mac.copy()
    mac.update(sealer._sequence.to_bytes(8, "big"))
    mac.update(payload)
    sealer._sequence += 1
    return len(payload).to_bytes(4, "big") + payload + mac.digest()
