"""Faults of single nodes, each of which is mended again when the test is over."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from types import TracebackType
from typing import Callable

from tests.lab.cluster import Cluster
from tests.lab.node import Node
from tests.lab.processes import end, start_time


class Faults:
    """Breaks nodes of a cluster; leaving the context mends them, the last fault first.

    What still runs on the nodes then is ended: one test's hanging program is not the next one's.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._repairs = ExitStack()

    def __enter__(self) -> Faults:
        """Nothing is broken yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Mends everything."""
        self.mend()

    def mend(self) -> None:
        """Undoes all faults and ends what still works on the nodes."""
        self._repairs.close()
        for name in self.cluster.names:
            end([(process.pid, start_time(process.pid)) for process in self.cluster.node(name).work()])

    def link_down(self, name: str) -> None:
        """The node's network cable is pulled."""
        node = self.cluster.node(name)
        node.link("down")
        self.later(lambda: node.link("up"))

    def sshd_stopped(self, name: str) -> None:
        """Nothing listens on the node's port 22: connection refused."""
        node = self.cluster.node(name)
        node.call("stop_sshd")
        self.later(lambda: node.call("start_sshd"))

    def sshd_option(self, name: str, option: str, value: str) -> None:
        """One option of the node's sshd is another, such as ForceCommand or AuthorizedKeysFile."""
        self._change(self.cluster.node(name), self.cluster.node(name).sshd_options, option, value)

    def variable(self, name: str, variable: str, value: str) -> None:
        """One variable of the node's environment has another value."""
        self._change(self.cluster.node(name), self.cluster.node(name).environment, variable, value)

    def shown(self, name: str, source: str, target: str) -> None:
        """The node sees `source`, a file or folder, at `target`, which must exist everywhere.

        Raises:
            ValueError: `target` is a symbolic link; a mount would land on what it points to.
        """
        if os.path.islink(target):
            raise ValueError(f"{target} is a symbolic link")
        node = self.cluster.node(name)
        node.call("bind", source=source, target=target)
        self.later(lambda: node.call("unbind", target=target))

    def file(self, name: str, path: str, text: str) -> None:
        """A file under the node's own /etc, /run or /tmp, new or with another text."""
        node = self.cluster.node(name)
        inside = f"/proc/{node.pid}/root{path}"
        before = None
        if os.path.exists(inside):
            with open(inside, encoding="utf-8") as stream:
                before = stream.read()
        node.write(path, text)
        self.later(lambda: node.write(path, before))

    def empty_folder(self, name: str, target: str, *, read_only: bool = False) -> None:
        """An empty file system stands over `target` on the node."""
        node = self.cluster.node(name)
        node.call("tmpfs", target=target, options="mode=1777,size=16m", read_only=read_only)
        self.later(lambda: node.call("unbind", target=target))

    def python(self, name: str, script: str | None) -> None:
        """On this node the shared environment's Python is a bash script, or with None missing.

        The script finds the real interpreter of the environment as `"$REAL"`.
        """
        folder = tempfile.mkdtemp(prefix="bin.", dir=self.cluster.folder)
        os.chmod(folder, 0o755)
        shared = os.path.join(self.cluster.environment_path, "bin")
        if script is not None:
            real = os.path.join(folder, "real-python3")
            os.symlink(os.path.realpath(os.path.join(shared, "python3")), real)
            for alias in ("python", "python3"):
                path = os.path.join(folder, alias)
                with open(path, "w", encoding="utf-8") as stream:
                    stream.write(f"#!/bin/bash\nREAL={shared}/real-python3\n{script}\n")
                os.chmod(path, 0o755)
        self.shown(name, folder, shared)

    def _change(self, node: Node, table: dict[str, str], key: str, value: str) -> None:
        before = table.get(key)
        table[key] = value
        node.restart_sshd()

        def restore() -> None:
            if before is None:
                table.pop(key, None)
            else:
                table[key] = before
            node.restart_sshd()

        self.later(restore)

    def later(self, repair: Callable[[], None]) -> None:
        """How to mend what a test itself has broken."""
        self._repairs.callback(repair)
