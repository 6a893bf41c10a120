"""A member's way in: the handshake of `link`, from its other end."""

from __future__ import annotations

import os
import select
import socket
import time
from typing import Any, Callable, Dict, NamedTuple, NoReturn, Optional

from envaudit.control import codec, link
from envaudit.control.clocks import pong
from envaudit.control.failures import REFUSALS, HubRefused
from envaudit.control.listening import Address
from envaudit.control.stream import Stream

# One try to connect, to a host that drops packets or whatever else may listen there.
_TRY_S = 5.0
_SILENT = "what listens there does not answer as a hub"
_FOREIGN = "something else than a hub listens there"


class NotAHub(OSError):
    """Whoever listens there has answered, or hung up, as a hub never does."""


class Joined(NamedTuple):
    """A connection to a hub of which this process is a member now."""

    stream: Stream
    sealer: codec.Sealer
    opener: codec.Opener


def join(
    address: Address, port: int, token: bytes, index: int, facts: bytes, seconds: float, where: str
) -> Joined:
    """One try at one address.

    Args:
        address: of the hub.
        port: its port.
        token: what the hub knows too.
        index: this member's number.
        facts: JSON of its node's name and its first facts.
        seconds: how long to try; one that has not said that it is a hub is given up before.
        where: the hub in words.

    Raises:
        HubRefused: a hub answered, and does not take this member.
        NotAHub: something else answered.
        OSError: anything else.
    """
    deadline = time.monotonic() + seconds
    sock = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        sock.settimeout(min(seconds, _TRY_S))
        sock.connect((address.sockaddr[0], port, *address.sockaddr[2:]))
        handshake = Handshake(Stream(sock), token, index, facts, where)
        given_up = min(deadline, time.monotonic() + _TRY_S)
        while not handshake.done:
            # A hub that a thousand join at once may take its time.
            handshake.step((deadline if handshake.greeted else given_up) - time.monotonic())
        return handshake.joined()
    except BaseException:
        sock.close()
        raise


class Handshake:
    """What is said until a member is one.

    Attributes:
        done: whether it is one.
    """

    def __init__(self, stream: Stream, token: bytes, index: int, facts: bytes, where: str) -> None:
        self.done = False
        self._stream = stream
        self._token = token
        self._index = index
        self._facts = facts
        self._where = where
        self._nonce = os.urandom(codec.NONCE_BYTES)
        self._theirs: Optional[codec.Greeting] = None
        self._greeting = b""
        self._sealer: codec.Sealer
        self._opener: codec.Opener
        # Before the hub's first word: it may refuse under a key without the token.
        self._open_opener: Optional[codec.Opener] = None
        self._steps: Dict[str, Callable[[Any], None]] = {
            "_welcome": self._welcome,
            "_ping": self._ping,
            "_joined": self._joined,
            "_refused": self._refused,
        }
        stream.put([codec.Greeting(codec.VERSION, False, bool(token), self._nonce).to_bytes()])

    def step(self, seconds: float) -> None:
        """Wait for some bytes, at most so long, and answer them."""
        if seconds <= 0:
            raise OSError(0, _SILENT)
        poller = select.poll()
        events = select.POLLIN | (select.POLLOUT if self._stream.waiting_bytes else 0)
        poller.register(self._stream.socket, events)
        poller.poll(max(1, round(1000 * seconds)))
        self.advance()

    def advance(self) -> None:
        """Answer what has arrived.

        Raises:
            HubRefused: the hub does not take this member.
            OSError: the connection is broken, or it is not one to a hub.
        """
        try:
            self._stream.flush()
            data = self._stream.take()
        except ConnectionError as error:
            # Whoever hangs up on words that it has not read.
            if self.greeted:
                raise
            raise NotAHub(0, _SILENT) from error
        if data == b"":
            raise OSError(0, _SILENT) if self.greeted else NotAHub(0, _SILENT)
        if data and self._theirs is None:
            data = self._greet(data)
        if data:
            self._hear(data)

    @property
    def greeted(self) -> bool:
        """Whether the other side has said that it is a hub."""
        return self._theirs is not None

    def joined(self) -> Joined:
        """What came of it."""
        return Joined(self._stream, self._sealer, self._opener)

    def _greet(self, data: bytes) -> bytes:
        self._greeting += data
        if not codec.may_be_greeting(self._greeting):
            raise NotAHub(0, _FOREIGN)
        if len(self._greeting) < codec.GREETING_BYTES:
            return b""
        self._theirs = theirs = codec.greeting_of(self._greeting[: codec.GREETING_BYTES])
        if theirs is None or not theirs.is_hub:
            raise NotAHub(0, _FOREIGN)
        if theirs.version != codec.VERSION:
            self._refused(link.VERSION)
        key = codec.key_of(self._token, self._nonce, theirs.nonce)
        self._sealer = codec.Sealer(key, codec.TO_HUB)
        self._opener = codec.Opener(key, codec.TO_MEMBER, codec.MAX_JOIN_BYTES)
        self._open_opener = codec.Opener(
            codec.key_of(b"", self._nonce, theirs.nonce), codec.TO_MEMBER, codec.MAX_JOIN_BYTES
        )
        self._say("_join", self._index)
        return self._greeting[codec.GREETING_BYTES :]

    def _hear(self, data: bytes) -> None:
        self._opener.feed(data)
        if self._open_opener is not None:
            self._open_opener.feed(data)
        message = self._opener.next()
        while message is not None:
            self._steps.get(message.kind, self._not_understood)(message.body)
            message = None if self.done else self._opener.next()
        if self._opener.error and self._open_opener is None:
            self._refused(link.PROTOCOL)
        if self._opener.error and self._open_opener is not None:
            told = self._open_opener.next()
            self._refused(told.body if told is not None and told.kind == "_refused" else link.TOKEN)

    def _welcome(self, _: Any) -> None:
        self._open_opener = None
        self._stream.put(self._sealer.seal("_hello", self._facts))

    def _ping(self, word: Any) -> None:
        self._say("_pong", pong(word))

    def _joined(self, _: Any) -> None:
        self._opener.limit_bytes = codec.MAX_TO_MEMBER_BYTES
        self.done = True

    def _refused(self, code: Any) -> NoReturn:
        code = code if isinstance(code, str) and code in REFUSALS else link.PROTOCOL
        advice = {
            link.VERSION: "Run the same envaudit on every node.",
            link.INDEX: "Start as many supervisors as the launcher says there are.",
            link.TAKEN: "Start each supervisor once, or name another port with --hub HOST:PORT.",
        }.get(code, "")
        if code == link.TOKEN:
            theirs = "has one" if self._theirs is not None and self._theirs.has_token else "has none"
            ours = "this supervisor has one" if self._token else "this supervisor has none"
            advice = f"The hub {theirs}, {ours}: set the same ENVAUDIT_TOKEN, or --token-file, everywhere."
        raise HubRefused(code, self._where, advice)

    def _not_understood(self, _: Any) -> None:
        self._refused(link.PROTOCOL)

    def _say(self, kind: str, body: Any) -> None:
        self._stream.put(self._sealer.seal(kind, codec.encode_body(body, codec.MAX_JOIN_BYTES)))
