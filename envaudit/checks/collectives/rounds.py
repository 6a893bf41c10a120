"""The rounds of workers: the one of all ranks, and those after it that find who is at fault.

After a wrong result, or where all ranks were in one collective and none came out, every rank's raw
contribution is gathered once (a matrix of senders and receivers), and then ranks run in pairs, each pair a
process group of its own; what fails is paired anew with what did not (`pairs.py`).
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from envaudit.checks.collectives import ending as endings
from envaudit.checks.collectives import figures, naming, pairs
from envaudit.checks.collectives.dealing import NCCL, interface_of, task_of
from envaudit.checks.collectives.ending import Ending, Stopped, Times
from envaudit.checks.collectives.items import CollectivePlan, items, narrowed
from envaudit.checks.collectives.result import cases, parameters_of, rank_rows
from envaudit.checks.collectives.watching import Round

if TYPE_CHECKING:
    from envaudit.checks.collectives.coordinator import Coordinator

ALL, MATRIX, PAIR = "all", "matrix", "pair"
# Workers tell how they do four times a second; of very many nodes less often, so that the hub keeps up.
_EVERY_MS = 250
# Looking at one rank takes so long, with room; messages of a thousand nodes come faster than that.
_SETTLE_A_RANK_S = 50e-6
# More rounds of pairs than this find nothing that fewer did not.
_PAIR_ROUNDS = 6
# A pair that was cut off, or one of whose processes was ended or stopped, says nothing of data or links.
_NO_EVIDENCE = (endings.DEADLINE, endings.EXIT, endings.LOST, endings.SILENT)
# A port that was free may be another process' by the time that torch is imported: others are taken then.
_PORT_TRIES = 3
_PORT_TAKEN = re.compile("EADDRINUSE|address already in use", re.IGNORECASE)
# A worker's own alarm stands above the hub's deadline.
_ALARM_S = 2.0

Timed = Callable[[str, Callable[[], None]], None]


class Rounds:
    """All rounds of one run.

    Args:
        run: whose members, ranks and addresses these are.
        ends: when all is over, by the monotonic clock.
        times: after which silence and standing still count.
    """

    def __init__(self, run: Coordinator, ends: float, times: Times) -> None:
        self._run = run
        self._ends = ends
        self._times = times
        self._number = 0
        self._nodes = {place.rank: place.node for place in run.places}
        self._pairs: Dict[pairs.Pair, pairs.PairResult] = {}

    def run(self, result: Dict[str, Any], timed: Timed) -> None:
        """Runs what is asked for, and writes what came of it into the result."""
        world = len(self._run.places)
        made: List[Round] = []
        timed("collectives", lambda: made.append(self._launch([range(world)], ALL, self._run.plan)))
        (main,) = made
        ending = main.endings[0]
        result["ranks"] = rank_rows(self._run.places, main.devices)
        result["cases"] = cases(main.outcomes, world)
        result["parameters"] = parameters_of(main.parameters, world)
        if world == 2:
            self._pairs[0, 1] = _pair_result(main, 0)
        if ending is not None and ending.kind == endings.SILENT:
            ending = self._run.look_at_doors(ending)
        wrong = [name for name, row in result["cases"].items() if row["status"] == "wrong"]
        if wrong or (ending is not None and ending.kind == endings.NETWORK and not ending.nodes):
            timed("naming", lambda: self._name(result, main, wrong))
        result["figures"] = self._figures(main)
        result["ended"] = (_with_suspects(ending, result["suspects"]) or Ending(endings.DONE)).to_json()

    def _launch(self, groups: Sequence[Sequence[int]], purpose: str, plan: CollectivePlan) -> Round:
        """One round, anew with other ports where somebody else was faster to take one."""
        made = self._launch_once(groups, purpose, plan)
        for _ in range(1, _PORT_TRIES):
            if not any(map(_is_port_taken, made.endings.values())):
                break
            made = self._launch_once(groups, purpose, plan)
        return made

    def _launch_once(self, groups: Sequence[Sequence[int]], purpose: str, plan: CollectivePlan) -> Round:
        """One round, from its ports to the end of its workers."""
        run = self._run
        left_s = max(1.0, self._ends - time.monotonic())
        self._number += 1
        stores = self._stores(groups)
        common = {
            "backend": run.backend,
            "plan": plan.to_json(),
            "purpose": purpose,
            "budget_s": max(1, int(left_s)),
        }
        alone = len(set(self._nodes.values())) == 1
        tasks: Dict[int, List[Any]] = {}
        for group, store in zip(groups, stores):
            for number, rank in enumerate(group):
                place = run.places[rank]
                here = run.seated[place.owner].here
                assert here is not None
                task = task_of(place, len(group), number, store, common, interface_of(here, alone))
                tasks.setdefault(place.owner, []).append([rank, task])
        asked = {item.name for item in items(plan, run.backend, len(groups[0]), run.backend == NCCL)}
        now = run.round = Round(self._number, groups, self._nodes, asked, time.monotonic())
        every_ms = max(_EVERY_MS, len(run.seated))
        for index, each in tasks.items():
            order = {"round": self._number, "seconds": left_s + _ALARM_S, "every_ms": every_ms, "tasks": each}
            run.hub.send(index, "col.launch", order)
        self._watch(now)
        self._clear()
        return now

    def _stores(self, groups: Sequence[Sequence[int]]) -> List[Tuple[str, int]]:
        """An address for each group's first rank, on a port that its supervisor found free."""
        run = self._run
        firsts = [run.places[group[0]].owner for group in groups]
        counts = {index: firsts.count(index) for index in firsts}
        run.open_doors({index: counts.get(index, 0) for index in run.seated})
        ports = {index: list(run.seated[index].stores) for index in counts}
        return [(run.addresses[index], ports[index].pop()) for index in firsts]

    def _watch(self, now: Round) -> None:
        settled_at = 0.0
        every_s = _SETTLE_A_RANK_S * len(self._nodes)
        while True:
            at = time.monotonic()
            if at - settled_at >= every_s:
                settled_at = at
                if now.settle(at, self._times):
                    return
            if at > self._ends:
                least, most = now.furthest()
                entered = f"{least}" if least == most else f"{least} to {most}"
                text = f"{self._run.limits.total_s:g} s were over; ranks had entered {entered} collectives"
                now.give_up(Ending(endings.DEADLINE, text=text))
                return
            self._run.listen()

    def _clear(self) -> None:
        """Has all workers of the round ended; waits for those who can say so."""
        run = self._run
        run.hub.broadcast("col.clear", {"round": self._number})
        ends = time.monotonic() + run.limits.stall_s
        while time.monotonic() < ends:
            now = time.monotonic()
            waiting = [
                seat
                for seat in run.seated.values()
                if not seat.left and seat.cleared < self._number and now - seat.heard_at < run.limits.stall_s
            ]
            if not waiting:
                return
            run.listen()

    def _name(self, result: Dict[str, Any], main: Round, wrong: Sequence[str]) -> None:
        """Matrix and pair rounds; what cannot be run any more leaves what is known."""
        world = len(self._run.places)
        # Who could import torch once needs no longer for it now; the rest of its patience is for the network.
        patience_s = self._times.stall_s + 2 * main.import_s
        self._times = self._times._replace(start_s=min(self._times.start_s, patience_s))
        matrices: Mapping[int, Any] = main.matrix
        try:
            # Two ranks are one pair, and nothing tells one from the other.
            if world > 2 and wrong:
                matrices = _whole(self._launch([range(world)], MATRIX, self._run.plan).matrix, world)
            if world > 2:
                self._run_pairs(narrowed(self._run.plan, wrong))
        except Stopped:
            pass  # a node is gone meanwhile
        told = _told_by_all(main.outcomes, world)
        suspects = naming.name_culprits(world, told, matrices, self._pairs, self._nodes)
        result["suspects"] = [self._suspect(each) for each in suspects]

    def _run_pairs(self, plan: CollectivePlan) -> None:
        world = len(self._run.places)
        waiting = list(pairs.first_rounds(world))
        for _ in range(_PAIR_ROUNDS):
            matched = waiting.pop(0) if waiting else pairs.next_round(self._pairs, world)
            # A round that would be cut off by the deadline says of good pairs that they are bad.
            if not matched or time.monotonic() + self._times.stall_s > self._ends:
                return
            now = self._launch([list(pair) for pair in matched], PAIR, plan)
            for place, pair in enumerate(matched):
                ending = now.endings[place]
                if ending is None or ending.kind not in _NO_EVIDENCE:
                    self._pairs[pair] = _pair_result(now, place)

    def _suspect(self, suspect: naming.Suspect) -> Dict[str, Any]:
        row = dict(suspect._asdict())
        row["ranks"] = list(suspect.ranks)
        row["link"] = list(suspect.link) if suspect.link else None
        row["nodes"] = list(dict.fromkeys(self._nodes[rank] for rank in suspect.ranks))
        return row

    def _figures(self, main: Round) -> Dict[str, Any]:
        found = figures.figures_of(len(self._run.places), main.outcomes)
        return {**found, "links": pairs.links_of(self._pairs)}


def _is_port_taken(ending: Optional[Ending]) -> bool:
    return ending is not None and ending.kind == endings.ERROR and bool(_PORT_TAKEN.search(ending.text))


def _pair_result(now: Round, place: int) -> pairs.PairResult:
    """What became of one pair, as `pairs` and `naming` take it."""
    group = now.groups[place]
    outcomes = {rank: now.outcomes.get(rank, {}) for rank in group}
    return pairs.result_of(group, outcomes, now.endings[place] is None)


def _whole(matrix: Mapping[int, Any], world: int) -> Mapping[int, Any]:
    """A matrix with a row of every rank: in a part of one, a bad sender looks like a bad link."""
    return matrix if len(matrix) == world else {}


def _told_by_all(
    outcomes: Mapping[int, Mapping[str, Mapping[str, Any]]], world: int
) -> Dict[int, Dict[str, Mapping[str, Any]]]:
    """The collectives of which every rank has told what came out, for the same reason."""
    common = set.intersection(*(set(outcomes.get(rank, ())) for rank in range(world)))
    return {
        rank: {name: row for name, row in rows.items() if name in common} for rank, rows in outcomes.items()
    }


def _with_suspects(ending: Optional[Ending], suspects: Sequence[Mapping[str, Any]]) -> Optional[Ending]:
    """An end by the network, with the ranks and nodes that pair rounds have found."""
    if ending is None or ending.kind != endings.NETWORK or ending.nodes or not suspects:
        return ending
    first = suspects[0]
    ranks = tuple(int(rank) for rank in first["ranks"])
    victims = tuple(rank for rank in ending.victims if rank not in ranks)
    return ending._replace(ranks=ranks, nodes=tuple(first["nodes"]), victims=victims)
