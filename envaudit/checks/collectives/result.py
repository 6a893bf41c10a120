"""The result of a run, as every member gets it: JSON of one shape, whatever became of the run."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

from envaudit.checks.collectives.dealing import Place
from envaudit.checks.collectives.ending import Ending

# Worst first.
_STATUSES = ("wrong", "error", "not_run", "ok")
_REASON_MAX = 300
_WRONG_RANKS_MAX = 64


def blank_result(ending: Ending) -> Dict[str, Any]:
    """A result with nothing in it but how the run ended."""
    return {
        "ended": ending.to_json(),
        "world": 0,
        "supervisors": 0,
        "backend": None,
        "authenticated": None,
        "ranks": [],
        "mismatches": [],
        "unknown": {},
        "cases": {},
        "suspects": [],
        "parameters": None,
        "figures": {"items": {}, "straggler": None, "latency_ns": None, "links": {}},
        "clock": {},
        "asked": None,
        "road": {},
        "took_ms": {},
    }


def own_result(kind: str, text: str, nodes: Sequence[str] = ()) -> Dict[str, Any]:
    """What a member makes itself where it gets none from the hub."""
    return blank_result(Ending(kind, (), tuple(nodes), (), text))


def rank_rows(places: Sequence[Place], devices: Mapping[int, Mapping[str, Any]]) -> List[Dict[str, Any]]:
    """Who the ranks are; `device` is what torch says of it, or only its name before it said anything."""
    return [
        {
            "rank": place.rank,
            "node": place.node,
            "local_rank": place.local_rank,
            "device": devices.get(place.rank) or {"name": place.device},
        }
        for place in places
    ]


def cases(outcomes: Mapping[int, Mapping[str, Mapping[str, Any]]], world: int) -> Dict[str, Dict[str, Any]]:
    """Each collective with the worst that any rank says of it, in the order in which they ran.

    One that some rank says nothing of was not run, unless another says worse.
    """
    found: Dict[str, Dict[str, Any]] = {}
    names: Dict[str, None] = {}
    for rank in sorted(outcomes):
        names.update(dict.fromkeys(outcomes[rank]))
    for name in names:
        said = {rank: outcomes[rank][name] for rank in sorted(outcomes) if name in outcomes[rank]}
        worst = min(_place_of(row) for row in said.values())
        wrong = [rank for rank, row in said.items() if row.get("status") in _STATUSES[:2]]
        reason = next((str(row.get("reason") or "") for row in said.values() if _place_of(row) == worst), "")
        if len(said) < world and worst > _STATUSES.index("not_run"):
            worst, reason = _STATUSES.index("not_run"), f"{world - len(said)} of {world} ranks did not finish"
        row: Dict[str, Any] = {"status": _STATUSES[worst], "wrong_ranks": wrong[:_WRONG_RANKS_MAX]}
        if reason:
            row["reason"] = reason[:_REASON_MAX]
        digests = {str(each["digest"]) for each in said.values() if each.get("digest")}
        if len(digests) == 1:
            row["digest"] = digests.pop()
        found[name] = row
    return found


def parameters_of(told: Mapping[int, str], world: int) -> Optional[str]:
    """The digest that all ranks have after the DDP step; None where they differ or some have none."""
    digests = set(told.values())
    return digests.pop() if len(digests) == 1 and len(told) == world else None


def _place_of(row: Mapping[str, Any]) -> int:
    status = row.get("status")
    return _STATUSES.index(status) if status in _STATUSES else 1
