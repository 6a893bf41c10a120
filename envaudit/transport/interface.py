"""What a transport is, and what it is asked: the values between the command line and this room."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from envaudit._version import __version__
from envaudit.errors import UsageError
from envaudit.model.codec import NODE_NAME
from envaudit.model.fingerprint import Fingerprint
from envaudit.transport.boot import Payload, header_line
from envaudit.transport.clockoffset import PASSING, Effort

# A section that hangs must not cost its node the rest: it is given up this long before the node is.
_MARGIN = 0.2
_MAX_MARGIN_S = 10.0

# The sections whose code is sent only where they are asked for.
_CHECKING = frozenset({"checks", "collectives"})


class Target(NamedTuple):
    """A node, and the interpreter whose environment is read there.

    Attributes:
        node: its name, as the transport knows it.
        python: found on the node's PATH, absolute, or for ssh beginning with `~/`.
    """

    node: str
    python: str


class Request(NamedTuple):
    """What is asked of every node.

    Attributes:
        sections: the names of the sections to read; empty means all.
        workdir: the folder on the node whose repository is meant; None is where the launch starts.
        timeout_s: seconds from the start of a node's command to its whole answer.
        fanout: how many nodes are asked at a time.
        also: sections that are read on request only, beside those of `sections`.
        options: what such sections are told, `{"integrity": "size"}`.
        pings: by how many of them each node's clock is measured, where section clock is read.
        every_node: whether each node reads its environment itself, also one that nodes share.
        prefix: the environment on the node that its interpreter reads without executing anything of
            it, in place of its own.
        own: by node, options of that node alone, beside those of all; what goes through gateways is the
            same for all nodes, and lacks them.
        given_up: the nodes that an answer says are not heard any more by those that ran something with
            them, and how many seconds each is still waited for.
    """

    sections: tuple[str, ...] = ()
    workdir: str | None = None
    timeout_s: float = 60.0
    fanout: int = 64
    also: tuple[str, ...] = ()
    options: Mapping[str, Any] = MappingProxyType({})
    pings: Effort = PASSING
    every_node: bool = False
    prefix: str | None = None
    own: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
    given_up: Callable[[Fingerprint], Mapping[str, float]] | None = None

    @property
    def with_checks(self) -> bool:
        """Whether sections are asked for whose code is sent only then."""
        return bool(_CHECKING & {*self.sections, *self.also})

    def for_probe(self, *, launch: str, tool: str, python: str) -> dict[str, Any]:
        """The request as the probe reads it."""
        return {
            "launch": launch,
            "python": python,
            "prefix": self.prefix,
            "tool": tool,
            "workdir": self.workdir,
            "sections": list(self.sections) or None,
            "also": list(self.also),
            "options": dict(self.options),
            "deadline_s": self.timeout_s - min(_MARGIN * self.timeout_s, _MAX_MARGIN_S),
        }


class Opened(NamedTuple):
    """What a conversation begins with.

    Attributes:
        nonce: what marks the frames of the answer, so that nobody else's are taken for them.
        rest: what is still to be sent of header and payload; None where none of it has been sent.
    """

    nonce: str
    rest: bytes | None = None


def new_opening() -> Opened:
    """A conversation that has not been begun."""
    return Opened(os.urandom(16).hex())


class Progress(Protocol):
    """Who wants to know how far the asking is."""

    def update(self, node: str, outcome: str) -> None:
        """A node is through: `done`, or the kind of its `Missing`."""


class Transport(ABC):
    """A way to start a node's Python.

    Attributes:
        launch: how the node's facts say they were reached: local, ssh, exec or slurm.
        words: how messages name the way, `ssh, BatchMode`.
        remote: whether what is sent may cross a network.
        through_tree: whether ClusterShell's tree of gateways applies to it.
    """

    launch: str
    words: str
    remote: bool = True
    through_tree: bool = False

    @abstractmethod
    def check(self, targets: Sequence[Target]) -> None:
        """Refuse before anything is started.

        Raises:
            UsageError: an interpreter or an option that this transport cannot use.
            NeededError: a program of the controller's own is missing.
        """

    def begin(self, targets: Sequence[Target], request: Request) -> None:  # noqa: B027  most begin nothing
        """Start ahead what needs no ClusterShell, whose import takes a third of a node's own time.

        `opened` and `start` go on with it. What is begun ends with this process, whether or not it is used.

        Raises:
            UsageError, NeededError: as `check`, or a part of what is sent is missing.
        """

    def opened(self, target: Target) -> Opened | None:
        """What `begin` has sent to a target already; None for nothing."""
        return None

    @abstractmethod
    def trial(self, target: Target) -> str:
        """A shell command by which the user can try the way to a node."""

    @abstractmethod
    def start(self, task: Any, nodes: Sequence[str], python: str, handler: Any, timeout_s: float) -> Any:
        """Schedule the interpreter, started with `boot.ARGUMENTS`, on a ClusterShell task.

        Args:
            task: a `ClusterShell.Task.Task` that has not been resumed.
            nodes: one node; several only where `through_tree` applies.
            python: their interpreter.
            handler: the `EventHandler` that talks with them.
            timeout_s: after which a node's command is ended.

        Returns:
            The scheduled worker.
        """


def header_for(
    transport: Transport,
    target: Target,
    request: Request,
    payload: Payload,
    *,
    nonce: str,
    pings: bool = False,
) -> bytes:
    """The line that a node's BOOT reads before the payload."""
    asked = request.for_probe(launch=transport.launch, tool=__version__, python=target.python)
    return header_line(
        payload,
        nonce=nonce,
        node=target.node,
        deadline_s=request.timeout_s,
        request=asked,
        pings=pings,
    )


def check_targets(targets: Sequence[Target]) -> None:
    """Refuse names that no transport may see, and names that stand there twice.

    Raises:
        UsageError: for those, and for no target at all.
    """
    if not targets:
        raise UsageError("no nodes to ask", next_step="Give --nodes a set that is not empty.")
    seen = set()
    for target in targets:
        if not NODE_NAME.match(target.node):
            raise UsageError(
                f"{target.node[:80]!r} is not a node name",
                next_step="Names are letters, digits and . _ : - but begin with a letter, digit or _.",
            )
        if target.node in seen:
            raise UsageError(f"node {target.node} is named twice")
        seen.add(target.node)
