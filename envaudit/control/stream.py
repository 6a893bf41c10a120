"""A TCP socket that never blocks, with what waits to be sent."""

from __future__ import annotations

import socket
import time
from collections import deque
from typing import Deque, Iterable, Optional

# A peer whose machine is gone without a word: asked after 5 s of silence, given up 6 s later. What
# was sent and is not acknowledged is given up after 15 s (TCP_USER_TIMEOUT in the kernel's tcp.h).
_IDLE_S, _EVERY_S, _PROBES, _UNACKNOWLEDGED_MS = 5, 2, 3, 15_000
# Below the size from which the C library maps memory anew for each read.
_TAKEN_AT_ONCE = 64 * 1024


class Stream:
    """One connection.

    Attributes:
        address: the peer's, as `10.0.0.7:4711` or `[fe80::1]:4711`.
        waiting_bytes: what is to be sent and the kernel has not taken yet.
        waiting_since: monotonic time since when nothing of that was taken.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (
            ("TCP_KEEPIDLE", _IDLE_S),
            ("TCP_KEEPINTVL", _EVERY_S),
            ("TCP_KEEPCNT", _PROBES),
            ("TCP_USER_TIMEOUT", _UNACKNOWLEDGED_MS),
        ):
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self.socket = sock
        self.address = _peer(sock)
        self.waiting_bytes = 0
        self.waiting_since = 0.0
        self._waiting: Deque[memoryview] = deque()

    def put(self, pieces: Iterable[bytes]) -> None:
        """Have these sent, in order, and send of it what goes at once.

        Raises:
            OSError: the connection is broken.
        """
        if not self._waiting:
            self.waiting_since = time.monotonic()
        for piece in pieces:
            self._waiting.append(memoryview(piece))
            self.waiting_bytes += len(piece)
        self.flush()

    def flush(self) -> None:
        """Send what goes at once.

        Raises:
            OSError: the connection is broken.
        """
        while self._waiting:
            try:
                sent = self.socket.sendmsg([self._waiting[at] for at in range(min(len(self._waiting), 64))])
            except (BlockingIOError, InterruptedError):
                return
            self.waiting_bytes -= sent
            self.waiting_since = time.monotonic()
            while self._waiting and sent >= len(self._waiting[0]):
                sent -= len(self._waiting.popleft())
            if sent:
                self._waiting[0] = self._waiting[0][sent:]

    def take(self) -> Optional[bytes]:
        """What has arrived, at most 64 KiB: b"" at its end, None where nothing is there.

        Raises:
            OSError: the connection is broken.
        """
        try:
            return self.socket.recv(_TAKEN_AT_ONCE)
        except (BlockingIOError, InterruptedError):
            return None

    def end(self) -> None:
        """Say that nothing more comes; what has been sent still arrives."""
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self) -> None:
        """Let go of it. Where something unread has arrived, the peer may lose what was sent last."""
        self._waiting.clear()
        self.waiting_bytes = 0
        self.socket.close()


def _peer(sock: socket.socket) -> str:
    try:
        host, port = sock.getpeername()[:2]
    except OSError:
        return "?"
    return in_words(host, port)


def in_words(host: str, port: int) -> str:
    """`host:port`, an IPv6 address in brackets."""
    host = host[7:] if host.startswith("::ffff:") and "." in host else host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
