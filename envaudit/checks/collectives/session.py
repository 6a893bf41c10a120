"""One run of collectives over all nodes, from the hub to the result; the same call on each supervisor."""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, Optional

from envaudit.checks.collectives import ending as endings
from envaudit.checks.collectives.coordinator import Coordinator
from envaudit.checks.collectives.items import CollectivePlan
from envaudit.checks.collectives.layout import Layout, Limits
from envaudit.checks.collectives.member import Before, Member
from envaudit.checks.collectives.result import own_result
from envaudit.checks.supervise import Started
from envaudit.control.failures import HubRefused, HubUnreachable
from envaudit.control.hub import Hub
from envaudit.control.meeting import Meeting
from envaudit.control.seat import Seat

__all__ = ["Before", "Coordinator", "Layout", "Limits", "Member", "run"]

# The first node may come last: its hub listens for so long more than others try.
_LATE_S = 1.0


def run(
    seat: Seat,
    layout: Layout,
    plan: CollectivePlan,
    hello: Mapping[str, Any],
    started: Started,
    limits: Limits,
    token: bytes,
    before: Optional[Before] = None,
    before_s: float = 0.0,
) -> Dict[str, Any]:
    """Take part in a run; in index 0 also conduct it.

    Args:
        seat: this supervisor's place, and where the hub is.
        layout: its ranks.
        plan: what is asked for; the one of index 0 counts.
        hello: facts that are compared before torch is imported (`comparing.Claim`).
        started: how workers are started.
        limits: how long what may last; those of index 0 count for the run, these for this process.
        token: shared by all, b"" for none.
        before: what this node does once all are known to agree (kernels), while others do the same.
        before_s: how long that may take.

    Returns:
        The result (`result.blank_result` has its shape), the same on every member that stayed to the end;
        one that lost the hub or never found it makes its own, `ended.kind` "hub_lost" or "unreachable".

    Raises:
        UsageError: in index 0, where the hub's port is taken or its host is none.
    """
    conduct = _conductor(plan, limits, layout)
    try:
        with Meeting(seat, token, {}, limits.join_s + _LATE_S, conduct) as meeting:
            return Member(meeting.client, layout, hello, started, limits, before, before_s).run()
    except (HubUnreachable, HubRefused) as error:
        return own_result(endings.UNREACHABLE, " ".join(str(error).split()))


def _conductor(plan: CollectivePlan, limits: Limits, layout: Layout) -> Callable[[Hub], None]:
    def conduct(hub: Hub) -> None:
        missing = hub.join(limits.join_s)
        Coordinator(hub, plan, limits, layout.names).run(missing)

    return conduct
