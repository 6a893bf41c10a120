"""Nodes behind ClusterShell's tree of gateways, where the user's topology.conf draws one.

A gateway passes standard input on to the nodes of one worker at a time, the same bytes to each.
All nodes with one interpreter therefore share a worker, a header and a nonce; whose output is
whose is what the gateway says, never what a frame claims.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from ClusterShell.Task import Task
from ClusterShell.Topology import TopologyError

from envaudit.model.fingerprint import Missing
from envaudit.transport.causes import one_line
from envaudit.transport.conversation import Conversation
from envaudit.transport.engine import Listener


def draws_tree(task: Task) -> bool:
    """Whether a topology.conf of the user's is there; it is then loaded.

    Raises:
        ClusterShell.Topology.TopologyError: it cannot be read.
    """
    if not task.default("auto_tree"):
        return False
    for path in reversed(task.TOPOLOGY_CONFIGS):
        if os.path.exists(path):
            try:
                task.load_topology(path)
            except UnicodeDecodeError as error:
                raise TopologyError(f"{path}: {error}") from None
            return True
    return False


def by_interpreter(talks: Sequence[Conversation]) -> list[list[Conversation]]:
    """Conversations in groups that can share a worker."""

    def python_of(talk: Conversation) -> str:
        return talk.target.python

    return [list(group) for _, group in groupby(sorted(talks, key=python_of), key=python_of)]


class Relay(Listener):
    """Hands what ClusterShell tells of many nodes to the conversation of each."""

    def __init__(self, talks: Sequence[Conversation]) -> None:
        super().__init__()
        self._talks = {talk.target.node: talk for talk in talks}
        self._gateway_words = ""

    def ev_read(self, worker: Any, node: Any, sname: str, msg: bytes) -> None:
        """A line of a node, or of a gateway that is none of the nodes."""
        talk = self._talks.get(str(node))
        if talk is not None:
            talk.take(msg + b"\n", is_stderr=sname == worker.SNAME_STDERR)
        elif msg.strip():
            self._gateway_words = one_line(msg[:512].decode("utf-8", "replace"))

    def ev_hup(self, worker: Any, node: Any, rc: int | None) -> None:
        """A node's command has ended, or its gateway has (EX_PROTOCOL)."""
        talk = self._talks.get(str(node))
        if talk is None:
            return
        if rc == os.EX_PROTOCOL:
            words = f": {self._gateway_words}" if self._gateway_words else ""
            talk.give_up(
                Missing(
                    "unreachable",
                    f"the gateway to it broke off{words}",
                    "Check that the gateways of topology.conf run Python with ClusterShell.",
                )
            )
        talk.ev_hup(worker, node, rc)

    def ev_close(self, worker: Any, timedout: bool) -> None:
        """All nodes are through."""
        late = {str(node) for node in worker.iter_keys_timeout()}
        for node, talk in self._talks.items():
            talk.ev_close(worker, node in late)

    def hear(self, node: str, client: Any, chunk: bytes, *, is_stderr: bool) -> None:
        """A piece of output of a node that needs no gateway."""
        self._talks[node].hear(node, client, chunk, is_stderr=is_stderr)

    def late(self, node: str) -> None:
        """The time of a node that needs no gateway is over."""
        self._talks[node].late(node)
