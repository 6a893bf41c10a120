"""One supervisor among those of a run: all are members, the first one runs the hub beside.

with Meeting(seat, token, hello, join_s=60, conduct=conduct) as meeting:
    meeting.client.send(...)
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, Callable, Mapping, Optional, Type

from envaudit.control.client import Client, connect
from envaudit.control.hub import Hub, HubClosed
from envaudit.control.listening import listen_for_all
from envaudit.control.seat import Seat

# Once the first supervisor has no more to say, what it conducts may go on for so long: the others get
# their result from it.
LEAVE_S = 10.0
_STOP_S = 5.0


class Meeting:
    """A context: inside it `client` is connected, afterwards nothing of it is left.

    In index 0 a thread runs `conduct(hub)`, which calls `hub.join` itself and returns when all is said.
    The hub is closed then. What it raises is raised here on leaving.

    Attributes:
        client: this supervisor's.
        listener_port: in index 0 the hub's port.
    """

    client: Client

    def __init__(
        self,
        seat: Seat,
        token: bytes,
        hello: Mapping[str, Any],
        join_s: float,
        conduct: Callable[[Hub], None],
    ) -> None:
        self.seat = seat
        self.listener_port = seat.port
        self._token = token
        self._hello = hello
        self._join_s = join_s
        self._conduct = conduct
        self._hub: Optional[Hub] = None
        self._thread: Optional[threading.Thread] = None
        self._failure: Optional[Exception] = None

    def __enter__(self) -> Meeting:
        """Begin, and join.

        Raises:
            UsageError: in index 0, where the hub's port is taken or its host is none.
            NeededError: likewise, where too few files may be open.
            HubUnreachable: elsewhere, no hub answered in time.
            HubRefused: it does not take this supervisor.
        """
        host = self.seat.host
        if self.seat.index == 0:
            host = self._start_hub()
        try:
            self.client = connect(
                host,
                self.listener_port,
                self._token,
                self.seat.index,
                self.seat.node,
                self._hello,
                self._join_s,
            )
        except BaseException:
            self._end_hub(0.0)
            if self._failure is not None:
                raise self._failure from None
            raise
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        """Leave. After an error the hub ends at once, and the others learn that it has."""
        self.client.close()
        self._end_hub(LEAVE_S if error is None else 0.0)
        if self._failure is not None and (error is None or isinstance(error, Exception)):
            raise self._failure

    def _start_hub(self) -> str:
        """The address at which this process itself reaches it."""
        seat = self.seat
        listener = listen_for_all(seat.host, seat.port, authenticated=bool(self._token))
        host, self.listener_port = listener.getsockname()[:2]
        try:
            self._hub = Hub(listener, seat.count, self._token)
        except BaseException:
            listener.close()
            raise
        self._thread = threading.Thread(target=self._run, name="envaudit hub", daemon=True)
        self._thread.start()
        return "127.0.0.1" if host in ("::", "0.0.0.0") else str(host)  # noqa: S104 - compared

    def _run(self) -> None:
        assert self._hub is not None
        try:
            self._conduct(self._hub)
        except HubClosed:
            pass
        except Exception as error:
            self._failure = error
        finally:
            self._hub.close()

    def _end_hub(self, seconds: float) -> None:
        """Give what is conducted so long, then end it; a thread that does not end dies with the process."""
        if self._hub is None or self._thread is None:
            return
        self._thread.join(seconds)
        if self._thread.is_alive():
            self._hub.stop()
            self._thread.join(_STOP_S)
