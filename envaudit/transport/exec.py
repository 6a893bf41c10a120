"""A command of the user's that ends in the interpreter: kubectl, srun, docker, ip netns, ..."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Sequence
from typing import Any

from envaudit.errors import NeededError, UsageError
from envaudit.transport.boot import ARGUMENTS
from envaudit.transport.interface import Target, Transport

_FIELD = re.compile(r"\{(node|python)\}")
_EXAMPLE = 'An example: command = "kubectl exec -i {node} -n train -- {python}".'


class Exec(Transport):
    """Runs a template that is split into words first; `{node}` and `{python}` are filled in per word.

    No shell reads it, so that no name can become more than one word. BOOT's arguments follow the
    last word, the interpreter.

    Raises:
        UsageError: a template that cannot be split, or does not end in `{python}`.
    """

    def __init__(self, template: str) -> None:
        try:
            words = shlex.split(template)
        except ValueError as error:
            raise UsageError("command cannot be split into words", where=template, why=str(error)) from None
        if not words or words[-1] != "{python}":
            raise UsageError("command must end in {python}", where=template or "command", next_step=_EXAMPLE)
        self._words = words
        program = os.path.basename(words[0])
        self.launch = "slurm" if program == "srun" else "exec"
        self.words = "exec" if _FIELD.search(program) else program

    def check(self, targets: Sequence[Target]) -> None:
        """Refuse relative interpreters, and a template whose own program is missing here."""
        for target in targets:
            if not target.python.startswith("/"):
                raise UsageError(
                    f"exec needs an absolute interpreter for {target.node}, got '{target.python}'",
                    next_step="Set python or [nodes.interpreters] in envaudit.toml, or --python.",
                )
        program = self._words[0]
        if not _FIELD.search(program) and shutil.which(program) is None:
            raise NeededError(
                f"{program}: not found",
                where="command",
                next_step=f"Install {program} on this machine, or correct the command.",
            )

    def argv(self, target: Target) -> list[str]:
        """The words that are run for one node, before BOOT's arguments."""
        fields = {"node": target.node, "python": target.python}
        return [_FIELD.sub(lambda match: fields[match[1]], word) for word in self._words]

    def trial(self, target: Target) -> str:
        """The same command, asking for the interpreter's version."""
        return f"{shlex.join(self.argv(target))} --version"

    def start(self, task: Any, nodes: Sequence[str], python: str, handler: Any, timeout_s: float) -> Any:
        """Schedule the command."""
        from envaudit.transport.engine import ArgvWorker

        argv = [*self.argv(Target(nodes[0], python)), *ARGUMENTS]
        worker = ArgvWorker(nodes[0], handler, timeout_s, argv)
        task.schedule(worker)
        return worker
