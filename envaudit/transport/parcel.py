"""What is sent to the nodes, put together while the first of them are already being connected to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ClusterShell.Event import EventHandler

from envaudit.transport.boot import Payload
from envaudit.transport.bundle import wire_payload
from envaudit.transport.interrupts import held_interrupts


class Parcel(EventHandler):  # type: ignore[misc]
    """The payload of a run, and who waits for it.

    As the handler of a timer that fires at once it is made right after the first commands have been
    started: a key exchange takes longer than zipping does.
    """

    def __init__(self, *, compressed: bool, checks: bool = False) -> None:
        super().__init__()
        self._compressed = compressed
        self._checks = checks
        self._payload: Payload | None = None
        self._waiting: list[Callable[[Payload], None]] = []

    def hand_to(self, receiver: Callable[[Payload], None]) -> None:
        """Call `receiver` with the payload, now or as soon as there is one."""
        if self._payload is None:
            self._waiting.append(receiver)
        else:
            receiver(self._payload)

    def make(self) -> None:
        """Make it, and hand it to all who wait.

        Raises:
            NeededError: a part of it is not installed.
        """
        # zipfile turns Ctrl-C inside of it into an error of its own.
        with held_interrupts():
            self._payload = wire_payload(compressed=self._compressed, checks=self._checks)
        while self._waiting:
            self._waiting.pop(0)(self._payload)

    def ev_timer(self, timer: Any) -> None:
        """The first commands have been started."""
        self.make()
