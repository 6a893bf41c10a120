"""This machine: another interpreter of it is asked over pipes, as a node would be."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from envaudit.errors import UsageError
from envaudit.transport.boot import ARGUMENTS
from envaudit.transport.interface import Target, Transport
from envaudit.transport.program import Program


class Local(Transport):
    """Starts the interpreter directly, without a shell."""

    launch = "local"
    words = "local"
    remote = False

    def __init__(self) -> None:
        self._begun: dict[str, Program] = {}

    def check(self, targets: Sequence[Target]) -> None:
        """Refuse what would be read as an option or a home folder."""
        for target in targets:
            if not target.python or target.python[0] in "-~":
                raise UsageError(
                    f"'{target.python}' is no interpreter of this machine",
                    next_step="Give its absolute path.",
                )

    def begin(self, targets: Sequence[Target]) -> None:
        """Start the interpreter; it waits for what it is to run."""
        self.check(targets)
        self._begun = {target.python: Program([target.python, *ARGUMENTS]) for target in targets[:1]}

    def trial(self, target: Target) -> str:
        """The interpreter's own version."""
        return f"{shlex.quote(target.python)} --version"

    def start(self, task: Any, nodes: Sequence[str], python: str, handler: Any, timeout_s: float) -> Any:
        """Schedule the interpreter."""
        from envaudit.transport.engine import ArgvWorker

        begun = self._begun.pop(python, None)
        worker = ArgvWorker(nodes[0], handler, timeout_s, [python, *ARGUMENTS], begun)
        task.schedule(worker)
        return worker
