"""One round of workers as the hub sees it: what each was seen to do, and what each told.

A round is one launch of workers in one or more groups: all ranks in one group, or many pairs at once. It is
fed with members' messages and a time; nothing here waits.
"""

from __future__ import annotations

from typing import AbstractSet, Any, Dict, List, Mapping, Optional, Sequence, Tuple

from envaudit.checks.collectives import sound
from envaudit.checks.collectives.ending import (
    IMPORTED,
    READY,
    SETTLE_S,
    Ending,
    Sight,
    Times,
    all_through,
    judge,
    loud,
)

_TEXT_MAX = 300
_TAIL_MAX = 8192
_DIGEST_MAX = 16


class Round:
    """A launch under way.

    Args:
        number: of this launch in the run; what members say of another one is passed over.
        groups: the ranks of each process group, all of one size.
        nodes: of each rank.
        items: the collectives that are asked for.
        now: when it was ordered.

    Attributes:
        outcomes: by rank, what became of each collective.
        devices: by rank, what torch says of the device.
        matrix: by rank, its row of the raw all_gather.
        parameters: by rank, the digest after the DDP step.
        ready_ms: by rank, how long it took to be in its group.
        import_s: how long the slowest took to have torch imported; where they had begun before this round,
            to be in their group.
        endings: by place of the group, how it ended; None where all told everything.
    """

    def __init__(
        self,
        number: int,
        groups: Sequence[Sequence[int]],
        nodes: Mapping[int, str],
        items: AbstractSet[str],
        now: float,
    ) -> None:
        self.number = number
        self.groups = [tuple(group) for group in groups]
        self._items = items
        self._world = len(self.groups[0])
        self.outcomes: Dict[int, Dict[str, Dict[str, Any]]] = {}
        self.devices: Dict[int, Dict[str, Any]] = {}
        self.matrix: Dict[int, Any] = {}
        self.parameters: Dict[int, str] = {}
        self.ready_ms: Dict[int, int] = {}
        self.endings: Dict[int, Optional[Ending]] = {}
        self.import_s = 0.0
        self._began = now
        self._beats: Dict[int, int] = {}
        self._loud_at: Dict[int, float] = {}
        self._sights = {
            rank: Sight(rank, nodes[rank], moved_at=now, supervisor_heard_at=now)
            for group in self.groups
            for rank in group
        }

    def sights(self, place: int = 0) -> List[Sight]:
        """Of a group, in order of its ranks."""
        return [self._sights[rank] for rank in self.groups[place]]

    def take(self, kind: str, body: Mapping[str, Any], now: float, own: Sequence[int]) -> None:
        """What a member says of its workers.

        Raises:
            KeyError, TypeError, ValueError: it is not what members say, or of ranks that are not its `own`.
        """
        if body["round"] != self.number:
            return
        keys = body["at"] if kind == "col.progress" else [body["key"]]
        if not {int(key) for key in keys} <= set(own):
            raise ValueError("a rank of another member")
        if kind == "col.progress":
            for key, (beat, entered, finished, at) in body["at"].items():
                self._progress(int(key), int(beat), int(entered), int(finished), str(at or ""), now)
        elif kind == "col.said":
            for line in body["lines"]:
                self._said(int(body["key"]), dict(line), now)
        elif kind == "col.gone":
            sight = self._sights[int(body["key"])]
            self._sights[sight.rank] = sight._replace(
                exit=str(body["exit"])[:_TEXT_MAX],
                aborted=bool(body["aborted"]),
                stderr=str(body["stderr"])[-_TAIL_MAX:],
                # Its last word was an exception: that is what ended it, whatever its status says.
                error=sight.error or ("" if body["exit"] else "its worker left before its end"),
            )

    def heard(self, ranks: Sequence[int], at: float) -> None:
        """The supervisor of these ranks is alive."""
        for rank in ranks:
            if rank in self._sights:
                sight = self._sights[rank]
                self._sights[rank] = sight._replace(supervisor_heard_at=max(at, sight.supervisor_heard_at))

    def lose(self, ranks: Sequence[int], why: str) -> None:
        """The supervisor of these ranks has left."""
        for rank in ranks:
            if rank in self._sights:
                self._sights[rank] = self._sights[rank]._replace(lost=why)

    def forgive(self, seconds: float) -> None:
        """The hub itself did not run for so long: nobody is silent for that."""
        for rank, sight in self._sights.items():
            self._sights[rank] = sight._replace(
                heard_at=sight.heard_at + seconds if sight.heard_at else 0.0,
                moved_at=sight.moved_at + seconds,
                supervisor_heard_at=sight.supervisor_heard_at + seconds,
            )

    def settle(self, now: float, times: Times) -> bool:
        """Whether every group has come to an end, of either kind; judges those that have not."""
        for place in range(len(self.groups)):
            if place in self.endings:
                continue
            sights = self.sights(place)
            if all_through(sights):
                self.endings[place] = None
                continue
            if loud(sights):
                since = self._loud_at.setdefault(place, now)
                if now - since < SETTLE_S:
                    continue
            ending = judge(sights, now, times)
            if ending is not None:
                self.endings[place] = ending
        return len(self.endings) == len(self.groups)

    def give_up(self, ending: Ending) -> None:
        """Ends every group that has not come to an end."""
        for place in range(len(self.groups)):
            if place not in self.endings:
                left = tuple(sight.rank for sight in self.sights(place) if not sight.through)
                self.endings[place] = ending._replace(victims=left)

    def furthest(self) -> Tuple[int, int]:
        """The least and the greatest number of collectives entered."""
        entered = [sight.entered for sight in self._sights.values()]
        return max(0, min(entered)), max(0, *entered)

    def _progress(self, key: int, beat: int, entered: int, finished: int, at: str, now: float) -> None:
        sight = self._sights[key]
        if beat != self._beats.get(key):
            self._beats[key] = beat
            sight = sight._replace(heard_at=now)
        if sight.entered >= READY and (entered, finished) != (sight.entered, sight.finished):
            sight = sight._replace(entered=entered, finished=finished, moved_at=now)
        self._sights[key] = sight._replace(at=at[:_TEXT_MAX])

    def _said(self, key: int, line: Mapping[str, Any], now: float) -> None:
        sight = self._sights[key]
        if "device" in line:
            self.devices[key] = sound.device(line["device"])
            self.import_s = max(self.import_s, now - self._began)
            sight = sight._replace(entered=max(sight.entered, IMPORTED), moved_at=now)
        if "ready" in line:
            self.ready_ms[key] = int(line["ready"])
            self.import_s = max(self.import_s, self.ready_ms[key] / 1000)
            # What the last heartbeat was in is over.
            sight = sight._replace(entered=max(sight.entered, READY), at="", moved_at=now)
        for outcome in [*line.get("outcomes", ()), *([line["outcome"]] if "outcome" in line else ())]:
            told = sound.outcome(outcome, self._items, self._world)
            self.outcomes.setdefault(key, {})[told["item"]] = told
        if "matrix" in line:
            self.matrix[key] = sound.matrix(line["matrix"], self._world)
        if "parameters" in line:
            self.parameters[key] = str(line["parameters"])[:_DIGEST_MAX]
        if "error" in line:
            sight = sight._replace(error=str(line["error"])[:_TEXT_MAX])
        if "end" in line:
            sight = sight._replace(through=True, moved_at=now)
        self._sights[key] = sight
