"""This machine: another interpreter of it is asked over pipes, as a node would be."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from envaudit.errors import UsageError
from envaudit.transport.boot import ARGUMENTS
from envaudit.transport.interface import Opened, Request, Target, Transport, header_for, new_opening
from envaudit.transport.interrupts import held_interrupts
from envaudit.transport.program import Program

# An interpreter reads within milliseconds of its start; a slower one gets the rest later.
_PATIENCE_S = 0.25


class Local(Transport):
    """Starts the interpreter directly, without a shell."""

    launch = "local"
    words = "local"
    remote = False

    def __init__(self) -> None:
        self._begun: dict[Target, Program] = {}
        self._opened: dict[Target, Opened] = {}

    def check(self, targets: Sequence[Target]) -> None:
        """Refuse what would be read as an option or a home folder."""
        for target in targets:
            if not target.python or target.python[0] in "-~":
                raise UsageError(
                    f"'{target.python}' is no interpreter of this machine",
                    next_step="Give its absolute path.",
                )

    def begin(self, targets: Sequence[Target], request: Request) -> None:
        """Start the interpreter and send it what it is to run; where there are several nothing is begun."""
        self.check(targets)
        if len(targets) != 1 or request.own:
            return
        target = targets[0]
        self._begun[target] = program = Program([target.python, *ARGUMENTS])
        # Imported while the interpreter starts.
        from envaudit.transport.bundle import wire_payload

        # zipfile turns Ctrl-C inside of it into an error of its own.
        with held_interrupts():
            payload = wire_payload(compressed=self.remote, checks=request.with_checks)
        opening = new_opening()
        header = header_for(self, target, request, payload, nonce=opening.nonce)
        self._opened[target] = opening._replace(rest=program.give(header + payload.zip_bytes, _PATIENCE_S))

    def opened(self, target: Target) -> Opened | None:
        """What the interpreter has been sent."""
        return self._opened.pop(target, None)

    def trial(self, target: Target) -> str:
        """The interpreter's own version."""
        return f"{shlex.quote(target.python)} --version"

    def start(self, task: Any, nodes: Sequence[str], python: str, handler: Any, timeout_s: float) -> Any:
        """Schedule the interpreter."""
        from envaudit.transport.engine import ArgvWorker

        begun = self._begun.pop(Target(nodes[0], python), None)
        worker = ArgvWorker(nodes[0], handler, timeout_s, [python, *ARGUMENTS], begun)
        task.schedule(worker)
        return worker
