"""Ask many nodes at once; what comes back is a snapshot in which every node has its place."""

from __future__ import annotations

import math
import resource
from collections.abc import Sequence

from ClusterShell.Engine.Engine import EngineAbortException
from ClusterShell.Propagation import RouteResolvingError
from ClusterShell.Task import Task, TaskError
from ClusterShell.Task import TimeoutError as TaskTimeoutError
from ClusterShell.Topology import TopologyError
from ClusterShell.Worker.Worker import WorkerError

from envaudit import __version__
from envaudit.errors import Interrupted, UsageError
from envaudit.model.fingerprint import Fingerprint, Missing, Snapshot
from envaudit.transport import program
from envaudit.transport.bundle import wire_payload
from envaudit.transport.conversation import Conversation
from envaudit.transport.engine import new_task
from envaudit.transport.interface import Progress, Request, Target, Transport, check_targets

# A gateway that falls silent would hold a tree for good; each wave of nodes gets this much more.
_SLACK_S = 15.0

# Open files besides the nodes' pipes: the engine's, the caller's, and a program that is being started.
_OTHER_FILES = 40


def gather(
    transport: Transport, targets: Sequence[Target], request: Request, progress: Progress | None = None
) -> Snapshot:
    """The fingerprints of all targets that answer, and for each other one why not.

    Raises:
        UsageError: no target, a name that is none, what the transport cannot use, or, for this
            machine itself, an interpreter that must not be run.
        NeededError: a program of this machine's own is missing.
        Interrupted: Ctrl-C; everything that ran on the nodes has been ended.
    """
    check_targets(targets)
    transport.check(targets)
    payload = wire_payload(compressed=transport.remote)

    def through(node: str, outcome: str) -> None:
        if progress is not None:
            progress.update(node, outcome)

    talks = [Conversation(transport, target, request, payload, __version__, through) for target in targets]
    task = new_task(_affordable(request.fanout))
    try:
        _run(task, transport, talks, request)
    except KeyboardInterrupt:
        program.end_all()
        raise Interrupted("interrupted; nothing of it is left on the nodes") from None
    finally:
        program.end_all()
        task.abort(kill=True)
    return _snapshot(transport, talks)


def _affordable(fanout: int) -> int:
    """As many nodes at a time as the limit of open files allows: three pipes each."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 3 * fanout + _OTHER_FILES
    if soft < wanted and (soft < hard or hard == resource.RLIM_INFINITY):
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        soft = limit
    return max(1, min(fanout, (soft - _OTHER_FILES) // 3))


def _run(task: Task, transport: Transport, talks: Sequence[Conversation], request: Request) -> None:
    try:
        for talk in talks:
            transport.start(task, talk.target, talk, request.timeout_s)
        waves = math.ceil(len(talks) / max(1, request.fanout))
        task.resume(timeout=waves * (request.timeout_s + _SLACK_S))
    except TopologyError as error:
        raise UsageError("ClusterShell's topology.conf cannot be used", why=str(error)) from None
    except TaskTimeoutError:
        for talk in talks:
            talk.late()
    except (RouteResolvingError, EngineAbortException, WorkerError, TaskError) as error:
        cause = Missing(
            "unreachable",
            f"no way through the tree of gateways: {error}",
            "Check ClusterShell's topology.conf and that the gateways run Python with ClusterShell.",
        )
        for talk in talks:
            talk.give_up(cause)


def _snapshot(transport: Transport, talks: Sequence[Conversation]) -> Snapshot:
    fingerprints: list[Fingerprint] = []
    missing: dict[str, Missing] = {}
    for talk in talks:
        if talk.refused and transport.launch == "local":
            raise UsageError(talk.refused)
        if isinstance(talk.result, Fingerprint):
            fingerprints.append(talk.result)
        else:
            missing[talk.target.node] = talk.result or Missing("crashed", "the command left no trace")
    return Snapshot(tuple(fingerprints), missing)
