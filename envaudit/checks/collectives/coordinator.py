"""The run as the hub's side conducts it: compare, try the ports, let the workers run, name who is at fault.

It sends (see `member.py` for what it is sent):

    col.who     {}                                            say who you are; again, until one has
    col.go      {"world", "hub": its node}                    all agree; `before` may begin
    col.door    {"host", "stores"}                            open a door, find that many free ports
    col.try     {"addresses": {index: [host, port]}, "seconds"}
    col.launch  {"round", "seconds", "every_ms", "tasks": [[rank, task], ...]}
    col.clear   {"round"}                                     end the workers of that round
    col.result  {...}                                         the end

Whoever holds the hub calls `run` once all have joined; between members and hub there may be other messages
before and after, and those whose kind does not begin with `col.` are handed back by `others`.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from envaudit.checks.collectives import ending as endings
from envaudit.checks.collectives import sound
from envaudit.checks.collectives.comparing import compare, unknown
from envaudit.checks.collectives.dealing import Here, Place, addresses, backend_of, deal
from envaudit.checks.collectives.ending import Ending, Stopped, Times, members_text
from envaudit.checks.collectives.items import CollectivePlan
from envaudit.checks.collectives.layout import Limits
from envaudit.checks.collectives.rendezvous import reach
from envaudit.checks.collectives.result import blank_result
from envaudit.checks.collectives.rounds import Rounds
from envaudit.checks.collectives.watching import Round
from envaudit.control.failures import turned_away
from envaudit.control.hub import GOODBYE, Event, Hub

_TICK_S = 0.1
# The hub's own loop did not run for so long: the machine was stopped, and nobody is late for that.
_STOPPED_S = 2.0
_BYE_S = 3.0
_ASK_S = 0.5
_MOST_OTHERS = 16  # words of a member that are not of a run: what it found, its road


class Seated:
    """One member, as far as the run has come with it."""

    def __init__(self, index: int, node: str, heard_at: float) -> None:
        self.index = index
        self.node = node
        self.heard_at = heard_at
        self.asked_at = 0.0
        self.here: Optional[Here] = None
        self.prepared = False
        self.door = 0
        self.wanted = 0
        self.stores: List[int] = []
        self.tried: Optional[Dict[str, str]] = None
        self.cleared = 0
        self.bye = False
        self.left = ""
        self.ranks: Tuple[int, ...] = ()


class Coordinator:
    """One run over the members of a hub.

    Args:
        hub: whose members have joined, or not.
        plan: what every rank runs.
        limits: how long what may last.
        names: nodes by index, where they are known before they come.

    Attributes:
        others: events that belong to somebody else.
    """

    def __init__(self, hub: Hub, plan: CollectivePlan, limits: Limits, names: Sequence[str] = ()) -> None:
        self.hub = hub
        self.plan = plan
        self.limits = limits
        self.others: List[Event] = []
        self.seated = {
            index: Seated(index, member.node, member.heard_at) for index, member in hub.members.items()
        }
        self.places: List[Place] = []
        self.addresses: Dict[int, str] = {}
        self.backend = ""
        self.round: Optional[Round] = None
        self._names = names
        self._times = Times(limits.start_s, limits.stall_s)
        self._listened_at = time.monotonic()
        self._heard_at = 0.0
        self._took_ms: Dict[str, int] = {}

    def run(self, missing: Sequence[int] = ()) -> Dict[str, Any]:
        """The result, which every member that can be reached has, too.

        Args:
            missing: indices that never came, as `Hub.join` says.
        """
        result = blank_result(Ending(endings.DONE))
        result["supervisors"] = self.hub.expected
        result["authenticated"] = self.hub.authenticated
        result["asked"] = self.plan.to_json()
        try:
            if missing:
                raise Stopped(self._missing(missing))
            self._conduct(result)
        except Stopped as stopped:
            result["ended"] = stopped.ending.to_json()
        result["clock"] = self._clocks()
        result["took_ms"] = self._took_ms
        self._share(result)
        return result

    # Phases

    def _conduct(self, result: Dict[str, Any]) -> None:
        self._timed("compare", lambda: self._compare(result))
        if len(self.places) < 2:
            raise Stopped(Ending(endings.NOT_TESTED, text="one rank alone has nobody to agree with"))
        self._timed("before", self._prepare)
        ends = time.monotonic() + self.limits.total_s
        self._timed("rendezvous", self._try_doors)
        Rounds(self, ends, self._times).run(result, self._timed)

    def _compare(self, result: Dict[str, Any]) -> None:
        self.await_all(self._has_said_who, self.limits.join_s, "said who they are")
        here = {index: seat.here for index, seat in self.seated.items() if seat.here is not None}
        nodes = {index: seat.node for index, seat in self.seated.items()}
        claims = {index: each.claim(nodes[index]) for index, each in here.items()}
        result["mismatches"] = compare(claims)
        result["unknown"] = unknown(claims)
        errors = [row for row in result["mismatches"] if row["severity"] == "error"]
        if errors:
            first = errors[0]
            raise Stopped(Ending(endings.MISMATCH, (), tuple(first["nodes"]), (), _differ_text(first)))
        busy = {
            nodes[index]: str(each.facts["busy"]) for index, each in here.items() if each.facts.get("busy")
        }
        if busy:
            # Nothing is launched beside somebody's work, and nobody is at fault.
            text = "; ".join(f"{node}: {who}" for node, who in busy.items())
            raise Stopped(Ending(endings.NOT_TESTED, (), tuple(busy), (), text[:500]))
        self.places = deal(here, nodes)
        self.addresses = addresses(here, nodes)
        for seat in self.seated.values():
            seat.ranks = tuple(place.rank for place in self.places if place.owner == seat.index)
        result["world"] = len(self.places)
        result["backend"] = self.backend = backend_of(self.places)

    def _has_said_who(self, seat: Seated) -> bool:
        """Asks again: whoever had the connection before may have taken the question, or the answer."""
        now = time.monotonic()
        if seat.here is None and now - seat.asked_at >= _ASK_S:
            seat.asked_at = now
            self.hub.send(seat.index, "col.who", {})
        return seat.here is not None

    def _prepare(self) -> None:
        self.hub.broadcast("col.go", {"world": len(self.places), "hub": self.seated[0].node})
        told_s = {index: seat.here.before_s for index, seat in self.seated.items() if seat.here}
        # All do the same and the first one's word counts; where it does nothing, nobody keeps others long.
        seconds = (told_s[0] or min(max(told_s.values()), self.limits.total_s)) + self.limits.stall_s
        self.await_all(lambda seat: seat.prepared, seconds, "came to the end of what comes before")

    def _try_doors(self) -> None:
        """Every node and the first rank's node connect to each other, as the workers will."""
        if len(self.seated) < 2:
            return
        first = self.places[0].owner
        self.open_doors({index: int(index == first) for index in self.seated})
        doors = {str(i): [self.addresses[i], seat.door] for i, seat in self.seated.items() if i != first}
        meeting = {str(first): [self.addresses[first], self.seated[first].door]}
        for index in self.seated:
            to = doors if index == first else meeting
            self.hub.send(index, "col.try", {"addresses": to, "seconds": self.limits.door_s})
        self.await_all(
            lambda seat: seat.tried is not None, self.limits.door_s + self.limits.stall_s, "tried the ports"
        )
        failed = [
            (index, int(other), why)
            for index, seat in self.seated.items()
            for other, why in (seat.tried or {}).items()
            if int(other) in self.seated
        ]
        if failed:
            raise Stopped(self._unreachable(first, failed))

    def open_doors(self, stores: Mapping[int, int]) -> None:
        """Has members open their doors and find so many free ports each; waits for them.

        Raises:
            Stopped: one of them left or said nothing.
        """
        for index, count in stores.items():
            self.seated[index].stores = []
            self.seated[index].wanted = count
            self.seated[index].door = 0
            self.hub.send(index, "col.door", {"host": self.addresses[index], "stores": count})
        self.await_all(
            lambda seat: seat.index not in stores or seat.door > 0, self.limits.stall_s, "opened a port"
        )

    # Listening

    def await_all(self, done: Callable[[Seated], bool], seconds: float, doing: str) -> None:
        """Listens until that holds of every member.

        Raises:
            Stopped: one left, fell silent, or did not come to it in time.
        """
        ends = time.monotonic() + seconds
        while True:
            waiting = [seat for seat in self.seated.values() if not done(seat)]
            left = [seat for seat in self.seated.values() if seat.left]
            if left:
                raise Stopped(self._about(endings.LOST, left, f"its supervisor is gone: {left[0].left}"))
            if not waiting:
                return
            now = time.monotonic()
            silent = [seat for seat in waiting if now - seat.heard_at > self.limits.stall_s]
            if silent:
                text = f"its supervisor was not heard for {self.limits.stall_s:g} s"
                raise Stopped(self.look_at_doors(self._about(endings.SILENT, silent, text)))
            if now > ends:
                text = f"{len(waiting)} of {len(self.seated)} supervisors have not {doing} in {seconds:g} s"
                raise Stopped(self._about(endings.STUCK, waiting, text))
            self.listen()

    def listen(self) -> None:
        """Takes what members say, waiting a moment for it."""
        stopped_s = time.monotonic() - self._listened_at
        for event in self.hub.poll(_TICK_S):
            self._take(event)
        if stopped_s > _STOPPED_S:
            for seat in self.seated.values():
                seat.heard_at += stopped_s
            if self.round is not None:
                self.round.forgive(stopped_s)
        self._listened_at = time.monotonic()
        if self._listened_at - self._heard_at < _TICK_S:
            return
        self._heard_at = self._listened_at
        for index, seat in self.seated.items():
            seat.heard_at = max(seat.heard_at, self.hub.members[index].heard_at)
            if self.round is not None and not seat.left:
                self.round.heard(seat.ranks, seat.heard_at)

    def _take(self, event: Event) -> None:
        seat = self.seated.get(event.index)
        if seat is None or (event.kind and not event.kind.startswith("col.")):
            # Without end they would fill the hub's memory; that a member has left is always kept.
            if not event.kind or sum(each.index == event.index for each in self.others) < _MOST_OTHERS:
                self.others.append(event)
            return
        if not event.kind:
            self._lose(seat, str(event.body))
            return
        try:
            self._understand(seat, event.kind, event.body)
        except (KeyError, TypeError, ValueError, AttributeError):
            self._lose(seat, f"it says what no supervisor says ({event.kind})")

    def _lose(self, seat: Seated, why: str) -> None:
        told = "it left before the end" if why == GOODBYE else why
        seat.left = seat.left or told or "its connection ended"
        if self.round is not None:
            self.round.lose(seat.ranks, seat.left)

    def _understand(self, seat: Seated, kind: str, body: Mapping[str, Any]) -> None:
        if kind == "col.here":
            seat.here = Here.from_json(body)
        elif kind == "col.prepared":
            seat.prepared = True
        elif kind == "col.door":
            stores = [sound.port(each) for each in body["stores"]]
            if len(stores) < seat.wanted:
                raise ValueError("fewer ports than were asked for")
            seat.door, seat.stores = sound.port(body["port"]), stores
        elif kind == "col.tried":
            failed = body["failed"].items()
            seat.tried = {str(int(index)): str(why)[: sound.TEXT_MAX] for index, why in failed}
        elif kind == "col.cleared":
            seat.cleared = int(body["round"])
        elif kind == "col.bye":
            seat.bye = True
        elif kind == "col.unable":
            self._lose(seat, str(body["why"])[: sound.TEXT_MAX])
        elif self.round is not None:
            self.round.take(kind, body, time.monotonic(), seat.ranks)

    # Endings

    def look_at_doors(self, ending: Ending) -> Ending:
        """Tells a stopped process from a node that is cut off, by whether its open port can be reached."""
        doors = {
            seat.index: (self.addresses[seat.index], seat.door)
            for seat in self.seated.values()
            if seat.door and not seat.left
        }
        asked = {index for index in doors if self.seated[index].node in ending.nodes}
        if not asked:
            return ending
        failed = reach(doors, min(1.0, self.limits.door_s))
        if not asked & set(failed):
            return ending._replace(text=f"{ending.text}; its node is there, so its process has stopped")
        own = {each.node for index, each in self.seated.items() if index in doors and index not in failed}
        others = {self.seated[index].node for index in doors} - own
        hub_node = next((seat.node for seat in self.seated.values() if seat.index == 0), "")
        cut = tuple(dict.fromkeys(self.seated[index].node for index in doors if index in failed))
        if len(others) > 1 and own <= {hub_node}:
            cut = (hub_node,)
        elif len(others) == 1 and own <= {hub_node}:
            cut = (hub_node, *cut)
        which = cut[0] if len(cut) == 1 else f"one of {', '.join(cut)}"
        why = next(iter(failed.values()))
        text = f"the network of {which} is down: {ending.nodes[0]} cannot be reached ({why})"
        ranks = tuple(place.rank for place in self.places if place.node in cut)
        left = tuple(rank for rank in (*ending.ranks, *ending.victims) if rank not in ranks)
        return Ending(endings.NETWORK, ranks, cut, tuple(sorted(left)), text)

    def _missing(self, missing: Sequence[int]) -> Ending:
        there = {index: seat.node for index, seat in self.seated.items()}
        names = (self._names[index] for index in missing if index < len(self._names))
        nodes = tuple(dict.fromkeys(names))
        text = members_text(there, self.hub.expected, self._names)
        refused = turned_away(self.hub.refused)
        text += f"; refused: {refused}" if refused else ""
        # A launcher that starts one process a rank numbers both alike.
        return Ending(endings.MISSING, tuple(missing), nodes, (), text)

    def _unreachable(self, first: int, failed: Sequence[Tuple[int, int, str]]) -> Ending:
        """The nodes at fault: those that fail one way or both, or the first one where nobody reaches it.

        Of two nodes either may keep the other out.
        """
        indices = sorted({index if index != first else other for index, other, _ in failed})
        index, other, why = failed[0]
        if len(self.seated) == 2:
            indices = sorted(self.seated)
        elif len(indices) == len(self.seated) - 1:
            indices = [first]
        nodes = tuple(dict.fromkeys(self.seated[each].node for each in indices))
        text = (
            f"{self.seated[index].node} cannot reach {self.seated[other].node} at "
            f"{self.addresses[other]}: {why} (a port that the kernel chose; a firewall?)"
        )
        ranks = tuple(place.rank for place in self.places if place.owner in indices)
        return Ending(endings.UNREACHABLE, ranks, nodes, (), text)

    def _about(self, kind: str, seats: Sequence[Seated], text: str) -> Ending:
        ranks = tuple(sorted(rank for seat in seats for rank in seat.ranks))
        nodes = tuple(dict.fromkeys(seat.node for seat in seats))
        victims = tuple(place.rank for place in self.places if place.rank not in ranks)
        return Ending(kind, ranks, nodes, victims, f"{seats[0].node}: {text}")

    # The end

    def _share(self, result: Mapping[str, Any]) -> None:
        """Every member gets the result; one that is stopped is waited for no longer than a moment."""
        ends = time.monotonic() + _BYE_S
        sent_at = 0.0
        while time.monotonic() < ends:
            now = time.monotonic()
            waiting = [seat for seat in self.seated.values() if not (seat.bye or seat.left)]
            if sent_at and all(now - seat.heard_at > self.limits.stall_s for seat in waiting):
                return
            if now - sent_at >= 2 * _ASK_S:
                sent_at = now
                for seat in self.seated.values():
                    # One that counts as lost for what it said may still be there to be told so.
                    if not seat.bye:
                        self.hub.send(seat.index, "col.result", result)
            self.listen()

    def _clocks(self) -> Dict[str, List[Optional[int]]]:
        return {m.node: [m.offset_ns, m.bound_ns] for _, m in sorted(self.hub.members.items())}

    def _timed(self, name: str, step: Callable[[], None]) -> None:
        began = time.monotonic()
        try:
            step()
        finally:
            self._took_ms[name] = int((time.monotonic() - began) * 1000)


def _differ_text(row: Mapping[str, Any]) -> str:
    said = "; ".join(f"{value}: {', '.join(nodes[:8]) or 'none'}" for value, nodes in row["values"].items())
    return f"{row['what']} differs ({said[:300]}); {row['text']}"
