"""A section that is read in a process made beforehand, while this one has threads and talks to others.

A process that is forked beside running threads may inherit their locks. So it is forked before there are
any, waits for the word, and answers in JSON. It ends with this process, whatever ends that.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from typing import Any, Callable, Dict, NoReturn, Optional

from envaudit.checks.launch import die_with_parent
from envaudit.probe.child import end, how_it_ended, reap, write_all

_READ_BYTES = 1 << 16
_MAX_BYTES = 64 << 20


class Aside:
    """One call in a process of its own, once it is told to begin.

    Args:
        call: what it does, and gives as JSON.
    """

    def __init__(self, call: Callable[[], Any]) -> None:
        told, self._tell = os.pipe()
        self._answer, answer = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            os.close(self._tell)
            os.close(self._answer)
            self._work(call, told, answer)
        os.close(told)
        os.close(answer)
        self._said = bytearray()
        self._value: Optional[Dict[str, Any]] = None
        self._begun = False

    def begin(self) -> None:
        """Let it begin, once."""
        if not self._begun:
            self._begun = True
            os.write(self._tell, b"1")

    def over(self, seconds: float = 0.0) -> bool:
        """Whether it has answered or ended, waiting at most so long for that."""
        deadline = time.monotonic() + seconds
        while self._value is None:
            left_s = max(0.0, deadline - time.monotonic())
            if not select.select([self._answer], [], [], left_s)[0]:
                return False
            chunk = os.read(self._answer, _READ_BYTES)
            self._said += chunk
            if not chunk or len(self._said) > _MAX_BYTES:
                self._value = self._read()
        return True

    def value(self) -> Any:
        """What it answered.

        Raises:
            RuntimeError: it raised, crashed, or was not over.
        """
        held = self._value or {"error": "no answer in time"}
        if "error" in held:
            raise RuntimeError(str(held["error"]))
        return held["value"]

    def close(self) -> None:
        """End it and all below it."""
        for fd in (self._tell, self._answer):
            os.close(fd)
        end(self._pid)

    def _read(self) -> Dict[str, Any]:
        try:
            found: Dict[str, Any] = json.loads(bytes(self._said).decode("ascii"))
            return found
        except ValueError:
            return {"error": how_it_ended(reap(self._pid))}

    @staticmethod
    def _work(call: Callable[[], Any], told: int, answer: int) -> NoReturn:
        try:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            # The other end closes when this process' parent ends.
            if os.read(told, 1):
                die_with_parent()
                try:
                    text = json.dumps({"value": call()})
                except BaseException as error:
                    text = json.dumps({"error": f"{type(error).__name__}: {error}"})
                write_all(answer, text.encode("ascii"))
        finally:
            os._exit(0)
