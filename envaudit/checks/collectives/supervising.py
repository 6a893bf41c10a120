"""One supervisor's part in a run, from joining the hub to the result: MTU, kernels, collectives.

The same for a node that is asked over a transport, and for a process of a launch.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

from envaudit.checks.cards import Card, Cards
from envaudit.checks.collectives.asked import Asked
from envaudit.checks.collectives.ending import HUB_LOST, NOT_TESTED, UNREACHABLE
from envaudit.checks.collectives.layout import Layout
from envaudit.checks.collectives.result import own_result
from envaudit.checks.collectives.road import NcclLogs
from envaudit.checks.collectives.workers import Early
from envaudit.checks.readiness import gpus_of_machine
from envaudit.checks.supervise import Started
from envaudit.control.failures import HubLost, HubRefused, HubUnreachable

if TYPE_CHECKING:
    from envaudit.control.client import Client
    from envaudit.control.hub import Event, Hub

# The first node may come last: its hub listens for so long less than others try.
_LATE_S = 1.0
_TEXT_MAX = 500
# Path MTUs are searched in a few rounds of packets, however many nodes there are.
MTU_S = 15.0

# All nodes by index, from the nodes of those who came.
NamesOf = Callable[[Mapping[int, str]], Sequence[str]]
# With events that came before their time.
Conduct = Callable[["Hub", List["Event"]], None]


class Machine(NamedTuple):
    """What a supervisor starts its ranks with.

    Attributes:
        started: how workers are started.
        cards: the GPUs that torch will see, in its order.
        environ: of the audited work.
    """

    started: Started
    cards: Sequence[Card]
    environ: Mapping[str, str]


class Said(NamedTuple):
    """What came of it here.

    Attributes:
        result: of the run (`coordinator.py`).
        road: of the ranks of this node, by rank.
        mtu: this node's row; None where it was not probed.
    """

    result: Dict[str, Any]
    road: Dict[str, Any]
    mtu: Optional[Dict[str, Any]]


# What a member does once it has its result.
Attend = Callable[["Client", Said], None]


def machine_of(interpreter: str, environ: Mapping[str, str], workdir: str) -> Machine:
    """This machine, as its work is started on it."""
    cards, _ = Cards.open()
    try:
        visible = (cards.visible(environ) if cards else None) or []
        busy = {place: cards.busy(card) for place, card in enumerate(visible)} if cards else {}
    finally:
        if cards:
            cards.close()
    started = Started(
        interpreter=interpreter,
        environ=dict(environ),
        cwd=workdir if os.path.isdir(workdir) else "/",
        gpus=len(visible) if visible else gpus_of_machine(),
        busy={place: f"the GPU is busy: {who}" for place, who in busy.items() if who},
    )
    return Machine(started, visible, environ)


def layout_of(machine: Machine, local_ranks: int, names: Sequence[str] = ()) -> Layout:
    """The ranks of a node: as many as it is asked for, else one a GPU, and one without; a GPU each."""
    count = local_ranks or max(1, machine.started.gpus)
    on_gpu = 0 < count <= machine.started.gpus
    devices = tuple(f"cuda:{place}" if on_gpu else "cpu" for place in range(count))
    return Layout(local_ranks=count, devices=devices, names=tuple(names))


def supervise_ranks(
    asked: Asked,
    layout: Layout,
    hello: Callable[[], Mapping[str, Any]],
    machine: Machine,
    before: Optional[Callable[[], Any]] = None,
    *,
    names_of: NamesOf = lambda came: (),
    conduct: Optional[Conduct] = None,
    attend: Optional[Attend] = None,
) -> Said:
    """Meet, and take part until the result; no worker is left, whatever happens.

    Args:
        asked: what is run, and where.
        layout: this supervisor's ranks.
        hello: gives the facts that are compared first.
        machine: with which they are started.
        before: what is done between comparing and the collectives, while others do the same.
        names_of: in index 0, all nodes by index where the layout does not name them, from the nodes of those
            who came; empty where nobody knows them.
        conduct: what the hub does once the result is out, in index 0.
        attend: what each member does then.

    Raises:
        UsageError: in index 0, the hub's port is taken.
    """
    limits = asked.limits
    said: Optional[Said] = None
    on_gpu = any(device.startswith("cuda") for device in layout.devices)

    def talk(hub: Hub) -> None:
        _talk(hub, asked, layout, names_of, conduct)

    try:
        with ExitStack() as held:
            logs = held.enter_context(NcclLogs(wanted=on_gpu))
            started = machine.started._replace(environ={**machine.started.environ, **logs.environ})
            # Alone there is nobody to be compared with: torch is imported while the facts are gathered.
            early_ranks = layout.local_ranks if asked.seat.count == 1 and asked.only_collectives else 0
            early = held.enter_context(Early(started, early_ranks, sum(limits)))
            # Likewise what the ranks do not wait for.
            from envaudit.checks.collectives.member import Member
            from envaudit.control.meeting import Meeting

            facts = hello()
            meeting = held.enter_context(Meeting(asked.seat, asked.token, {}, limits.join_s + _LATE_S, talk))
            row = _probe_mtu(meeting.client, asked, facts, layout)
            result = own_result(NOT_TESTED, "collectives were not asked for")
            if asked.collectives:
                before_s = float(asked.kernels_s) if before else 0.0
                member = Member(meeting.client, layout, facts, started, limits, before, before_s, early)
                result = member.run()
                if result["ended"]["kind"] == HUB_LOST and not result["ended"]["nodes"]:
                    result["ended"]["nodes"] = list(asked.names[:1])
            own = {each["rank"] for each in result["ranks"] if each["node"] == asked.seat.node}
            said = Said(result, logs.read(result["world"], own), row)
            if attend is not None and result["ended"]["kind"] != HUB_LOST:
                attend(meeting.client, said)
    except (HubUnreachable, HubRefused) as error:
        return Said(own_result(UNREACHABLE, " ".join(str(error).split()), asked.names[:1]), {}, None)
    except HubLost as error:
        said = said or Said(own_result(HUB_LOST, f"the hub is gone: {error}", asked.names[:1]), {}, None)
    assert said is not None
    return said


def _talk(hub: Hub, asked: Asked, layout: Layout, names_of: NamesOf, conduct: Optional[Conduct]) -> None:
    """The hub's side of a run, in index 0."""
    from envaudit.checks.collectives import mtu
    from envaudit.checks.collectives.coordinator import Coordinator

    missing = hub.join(asked.limits.join_s)
    if asked.mtu:
        mtu.conduct(hub, MTU_S)
    waiting: List[Event] = []
    if asked.collectives:
        came = {index: member.node for index, member in hub.members.items()}
        coordinator = Coordinator(hub, asked.plan, asked.limits, layout.names or names_of(came))
        coordinator.run(missing)
        waiting = coordinator.others
    if conduct is not None:
        conduct(hub, waiting)


def alone(asked: Asked, layout: Layout) -> bool:
    """Whether there is nobody to talk to."""
    return asked.seat.count == 1 and layout.local_ranks == 1


def not_tested(why: str) -> Dict[str, Any]:
    """The result of a run of one process that tests no collective."""
    result = own_result(NOT_TESTED, why)
    result["world"] = result["supervisors"] = 1
    return result


def of_one_rank() -> Dict[str, Any]:
    """The result of a run that has one rank."""
    return not_tested("one rank has nobody to talk to")


def busy_in_words(machine: Machine, layout: Layout) -> str:
    """Whether somebody works on a GPU that a rank would take, in words; empty where nobody does."""
    taken = [int(device.partition(":")[2]) for device in layout.devices if device.startswith("cuda:")]
    told = [f"GPU {place}: {machine.started.busy[place]}" for place in taken if place in machine.started.busy]
    return "; ".join(told)[:_TEXT_MAX]


def _probe_mtu(
    client: Client, asked: Asked, hello: Mapping[str, Any], layout: Layout
) -> Optional[Dict[str, Any]]:
    """This node's row, by one of its processes."""
    if not asked.mtu:
        return None
    from envaudit.checks.collectives import mtu

    interface = hello.get("interface")
    place: Mapping[str, Any] = interface if isinstance(interface, dict) else {}
    address = str(place.get("address") or "") if layout.local_rank == 0 else ""
    if address.startswith("127.") or address == "::1":
        # The hub's own node comes to it by loopback, which is no way to another node.
        address = ""
    return mtu.attend(client, address, str(place.get("name") or ""), asked.limits.join_s + MTU_S)


def ms_since(began: float) -> int:
    """Milliseconds since a monotonic time."""
    return int((time.monotonic() - began) * 1000)
