"""A node's supervisor: starts its workers, tells the hub how they do, and ends them whatever happens.

Standard library only. Everything is in one loop: the hub's messages, the workers' lines, and the clock.
What it sends (see `coordinator.py` for what it is sent):

    col.here      {"facts", "layout", "before_s", "own": address, "hub": address}   at once, and when asked
    col.prepared  {}                                      `before` has returned
    col.door      {"port", "stores": [port, ...]}         ports that are open, and ports that are free
    col.tried     {"failed": {index: why}}                doors that cannot be reached
    col.progress  {"round", "at": {key: [heartbeat, entered, finished, name]}}
    col.said      {"round", "key", "lines": [...]}        what a worker told, in its own words
    col.gone      {"round", "key", "exit", "aborted", "stderr"}
    col.unable    {"why"}                                 no port or descriptor is left here: it leaves
    col.cleared   {"round"}                               no worker of that round is left
    col.bye       {}                                      it has the result
"""

from __future__ import annotations

import os
import selectors
import shutil
import socket
import threading
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from envaudit.checks import launch
from envaudit.checks.collectives.ending import HUB_LOST, LOST
from envaudit.checks.collectives.layout import Layout, Limits
from envaudit.checks.collectives.rendezvous import Door, Trial, free_ports, reach
from envaudit.checks.collectives.result import own_result
from envaudit.checks.collectives.workers import Early, Workers
from envaudit.checks.supervise import Started
from envaudit.control.client import Client
from envaudit.control.failures import HubLost

_TICK_S = 0.1
# What its own patience adds to the hub's: the hub is to speak first.
_GRACE_S = 5.0
# Until its part in a launch is known, a supervisor waits for others; each phase is bounded by the hub.
_PHASES = 4

Before = Callable[[], None]


class Member:
    """One supervisor of a run.

    Args:
        client: connected to the hub.
        layout: its ranks.
        facts: what is compared before torch is imported (`comparing.Claim`).
        started: how workers are started.
        limits: as at the hub.
        before: what this node does once all are known to agree, while others do the same; it may take
            `before_s` seconds. It runs in a thread, and what it raises ends the run.
        early: workers that have been started already.
    """

    def __init__(
        self,
        client: Client,
        layout: Layout,
        facts: Mapping[str, Any],
        started: Started,
        limits: Limits,
        before: Optional[Before] = None,
        before_s: float = 0.0,
        early: Optional[Early] = None,
    ) -> None:
        self._client = client
        self._layout = layout
        self._facts = facts
        self._limits = limits
        self._before = _Aside(before) if before else None
        self._before_s = before_s if before else 0.0
        self._selector = selectors.DefaultSelector()
        self._cache = launch.cache_path("collectives")
        self._workers = Workers(started, self._selector, self._cache, self._send, early)
        self._door: Optional[Door] = None
        self._trial: Optional[Trial] = None
        self._result: Optional[Dict[str, Any]] = None
        self._own_address = ""
        self._hub_node: Tuple[str, ...] = ()
        self._hub_address: Tuple[str, int] = ("", 0)

    def run(self) -> Dict[str, Any]:
        """The result, the hub's or, where that is lost, this member's own; no worker is left."""
        patience_s = sum(self._limits[:-1]) + self._before_s + _PHASES * self._limits.join_s + _GRACE_S
        ends = time.monotonic() + patience_s
        self._selector.register(self._client.fileno(), selectors.EVENT_READ)
        try:
            own, self._hub_address = _ends_of(self._client.fileno())
            self._own_address = own[0]
            self._say_who()
            while self._result is None and time.monotonic() < ends:
                self._step()
            if self._result is None:
                return self._without_hub(f"the hub came to no result within {patience_s:.0f} s")
            self._say_goodbye()
            return self._result
        except HubLost as error:
            return self._without_hub(f"the hub is gone: {' '.join(str(error).split())}")
        except _HubSilent as error:
            return self._without_hub(str(error))
        except OSError as error:
            return self._unable(error)
        finally:
            self._close()

    def _say_who(self) -> None:
        self._send(
            "col.here",
            {
                "facts": dict(self._facts),
                "layout": self._layout.to_json(),
                "before_s": int(self._before_s),
                "own": self._own_address,
                "hub": self._hub_address[0],
            },
        )

    def _step(self) -> None:
        for key, _ in self._selector.select(_TICK_S):
            if key.data is self._door and self._door is not None:
                self._door.greet()
            elif key.data is not None:
                self._workers.listen(key)
        for kind, body in self._client.poll(0):
            if not kind.startswith("col."):
                continue
            try:
                self._take(kind, body)
            except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
                raise _HubSilent(f"the hub says what no hub says ({kind})") from None
        self._client.beat()
        self._workers.report()
        if self._before is not None and self._before.over():
            self._before = None
            self._send("col.prepared", {})
        if self._trial is not None and self._trial.step():
            self._send("col.tried", {"failed": {str(key): why for key, why in self._trial.failed.items()}})
            self._trial.close()
            self._trial = None
        silent_s = time.monotonic() - self._client.heard_at
        if silent_s > self._limits.stall_s + 1.0:
            raise _HubSilent(self._why_silent(silent_s))

    def _take(self, kind: str, body: Mapping[str, Any]) -> None:
        if kind == "col.who":
            self._say_who()
        elif kind == "col.go":
            self._hub_node = (str(body["hub"]),)
            if self._before is None:
                self._send("col.prepared", {})
            else:
                self._before.begin()
        elif kind == "col.door":
            self._open_door(str(body["host"]), int(body["stores"]))
        elif kind == "col.try":
            addresses = {index: (str(host), int(port)) for index, (host, port) in body["addresses"].items()}
            self._trial = Trial(addresses, float(body["seconds"]))
        elif kind == "col.launch":
            self._workers.launch(body)
        elif kind == "col.clear":
            self._workers.end_all()
            self._send("col.cleared", {"round": body["round"]})
        elif kind == "col.result":
            self._result = dict(body)

    def _open_door(self, host: str, stores: int) -> None:
        any_address = "::" if ":" in host else ""
        if self._door is None:
            self._door = Door(any_address)
            self._selector.register(self._door, selectors.EVENT_READ, self._door)
        self._send("col.door", {"port": self._door.port, "stores": free_ports(stores, any_address)})

    def _send(self, kind: str, body: Mapping[str, Any]) -> None:
        self._client.send(kind, dict(body))

    def _say_goodbye(self) -> None:
        self._workers.end_all()
        try:
            self._send("col.bye", {})
            self._client.poll(0)
        except HubLost:
            pass  # it has what it came for

    def _unable(self, error: OSError) -> Dict[str, Any]:
        """The hub hears why this node leaves, while there is a connection to say it by."""
        why = f"it has no socket or file left: {error.strerror or error}"
        try:
            self._send("col.unable", {"why": why})
        except HubLost:
            pass
        return own_result(LOST, why)

    def _without_hub(self, text: str) -> Dict[str, Any]:
        return own_result(HUB_LOST, text, self._hub_node)

    def _why_silent(self, silent_s: float) -> str:
        """Whether the hub's process has stopped or its node cannot be reached: an open port tells."""
        host, port = self._hub_address
        self._workers.end_all()
        failed = reach({0: self._hub_address}, min(2.0, self._limits.door_s))
        why = f"cannot be reached ({failed[0]})" if failed else "is there, but its process has stopped"
        return f"the hub was not heard for {silent_s:.0f} s; {host}:{port} {why}"

    def _close(self) -> None:
        try:
            self._workers.end_all()
        finally:
            for each in (self._door, self._trial, self._selector):
                if each is not None:
                    each.close()
            shutil.rmtree(self._cache, ignore_errors=True)


class _HubSilent(Exception):
    """The connection stands and nothing comes."""


class _Aside:
    """One call in a thread of its own, so that this loop goes on telling that it is alive."""

    def __init__(self, call: Before) -> None:
        self._call = call
        self._thread: Optional[threading.Thread] = None
        self._raised: List[BaseException] = []

    def begin(self) -> None:
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def over(self) -> bool:
        """Whether it has returned; raises what it raised."""
        if self._thread is None or self._thread.is_alive():
            return False
        if self._raised:
            raise self._raised[0]
        return True

    def _work(self) -> None:
        try:
            self._call()
        except BaseException as error:
            self._raised.append(error)


def _ends_of(fd: int) -> Tuple[Tuple[str, int], Tuple[str, int]]:
    """This end and the other of a connection."""
    with socket.socket(fileno=os.dup(fd)) as twin:
        own, other = twin.getsockname(), twin.getpeername()
        return (str(own[0]), int(own[1])), (str(other[0]), int(other[1]))
