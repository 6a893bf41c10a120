"""OpenSSH through ClusterShell, and through its tree of gateways where topology.conf draws one."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Sequence
from typing import Any

from envaudit.errors import NeededError, UsageError
from envaudit.transport.boot import BOOT
from envaudit.transport.interface import Target, Transport

# Every login shell leaves these alone.
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]+\Z")
# No quoting of these is read alike by sh, csh and fish.
_UNQUOTABLE = re.compile(r"['\\!\x00-\x1f\x7f]")

# Without them an ssh whose controller was killed would wait for a dead link until TCP gives up.
_ALIVE = "-oServerAliveInterval=10 -oServerAliveCountMax=3"
# A terminal, which RequestTTY in the user's configuration would force, changes what is piped through it.
_NO_TERMINAL = "-T"


class Ssh(Transport):
    """Runs the interpreter through ssh in BatchMode; host keys are checked as the user's ssh does.

    Args:
        ssh_config: the file for `ssh -F`; None is the user's own configuration.
        connect_timeout_s: None is ClusterShell's own (10 s, or its defaults.conf).
    """

    launch = "ssh"
    words = "ssh, BatchMode"
    through_tree = True

    def __init__(self, ssh_config: str | None = None, connect_timeout_s: int | None = None) -> None:
        self._ssh_config = os.path.abspath(os.path.expanduser(ssh_config)) if ssh_config else None
        self._connect_timeout_s = connect_timeout_s

    def check(self, targets: Sequence[Target]) -> None:
        """Refuse interpreters that no quoting brings through every shell, and a missing ssh."""
        if shutil.which("ssh") is None:
            raise NeededError("ssh: not found", next_step="Install the OpenSSH client on this machine.")
        if self._ssh_config is not None and not os.access(self._ssh_config, os.R_OK):
            raise UsageError("cannot be read", where=self._ssh_config, next_step="Correct ssh-config.")
        for target in targets:
            remote_command(target.python)

    def options(self) -> str:
        """What is added to ClusterShell's ssh options."""
        config = f"-F {shlex.quote(self._ssh_config)} " if self._ssh_config else ""
        return f"{config}{_NO_TERMINAL} {_ALIVE}"

    def trial(self, target: Target) -> str:
        """`ssh node true`."""
        config = f"-F {shlex.quote(self._ssh_config)} " if self._ssh_config else ""
        return f"ssh {config}{target.node} true"

    def start(self, task: Any, nodes: Sequence[str], python: str, handler: Any, timeout_s: float) -> Any:
        """Schedule the interpreter on the node."""
        configured = task.info("ssh_options") or ""
        if self.options() not in configured:
            task.set_info("ssh_options", f"{configured} {self.options()}".strip())
        if self._connect_timeout_s is not None:
            task.set_info("connect_timeout", self._connect_timeout_s)
        return task.shell(
            remote_command(python),
            nodes=",".join(nodes),
            handler=handler,
            timeout=timeout_s,
            stderr=True,
            tree=task.topology is not None,
        )


def remote_command(python: str) -> str:
    """What the node's login shell is given: sh, bash, csh and fish read it alike.

    Raises:
        UsageError: an interpreter that cannot be quoted for all of them.
    """
    home, rest = ("~/", python[2:]) if python.startswith("~/") else ("", python)
    if not rest or rest.startswith("-") or _UNQUOTABLE.search(rest):
        raise UsageError(
            f"{python!r} is no interpreter that every shell can be given",
            next_step="Use a path without quotes, backslashes, '!' and control characters.",
        )
    quoted = rest if _PLAIN.match(rest) else f"'{rest}'"
    return f"exec {home}{quoted} -I -B -c '{BOOT}'"
