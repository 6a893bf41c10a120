"""A hub's end of one connection, from a stranger's first byte to the messages of a member.

    member                                hub
    greeting with its nonce         ->
                                    <-    greeting with the hub's nonce
    _join index       (256 bytes)   ->
                                    <-    _welcome, or _refused
    _hello node, facts (64 KiB)     ->
                                    <-    _ping, three to eight times
    _pong                           ->
                                    <-    _joined

The member proves the token first: who merely connects gets nothing to guess at. What it may send grows
as it proves more.
"""

from __future__ import annotations

import os
import time
from typing import Any, Callable, Dict, List, Optional

from envaudit.control import codec
from envaudit.control.clocks import Pings
from envaudit.control.member import Member
from envaudit.control.stream import Stream

# Why a hub refuses: what the member says about it is its own words, never the hub's.
FOREIGN = "foreign"
VERSION = "version"
TOKEN = "token"  # noqa: S105
INDEX = "index"
TAKEN = "taken"
LATE = "late"
ENDED = "ended"
PROTOCOL = "protocol"

MAX_NODE_CHARACTERS = 253


class Refused(Exception):
    """This connection is to be ended.

    Attributes:
        code: one of the above.
        why: for the record of the hub.
    """

    def __init__(self, code: str, why: str) -> None:
        super().__init__(why)
        self.code = code
        self.why = why


class Link:
    """One connection of a hub.

    Attributes:
        stream: its socket.
        born: monotonic time of its beginning.
        index: whose it says it is, -1 before it has proved the token.
        node: likewise the node's name.
        hello: likewise its first facts.
        pings: what is known of its clock.
        joined: whether all of the above is done.
        host: where it comes from.
        said_at: monotonic time of the last message to it.
        partial_since: since when a message is half here, 0 where none is.
        watched: what the hub's selector watches.
        closed: whether it is over.
    """

    def __init__(self, stream: Stream, token: bytes, admit: Callable[[int], None], pings: Pings) -> None:
        """Begin.

        Args:
            stream: the connection, just accepted.
            token: what a member must know.
            admit: raises `Refused` where there is no place for this index.
            pings: what measures its clock.
        """
        self.stream = stream
        self.born = time.monotonic()
        self.index = -1
        self.node = ""
        self.hello: Dict[str, Any] = {}
        self.pings = pings
        self.joined = False
        self.said_at = self.born
        self.partial_since = 0.0
        self.watched = 0
        self.closed = False
        self.host = stream.address.rpartition(":")[0]
        self._token = token
        self._admit = admit
        self._greeting = bytearray()
        self._sealer: Optional[codec.Sealer] = None
        self._opener: Optional[codec.Opener] = None
        self._step = self._join

    def hear(self, data: bytes) -> List[codec.Message]:
        """Take what has arrived; what a member says to the hub's caller or about itself.

        Raises:
            Refused: this connection is at fault.
            OSError: it is broken.
        """
        if self._opener is None:
            data = self._greet(data)
            if self._opener is None:
                return []
        self._opener.feed(data)
        heard = []
        message = self._opener.next()
        while message is not None:
            if self.joined:
                heard.append(message)
            else:
                self._step(message)
            message = self._opener.next()
        if not self._opener.partial_bytes:
            self.partial_since = 0.0
        elif heard or not self.partial_since:
            self.partial_since = time.monotonic()
        if self._opener.error and not heard:
            raise Refused(PROTOCOL if self.index >= 0 else TOKEN, self._opener.error)
        return heard

    def member(self) -> Member:
        """Who this is, once it has joined."""
        return Member(
            index=self.index,
            node=self.node,
            hello=self.hello,
            address=self.stream.address,
            heard_at=time.monotonic(),
            offset_ns=self.pings.offset_ns,
            bound_ns=self.pings.bound_ns,
        )

    @property
    def error(self) -> str:
        """What is wrong with what has arrived, "" where nothing is."""
        return self._opener.error if self._opener is not None else ""

    @property
    def partial_bytes(self) -> int:
        """How much of a message has arrived that is not whole."""
        return self._opener.partial_bytes if self._opener is not None else len(self._greeting)

    def say(self, kind: str, body: bytes) -> None:
        """Send a message whose body is JSON already.

        Raises:
            OSError: the connection is broken.
        """
        assert self._sealer is not None
        self.said_at = time.monotonic()
        self.stream.put(self._sealer.seal(kind, body))

    def refuse(self, code: str) -> None:
        """Tell the other side why, as far as it can be told.

        A stranger gets it under a key without the token: nothing to guess the token by.
        """
        if self._opener is None or code == FOREIGN:
            return
        sealer = self._sealer if self.index >= 0 else self._open_sealer
        assert sealer is not None
        self.stream.put(sealer.seal("_refused", codec.encode_body(code, codec.MAX_JOIN_BYTES)))

    def _greet(self, data: bytes) -> bytes:
        """The other side's greeting, answered; what came after it."""
        wanted = codec.GREETING_BYTES - len(self._greeting)
        self._greeting += data[:wanted]
        if not codec.may_be_greeting(bytes(self._greeting)):
            raise Refused(FOREIGN, "not a member's greeting")
        if len(self._greeting) < codec.GREETING_BYTES:
            return b""
        theirs = codec.greeting_of(bytes(self._greeting))
        if theirs is None or theirs.is_hub:
            raise Refused(FOREIGN, "not a member's greeting")
        ours = codec.Greeting(codec.VERSION, True, bool(self._token), os.urandom(codec.NONCE_BYTES))
        self.stream.put([ours.to_bytes()])
        if theirs.version != codec.VERSION:
            raise Refused(VERSION, f"version {theirs.version} of the messages, here it is {codec.VERSION}")
        key = codec.key_of(self._token, theirs.nonce, ours.nonce)
        self._sealer = codec.Sealer(key, codec.TO_MEMBER)
        self._open_sealer = codec.Sealer(codec.key_of(b"", theirs.nonce, ours.nonce), codec.TO_MEMBER)
        self._opener = codec.Opener(key, codec.TO_HUB, codec.MAX_JOIN_BYTES)
        return data[wanted:]

    def _join(self, message: codec.Message) -> None:
        if message.kind != "_join" or type(message.body) is not int:
            raise Refused(PROTOCOL, "something before its index")
        self._admit(message.body)
        self.index = message.body
        self._limit(codec.MAX_HELLO_BYTES)
        self.say("_welcome", b"null")
        self._step = self._first_facts

    def _first_facts(self, message: codec.Message) -> None:
        body = message.body
        if message.kind != "_hello" or not isinstance(body, list) or len(body) != 2:
            raise Refused(PROTOCOL, "something before its first facts")
        node, hello = body
        if not isinstance(node, str) or len(node) > MAX_NODE_CHARACTERS or not isinstance(hello, dict):
            raise Refused(PROTOCOL, "first facts that are none")
        self.node, self.hello = node, hello
        self._limit(codec.MAX_JOIN_BYTES)
        self._step = self._clock
        self._ping()

    def _clock(self, message: codec.Message) -> None:
        if message.kind != "_pong" or not self.pings.pong(message.body):
            raise Refused(PROTOCOL, "something else than the answer to a ping")
        if not self.pings.done:
            self._ping()
            return
        # Somebody else may have come under this index meanwhile.
        self._admit(self.index)
        self._limit(codec.MAX_TO_HUB_BYTES)
        self.joined = True
        self.say("_joined", b"null")

    def _ping(self) -> None:
        self.say("_ping", codec.encode_body(self.pings.ping(), codec.MAX_JOIN_BYTES))

    def _limit(self, limit_bytes: int) -> None:
        assert self._opener is not None
        self._opener.limit_bytes = limit_bytes
