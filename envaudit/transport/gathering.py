"""Ask many nodes at once; what comes back is a snapshot in which every node has its place."""

from __future__ import annotations

import math
import resource
from collections.abc import Callable, Sequence
from functools import partial

from ClusterShell.Propagation import RouteResolvingError
from ClusterShell.Task import Task
from ClusterShell.Task import TimeoutError as TaskTimeoutError
from ClusterShell.Topology import TopologyError
from ClusterShell.Worker.Worker import WorkerError

from envaudit.errors import Interrupted, UsageError
from envaudit.model.fingerprint import Fingerprint, Missing, Snapshot
from envaudit.transport import causes, program
from envaudit.transport.clockoffset import Measure, Timebase
from envaudit.transport.conversation import Conversation
from envaudit.transport.engine import new_task
from envaudit.transport.interface import Progress, Request, Target, Transport, check_targets, new_opening
from envaudit.transport.pacing import do_aside, spread_s, start_all
from envaudit.transport.parcel import Parcel
from envaudit.transport.tree import Relay, by_interpreter, draws_tree

# A gateway that falls silent would hold a tree for good; each wave of nodes gets this much more.
_SLACK_S = 15.0

# Open files besides the nodes' pipes: the engine's, the caller's, and a program that is being started.
_OTHER_FILES = 40


def gather(
    transport: Transport,
    targets: Sequence[Target],
    request: Request,
    progress: Progress | None = None,
    meanwhile: Sequence[Callable[[], object]] = (),
) -> Snapshot:
    """The fingerprints of all targets that answer, and for each other one why not.

    `meanwhile` are short pieces of work for as long as the nodes are at work themselves; each is done
    once, or not at all where the answers are there sooner.

    Raises:
        UsageError: no target, a name that is none, what the transport cannot use, or, for this
            machine itself, an interpreter that must not be run.
        NeededError: a program of this machine's own is missing.
        Interrupted: Ctrl-C; everything that ran on the nodes has been ended.
    """
    check_targets(targets)
    transport.check(targets)
    if request.every_node or len(targets) == 1:
        return _ask(transport, targets, request, progress, meanwhile=meanwhile)
    # Not for this machine alone, where the import would be a tenth of the work.
    from envaudit.transport.sharing import Sharing, first_round, later_round

    first = first_round(request, reader=targets[0].node)
    sharing = Sharing(_ask(transport, targets, request, progress, request_of=first, meanwhile=meanwhile))
    while readers := sharing.next_readers():
        chosen = [target for target in targets if target.node in readers]
        sharing.take(_ask(transport, chosen, later_round(request, sharing.sections)))
    return sharing.snapshot()


def _ask(
    transport: Transport,
    targets: Sequence[Target],
    request: Request,
    progress: Progress | None = None,
    *,
    request_of: Callable[[str, bool], Request] | None = None,
    meanwhile: Sequence[Callable[[], object]] = (),
) -> Snapshot:
    """One round; `request_of(node, through_tree)` is what a node is asked where they are not asked alike."""
    parcel = Parcel(compressed=transport.remote, checks=request.with_checks)

    def through(node: str, outcome: str) -> None:
        if progress is not None:
            progress.update(node, outcome)
        answer = by_node[node].result
        if request.given_up is None or not isinstance(answer, Fingerprint):
            return
        for name, seconds in request.given_up(answer).items():
            if name in by_node:
                by_node[name].hurry(seconds)

    task = new_task(_affordable(request.fanout))
    by_node: dict[str, Conversation] = {}
    try:
        with_tree = transport.through_tree and draws_tree(task)
        shared = new_opening()
        timebase = Timebase.start()
        for target in targets:
            opened = shared if with_tree else transport.opened(target) or new_opening()
            measure = _measure(transport, request, timebase, with_tree=with_tree)
            asked = request_of(target.node, with_tree) if request_of else request
            if target.node in request.own and not with_tree:
                asked = asked._replace(options={**asked.options, **request.own[target.node]})
            by_node[target.node] = Conversation(
                transport, target, asked, parcel, opened, through, timebase, measure
            )
        talks = list(by_node.values())
        if with_tree:
            parcel.make()
            _run_through_tree(task, transport, talks, request)
        else:
            task.timer(0.0, handler=parcel)
            do_aside(task, meanwhile)
            _run(task, transport, talks, request)
    except TopologyError as error:
        raise UsageError("ClusterShell's topology.conf cannot be used", why=str(error)) from None
    except KeyboardInterrupt:
        program.end_all()
        raise Interrupted("interrupted; nothing of it is left on the nodes") from None
    finally:
        program.end_all()
        task.abort(kill=True)
    return _snapshot(transport, list(by_node.values()))


def _measure(transport: Transport, request: Request, timebase: Timebase, *, with_tree: bool) -> Measure | str:
    """What a node's clock is measured with, or why it is not; "" where nobody wants to know."""
    wanted = not request.sections or "clock" in request.sections
    if not wanted or not request.pings.most or transport.launch == "local":
        return ""
    if with_tree:
        # What a gateway passes on it collects first, and to all nodes it passes the same.
        return "ClusterShell's gateways pass no pings on"
    return Measure(timebase, request.pings)


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
    def start(talk: Conversation) -> None:
        transport.start(task, [talk.target.node], talk.target.python, talk, request.timeout_s)

    start_all(task, [partial(start, talk) for talk in talks])
    _resume(task, talks, request)


def _run_through_tree(
    task: Task, transport: Transport, talks: Sequence[Conversation], request: Request
) -> None:
    """One interpreter after the other: a gateway feeds the nodes of one worker at a time."""
    for group in by_interpreter(talks):
        nodes = [talk.target.node for talk in group]
        worker = transport.start(task, nodes, group[0].target.python, Relay(group), request.timeout_s)
        group[0].open(worker)
        try:
            _resume(task, group, request)
        except (RouteResolvingError, WorkerError) as error:
            cause = Missing(
                "unreachable",
                f"no way through the tree of gateways: {causes.one_line(str(error))}",
                "Check topology.conf, and that its gateways run Python with ClusterShell.",
            )
            for talk in group:
                talk.give_up(cause)


def _resume(task: Task, talks: Sequence[Conversation], request: Request) -> None:
    waves = math.ceil(len(talks) / max(1, task.info("fanout")))
    try:
        task.resume(timeout=waves * (request.timeout_s + _SLACK_S) + spread_s(len(talks)))
    except TaskTimeoutError:
        for talk in talks:
            talk.late(talk.target.node)


def _snapshot(transport: Transport, talks: Sequence[Conversation]) -> Snapshot:
    fingerprints: list[Fingerprint] = []
    missing: dict[str, Missing] = {}
    for talk in talks:
        if talk.refused and transport.launch == "local":
            raise UsageError(talk.refused)
        outcome = talk.outcome
        if isinstance(outcome, Fingerprint):
            fingerprints.append(outcome)
        else:
            missing[talk.target.node] = outcome or Missing("crashed", "the command left no trace")
    return Snapshot(tuple(fingerprints), missing)
