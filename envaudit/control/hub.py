"""The hub: one loop over all connections that never waits for any of them.

    hub = Hub(listen(host, port), expected=4, token=token)
    missing = hub.join(60)
    while ...:
        for event in hub.poll(0.25):
            ...
    hub.close()

A member is a process that has proved the token and said its index. Its messages become events; that it
has left (died, broke the rules, does not read) is one too. Whatever else connects is kept small, ended
after seconds, and counted in `refused`; no caller waits for it.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections import Counter, deque
from typing import Any, Deque, Dict, List, Set

from envaudit.control import codec
from envaudit.control.clocks import Pings
from envaudit.control.link import ENDED, FOREIGN, INDEX, LATE, PROTOCOL, TAKEN, Link, Refused
from envaudit.control.listening import descriptors_for, listen
from envaudit.control.member import Event, Member, Refusal, Refusals
from envaudit.control.stream import Stream

__all__ = ["GOODBYE", "Event", "Hub", "HubClosed", "Member", "Refusal", "Refusals", "listen"]

# A member that said so before it left.
GOODBYE = "goodbye"

# How long a stranger may take until it is a member, and how long a message may take to arrive whole.
STRANGER_S = 30.0
MESSAGE_S = 20.0
# A member that takes nothing of what waits for it for so long, or for which so much waits, is gone.
UNREAD_S = 20.0
MAX_UNREAD_BYTES = 2 * codec.MAX_TO_MEMBER_BYTES
# Of what all members say no more than this, and one message, waits for the caller.
MAX_QUEUED_BYTES = 8 * codec.MAX_TO_HUB_BYTES
# Strangers beside those who are expected: beyond that the host with most of them loses its oldest.
SPARE_STRANGERS = 64
# Messages of all members that are not whole: beyond that no new ones are begun.
MAX_PARTIAL_BYTES = 64 * codec.MAX_TO_HUB_BYTES

# Beside its members: what it waits with, what wakes it, and the first node's own end of a connection.
_OWN_DESCRIPTORS = 4

_BEAT_S = 1.0
_TIDY_S = 0.25
_ACCEPTED_AT_ONCE = 64
_GOODBYE_S = 2.0
_ENDED = "its connection ended without a goodbye"


class HubClosed(Exception):
    """`stop` was called: whoever runs the hub ends now."""


class Hub:
    """See the module. Not to be called from two threads, `stop` alone excepted.

    Raises:
        NeededError: not so many files may be open.

    Attributes:
        expected: how many members there are to be.
        members: by index, those who have left too.
        authenticated: whether members had to know a token.
        refused: what became of other connections.
    """

    def __init__(self, listener: socket.socket, expected: int, token: bytes = b"") -> None:
        self.expected = expected
        self.members: Dict[int, Member] = {}
        self.authenticated = bool(token)
        self.refused = Refusals()
        self._token = token
        self._listener = listener
        self._links: Dict[int, Link] = {}
        self._strangers: Set[Link] = set()
        self._paused: Set[Link] = set()
        self._events: Deque[Event] = deque()
        self._ahead_ns = time.time_ns() - time.monotonic_ns()
        self._tidied_at = 0.0
        self._stopped = self._closing = False
        self._listens = True
        self._begun = False
        self._partial_bytes = self._queued_bytes = 0
        descriptors_for(2 * expected + SPARE_STRANGERS, least=expected + _OWN_DESCRIPTORS)
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._woken, selectors.EVENT_READ, self._wake)

    def join(self, seconds: float) -> List[int]:
        """Wait until all are there; the indices that are missing when the time is over.

        What members say meanwhile waits for `poll`. Who comes later is refused.

        Raises:
            HubClosed: `stop` was called.
        """
        deadline = time.monotonic() + seconds
        self._begun = False
        while len(self.members) < self.expected:
            self._turn(deadline - time.monotonic())
            if time.monotonic() >= deadline:
                break
        self._begun = True
        return [index for index in range(self.expected) if index not in self.members]

    def poll(self, seconds: float) -> List[Event]:
        """What has happened, as soon as anything has; nothing when the time is over.

        Raises:
            HubClosed: `stop` was called.
        """
        deadline = time.monotonic() + seconds
        self._turn(0)
        while not self._events and time.monotonic() < deadline:
            self._turn(deadline - time.monotonic())
        events = list(self._events)
        self._events.clear()
        self._queued_bytes = 0
        self._resume()
        return events

    def send(self, index: int, kind: str, body: Any = None) -> bool:
        """Have a message sent; False where that member is not connected (any more).

        Raises:
            ValueError: the body is no JSON or longer than 16 MiB, or this is no kind.
        """
        return self._send([index], kind, body) == 1

    def broadcast(self, kind: str, body: Any = None) -> int:
        """Likewise to all who are connected; how many that are."""
        return self._send(list(self._links), kind, body)

    def stop(self) -> None:
        """Have `join` and `poll` raise `HubClosed`; from any thread."""
        self._stopped = True
        try:
            self._waker.send(b"\0")
        except OSError:
            pass

    def close(self, seconds: float = _GOODBYE_S) -> None:
        """Say goodbye, let what was sent arrive, and let go of everything within that time."""
        if self._closing:
            return
        self._closing = True
        deadline = time.monotonic() + seconds
        self._forget(self._listener)
        self._listener.close()
        for link in list(self._strangers):
            self._refuse(link, Refused(ENDED, "the hub has ended"))
        self.broadcast("_bye")
        ended: Set[Link] = set()
        while self._links and time.monotonic() < deadline:
            for link in self._links.values():
                if not link.stream.waiting_bytes and link not in ended:
                    link.stream.end()
                    ended.add(link)
            self._events.clear()
            self._queued_bytes = 0
            self._turn(min(0.1, max(0.0, deadline - time.monotonic())))
        for link in list(self._links.values()):
            self._drop(link, "the hub has ended")
        self._selector.close()
        self._woken.close()
        self._waker.close()

    def _send(self, indices: List[int], kind: str, body: Any) -> int:
        text = codec.encode_body(body, codec.MAX_TO_MEMBER_BYTES)
        sent = 0
        for index in indices:
            link = self._links.get(index)
            if link is None:
                continue
            if link.stream.waiting_bytes > MAX_UNREAD_BYTES:
                self._drop(link, "it does not read what is sent to it")
                continue
            try:
                link.say(kind, text)
            except OSError as error:
                self._drop(link, _broken(error))
                continue
            self._watch(link)
            sent += 1
        return sent

    def _turn(self, seconds: float) -> None:
        """One round: whatever is ready now, or the first thing that becomes ready."""
        if self._stopped and not self._closing:
            raise HubClosed
        for key, mask in self._selector.select(max(0.0, min(seconds, _TIDY_S))):
            if isinstance(key.data, Link):
                self._serve(key.data, mask)
            else:
                key.data()
        now = time.monotonic()
        if now - self._tidied_at >= _TIDY_S:
            self._tidied_at = now
            self._tidy(now)

    def _serve(self, link: Link, mask: int) -> None:
        if link.closed:
            return
        try:
            if mask & selectors.EVENT_WRITE:
                link.stream.flush()
            if mask & selectors.EVENT_READ:
                self._read(link)
            self._watch(link)
        except Refused as refusal:
            self._refuse(link, refusal)
        except OSError as error:
            self._drop(link, _broken(error))

    def _read(self, link: Link) -> None:
        """Read until nothing is left or a message is whole: few are half here at any time."""
        heard = False
        while not heard:
            before = link.partial_bytes
            if link.joined and self._is_full(before):
                self._paused.add(link)
                return
            data = link.stream.take()
            if data is None:
                return
            if not data:
                raise ConnectionResetError
            try:
                messages = link.hear(data)
            finally:
                self._partial_bytes += link.partial_bytes - before
            if link.joined:
                self._deliver(link, messages, len(data))
            heard = bool(messages) or not link.joined
            if link.error:
                raise Refused(PROTOCOL, link.error)

    def _is_full(self, partial_bytes: int) -> bool:
        """Whether a member has to wait that has so much of a message here."""
        if self._queued_bytes > MAX_QUEUED_BYTES:
            return True
        return not partial_bytes and self._partial_bytes > MAX_PARTIAL_BYTES

    def _resume(self) -> None:
        """Listen again to those who had to wait; that nothing was heard of them was not their fault."""
        if not self._paused or self._queued_bytes or self._partial_bytes > MAX_PARTIAL_BYTES // 2:
            return
        paused, self._paused = self._paused, set()
        for link in paused:
            self.members[link.index].heard_at = time.monotonic()
            self._watch(link)

    def _deliver(self, link: Link, messages: List[codec.Message], received_bytes: int) -> None:
        if link in self._strangers:
            self._strangers.discard(link)
            self._links[link.index] = link
            self.members[link.index] = link.member()
        member = self.members[link.index]
        member.received_bytes += received_bytes
        for message in messages:
            member.heard_at = time.monotonic()
            if message.kind == "_bye":
                self._drop(link, GOODBYE)
                return
            if not message.kind.startswith("_"):
                self._queued_bytes += message.size_bytes
                self._events.append(Event(link.index, message.kind, message.body))

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                sock, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                # No descriptors are left: listen again when some may have come back.
                if self._strangers:
                    self._make_room()
                self._forget(self._listener)
                self._listens = False
                return
            try:
                link = Link(Stream(sock), self._token, self._admit, Pings(self._ahead_ns, self.expected))
            except OSError:
                sock.close()
                continue
            self._strangers.add(link)
            self._watch(link)
            if len(self._strangers) > self.expected + SPARE_STRANGERS:
                self._make_room()

    def _make_room(self) -> None:
        """End the oldest stranger of the host that has most of them."""
        hosts = Counter(link.host for link in self._strangers)
        host = max(hosts, key=lambda name: hosts[name])
        oldest = min((link for link in self._strangers if link.host == host), key=lambda link: link.born)
        self._refuse(oldest, Refused(FOREIGN, "too many connections from one host"))

    def _admit(self, index: int) -> None:
        if not 0 <= index < self.expected:
            raise Refused(INDEX, f"index {index}, where {self.expected} are expected")
        if index in self.members:
            raise Refused(TAKEN, f"index {index} for the second time")
        if self._begun:
            raise Refused(LATE, f"index {index} after the others had begun")

    def _tidy(self, now: float) -> None:
        """What takes too long is ended; who has heard nothing for a while is told that the hub lives."""
        for link in [each for each in self._strangers if now - each.born > STRANGER_S]:
            self._refuse(link, Refused(FOREIGN, f"no member after {STRANGER_S:g} s"))
        for link in list(self._links.values()):
            if link.stream.waiting_bytes and now - link.stream.waiting_since > UNREAD_S:
                self._drop(link, "it does not read what is sent to it")
            elif link.partial_since and now - link.partial_since > MESSAGE_S and link not in self._paused:
                self._drop(link, "a message of it did not come to its end")
            elif now - link.said_at > _BEAT_S and not self._closing:
                self._send([link.index], "_beat", None)
        self._resume()
        if not self._listens and not self._closing:
            self._listens = True
            self._selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def _wake(self) -> None:
        try:
            self._woken.recv(64)
        except OSError:
            pass

    def _refuse(self, link: Link, refusal: Refused) -> None:
        """End a connection that is at fault; a stranger's is recorded, a member's is an event."""
        try:
            link.refuse(refusal.code)
            link.stream.end()
        except OSError:
            pass
        if link not in self._strangers:
            self._drop(link, refusal.why)
            return
        self.refused.add(Refusal(link.stream.address, refusal.code, refusal.why))
        self._close(link)

    def _drop(self, link: Link, why: str) -> None:
        """A connection is over."""
        if link in self._strangers:
            self.refused.add(Refusal(link.stream.address, FOREIGN, why))
        elif not link.closed:
            del self._links[link.index]
            member = self.members[link.index]
            member.left = member.left or why
            self._events.append(Event(link.index, "", member.left))
        self._close(link)

    def _close(self, link: Link) -> None:
        if link.closed:
            return
        self._forget(link.stream.socket)
        self._strangers.discard(link)
        self._paused.discard(link)
        self._partial_bytes -= link.partial_bytes
        link.closed = True
        link.stream.close()

    def _watch(self, link: Link) -> None:
        """Wait for what this connection can give or take."""
        if link.closed:
            return
        wanted = 0 if link in self._paused else selectors.EVENT_READ
        wanted |= selectors.EVENT_WRITE if link.stream.waiting_bytes else 0
        if wanted == link.watched:
            return
        if not wanted:
            self._forget(link.stream.socket)
        elif not link.watched:
            self._selector.register(link.stream.socket, wanted, link)
        else:
            self._selector.modify(link.stream.socket, wanted, link)
        link.watched = wanted

    def _forget(self, sock: socket.socket) -> None:
        try:
            self._selector.unregister(sock)
        except (KeyError, ValueError):
            pass


def _broken(error: OSError) -> str:
    return f"its connection ended without a goodbye ({error.strerror})" if error.strerror else _ENDED
