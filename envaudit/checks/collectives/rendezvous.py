"""Ports that the workers will meet at, tried in both directions before torch would wait for them in vain.

A supervisor's *door* is a listening socket that stays open while the run lasts. The kernel completes
connections to it even when the supervisor is stopped: whoever is silent behind an open door has a
stopped process, and whoever is silent behind a door that cannot be reached has lost its network.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
import time
from typing import Dict, Hashable, List, Mapping, Tuple, TypeVar

Address = Tuple[str, int]
_Key = TypeVar("_Key", bound=Hashable)

_BACKLOG = 1024


class Door:
    """A listening socket of this process on a port that the kernel chose; connections are closed at once."""

    def __init__(self, host: str = "") -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.bind((host, 0))
            self._socket.listen(_BACKLOG)
        except OSError:
            self._socket.close()
            raise
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]

    def fileno(self) -> int:
        """For a selector."""
        return self._socket.fileno()

    def greet(self) -> None:
        """Accept and close what has come, so that the backlog never fills."""
        try:
            for _ in range(_BACKLOG):
                self._socket.accept()[0].close()
        except OSError:
            pass

    def close(self) -> None:
        """From here on the port is free for somebody else."""
        self._socket.close()


def free_ports(count: int, host: str = "") -> List[int]:
    """Ports that are free now; another process may take one before it is used."""
    doors: List[Door] = []
    try:
        for _ in range(count):
            doors.append(Door(host))
        return [door.port for door in doors]
    finally:
        for door in doors:
            door.close()


class Trial:
    """Connections to several addresses under way at once; the owner's loop calls `step`.

    Attributes:
        failed: why, by key, of those that are settled and did not come about.
    """

    def __init__(self, addresses: Mapping[_Key, Address], seconds: float) -> None:
        self.failed: Dict[Hashable, str] = {}
        self._seconds = seconds
        self._ends = time.monotonic() + seconds
        self._selector = selectors.DefaultSelector()
        self._open: Dict[Hashable, socket.socket] = {}
        try:
            for key, address in addresses.items():
                self._begin(key, address)
        except BaseException:
            # No socket can be had, or this is no address.
            self.close()
            raise

    def step(self, seconds: float = 0.0) -> bool:
        """Looks, waiting at most so long; True when all are settled."""
        if self._open:
            left_s = max(0.0, self._ends - time.monotonic())
            for chosen, _ in self._selector.select(min(seconds, left_s)):
                key, connection = chosen.data, chosen.fileobj
                assert isinstance(connection, socket.socket)
                self._settle(key, connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
        if self._open and time.monotonic() >= self._ends:
            for key in list(self._open):
                self._settle(key, errno.ETIMEDOUT)
        return not self._open

    def close(self) -> None:
        """Gives up what is under way."""
        for key in list(self._open):
            self._settle(key, errno.ECANCELED)
        self._selector.close()

    def _begin(self, key: Hashable, address: Address) -> None:
        connection = socket.socket(
            socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_STREAM
        )
        connection.setblocking(False)
        self._open[key] = connection
        self._selector.register(connection, selectors.EVENT_WRITE, key)
        try:
            code = connection.connect_ex(address)
        except OSError as error:
            code = error.errno or errno.EINVAL
        if code not in (0, errno.EINPROGRESS):
            self._settle(key, code)

    def _settle(self, key: Hashable, code: int) -> None:
        connection = self._open.pop(key)
        self._selector.unregister(connection)
        connection.close()
        if code == errno.ETIMEDOUT:
            self.failed[key] = f"no answer in {self._seconds:g} s"
        elif code:
            self.failed[key] = os.strerror(code).lower()


def reach(addresses: Mapping[_Key, Address], seconds: float) -> Dict[Hashable, str]:
    """Connects to all addresses at once; why, by key, for those that cannot be reached in that time."""
    trial = Trial(addresses, seconds)
    try:
        while not trial.step(seconds):
            pass
        return dict(trial.failed)
    finally:
        trial.close()
