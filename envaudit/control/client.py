"""A member's end: joins a hub within a time, then says and hears, without ever waiting for more.

with connect(host, port, token, index, node, hello, seconds=60) as client:
    client.send("outcome", {...})
    for kind, body in client.poll(0.25): ...
"""

from __future__ import annotations

import random
import select
import time
from types import TracebackType
from typing import Any, List, Mapping, NoReturn, Optional, Tuple, Type

from envaudit.control import codec
from envaudit.control.clocks import pong
from envaudit.control.failures import REFUSALS, HubLost, HubPortTaken, HubRefused, HubUnreachable
from envaudit.control.joining import Joined, NotAHub, join
from envaudit.control.listening import NoAddress, addresses_of
from envaudit.control.stream import in_words

__all__ = ["BEAT_S", "SILENCE_S", "Client", "HubLost", "HubRefused", "HubUnreachable", "connect"]

# A hub that says nothing for so long (it beats each second) has stopped, or its machine has.
SILENCE_S = 20.0

BEAT_S = 0.5
_MAX_UNSENT_BYTES = 16 * codec.MAX_TO_HUB_BYTES
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 0.5
_GOODBYE_S = 2.0
# What answers otherwise than a hub at every try for so long has that port for good: a hub that is just
# ending, or a program that looks for a free port, is gone before.
_TAKEN_S = 15.0


def connect(
    host: str,
    port: int,
    token: bytes,
    index: int,
    node: str,
    hello: Mapping[str, Any],
    seconds: float,
) -> Client:
    """Join the hub at an address, which may begin to listen later than this begins to try.

    Args:
        host: a name, which is looked up anew until it has an address, or an address.
        port: its port.
        token: what the hub knows too; b"" where it has none.
        index: this member's number, from 0.
        node: this node's name.
        hello: first facts, JSON, at most 64 KiB with the name.
        seconds: how long to try.

    Raises:
        HubUnreachable: no hub answered in time.
        HubPortTaken: something else did, again and again; before the time is over.
        HubRefused: it answered, and does not take this member.
        ValueError: the facts are no JSON or too long.
    """
    facts = codec.encode_body([node, dict(hello)], codec.MAX_HELLO_BYTES - 64)
    where = in_words(host, port)
    deadline = time.monotonic() + seconds
    pause_s, why = _FIRST_PAUSE_S, "no time to try"
    taken_since: Optional[float] = None
    while True:
        taken = True
        try:
            found = addresses_of(host, port, max(0.0, deadline - time.monotonic()))
        except NoAddress as error:
            _unreachable(where, seconds, str(error))
        for address in found:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                _unreachable(where, seconds, why)
            try:
                joined = join(address, port, token, index, facts, left_s, where)
                return Client(joined, index, authenticated=bool(token))
            except OSError as error:
                why = error.strerror or str(error) or "no answer"
                taken = taken and isinstance(error, NotAHub)
        taken_since = (taken_since or time.monotonic()) if taken else None
        if taken_since is not None and time.monotonic() - taken_since >= _TAKEN_S:
            raise HubPortTaken(
                "this port is taken",
                where=where,
                why=f"for {_TAKEN_S:g} s {why}",
                next_step="Name another port of the first node with --hub HOST:PORT.",
            )
        left_s = deadline - time.monotonic()
        if left_s <= pause_s:
            time.sleep(max(0.0, left_s))
            _unreachable(where, seconds, why)
        time.sleep(pause_s * random.uniform(0.5, 1.0))
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


class Client:
    """A member of a hub. Nothing here waits longer than it is told to.

    Attributes:
        index: this member's number.
        authenticated: whether hub and member have proved a token to one another.
        heard_at: monotonic time of the hub's last word, its heartbeats too.
        silence_s: after so long without one it counts as lost.
    """

    def __init__(self, joined: Joined, index: int, *, authenticated: bool) -> None:
        self.index = index
        self.authenticated = authenticated
        self.heard_at = time.monotonic()
        self.silence_s = SILENCE_S
        self._stream, self._sealer, self._opener = joined
        self._said_at = 0.0
        self._lost = ""
        self._closed = False

    def send(self, kind: str, body: Any = None) -> None:
        """Have a message sent; what does not go at once goes with the next call of anything here.

        Raises:
            HubLost: there is nobody to send it to.
            ValueError: the body is no JSON or longer than 1 MiB, or this is no kind.
        """
        self._send(kind, codec.encode_body(body, codec.MAX_TO_HUB_BYTES - 128))

    def beat(self) -> None:
        """Say that this member lives, if it has said nothing for half a second.

        Raises:
            HubLost: there is nobody to say it to.
        """
        if time.monotonic() - self._said_at >= BEAT_S:
            self._send("_beat", b"null")

    def poll(self, seconds: float) -> List[Tuple[str, Any]]:
        """The messages that have arrived, as soon as there are any; none when the time is over.

        Answers pings by itself. Does not beat by itself: a member that hangs falls silent.

        Raises:
            HubLost: nothing more will come; what came before has been returned by earlier calls.
        """
        deadline = time.monotonic() + seconds
        while True:
            messages = self._receive()
            left_s = deadline - time.monotonic()
            if messages or left_s <= 0:
                return messages
            self._wait(left_s)

    def fileno(self) -> int:
        """The descriptor that becomes readable when `poll` would return something."""
        return self._stream.socket.fileno()

    @property
    def unsent(self) -> bool:
        """Whether something waits until the descriptor is writable."""
        return self._stream.waiting_bytes > 0

    def close(self, seconds: float = _GOODBYE_S) -> None:
        """Say goodbye and let what was sent arrive, at most for so long."""
        if self._closed:
            return
        self._closed = True
        deadline = time.monotonic() + seconds
        try:
            self._send("_bye", b"null")
            ended = False
            while time.monotonic() < deadline:
                self._stream.flush()
                if not ended and not self.unsent:
                    self._stream.end()
                    ended = True
                if self._stream.take() == b"":
                    break
                self._wait(deadline - time.monotonic())
        except (HubLost, OSError):
            pass
        self._stream.close()

    def __enter__(self) -> Client:
        """Itself."""
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        """Close."""
        self.close()

    def _send(self, kind: str, body: bytes) -> None:
        if self._lost:
            self._raise()
        if self._stream.waiting_bytes > _MAX_UNSENT_BYTES:
            self._lost = "it does not read what is sent to it"
            self._raise()
        self._said_at = time.monotonic()
        try:
            self._stream.put(self._sealer.seal(kind, body))
        except OSError as error:
            # What it said before may still be there to be read: `poll` tells the end.
            self._lost = self._lost or error.strerror or "its connection broke"

    def _receive(self) -> List[Tuple[str, Any]]:
        """What is there now."""
        if self._closed:
            self._lost = self._lost or "this member has said goodbye"
            self._raise()
        data: Optional[bytes] = None
        ended = ""
        try:
            data = self._stream.take()
            self._stream.flush()
        except OSError as error:
            ended = error.strerror or "its connection broke"
        if data:
            self._opener.feed(data)
        elif data is not None:
            ended = "its connection ended without a goodbye"
        messages = self._take_in()
        ended = self._lost or ended or self._opener.error
        if not ended and time.monotonic() - self.heard_at > self.silence_s:
            ended = f"no word from it for {self.silence_s:g} s"
        if ended and not data:
            self._lost = ended
            if not messages:
                self._raise()
        return messages

    def _take_in(self) -> List[Tuple[str, Any]]:
        messages = []
        message = self._opener.next()
        while message is not None:
            self.heard_at = time.monotonic()
            if message.kind == "_ping":
                self._answer(message.body)
            elif message.kind == "_bye":
                self._lost = "the hub has ended"
            elif message.kind == "_refused":
                self._lost = REFUSALS.get(str(message.body), "it has dropped this member")
            elif not message.kind.startswith("_"):
                messages.append((message.kind, message.body))
            message = self._opener.next()
        return messages

    def _answer(self, word: Any) -> None:
        try:
            self._send("_pong", codec.encode_body(pong(word), codec.MAX_JOIN_BYTES))
        except HubLost:
            # Told once everything that it has said is read.
            pass

    def _wait(self, seconds: float) -> None:
        """Until something is there, or the time is over."""
        poller = select.poll()
        poller.register(self.fileno(), select.POLLIN | (select.POLLOUT if self.unsent else 0))
        poller.poll(max(0, round(1000 * min(seconds, 1.0))))

    def _raise(self) -> NoReturn:
        raise HubLost("the hub is lost", where=self._stream.address, why=self._lost)


def _unreachable(where: str, seconds: float, why: str) -> NoReturn:
    raise HubUnreachable(
        f"no hub in {seconds:g} s",
        where=where,
        why=why,
        next_step="Check that the first node runs and that its port is open, or name another one with --hub.",
    )
