"""Bandwidth, latency and who comes late, from the times that ranks were inside their collectives.

nccl-tests (doc/PERFORMANCE.md): algbw = S / t, and busbw = algbw times what the links had to carry,
2(n−1)/n for all_reduce, (n−1)/n for all_gather, reduce_scatter and all_to_all, 1 for broadcast, reduce and
send / recv. S is the size of the buffer, of all blocks together for the blocked ones.

t is the shortest time of any rank: who arrives last waits for nobody, and clocks need not agree. For the
same reason the rank that is always the shortest inside is the one that is always late.
"""

from __future__ import annotations

from statistics import median_low
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from envaudit.checks.collectives import items as names
from envaudit.checks.collectives.items import item_of

# Below, a figure is latency and says nothing of bandwidth.
_LEAST_BYTES = 1 << 16
# A rank is called late that was the shortest inside so often, in thousandths, and by so much of the median
# of the others, and of so many collectives.
_LATE_PERMILLE = 600
_LATE_FACTOR = 2
_LEAST_ITEMS = 20
_LEAST_GAP_NS = 200_000

Outcomes = Mapping[int, Mapping[str, Mapping[str, Any]]]


def bandwidth(op: str, world: int, size_bytes: int, took_ns: int) -> Tuple[int, int]:
    """The algbw and busbw as thousandths of 10⁹ bytes a second."""
    algbw = size_bytes * 1000 // max(1, took_ns)
    if op == names.ALL_REDUCE:
        return algbw, algbw * 2 * (world - 1) // world
    if op in names.BLOCKED:
        return algbw, algbw * (world - 1) // world
    return algbw, algbw


def figures_of(world: int, outcomes: Outcomes) -> Dict[str, Any]:
    """All figures of a run.

    Args:
        world: how many ranks.
        outcomes: by rank and item, as `rank.outcome_of` makes them.

    Returns:
        `items`: for each that all ranks ran right: algbw and busbw (milli GB/s; null for a barrier), S in
        bytes, the shortest and the median time; `straggler`: null, or the rank, of how many items it came
        last, and by how many ns; `latency_ns` of the smallest all_reduce.
    """
    table: Dict[str, Any] = {}
    for name in next(iter(outcomes.values()), {}):
        rows = [outcomes.get(rank, {}).get(name) for rank in range(world)]
        if any(row is None or row["status"] != "ok" or row["shortest_ns"] is None for row in rows):
            continue
        table[name] = _figure(name, world, [row for row in rows if row is not None])
    small = [row for name, row in table.items() if name.startswith(f"{names.ALL_REDUCE}/")]
    latency = min(small, key=lambda row: int(row["size_bytes"]), default=None)
    return {
        "items": table,
        "straggler": straggler(world, outcomes),
        "latency_ns": latency["shortest_ns"] if latency else None,
    }


def straggler(world: int, outcomes: Outcomes) -> Optional[Dict[str, int]]:
    """The rank that the others wait for, or None: `rank`, `items` it was last in, of how many, `late_ns`.

    `late_ns` is the median by which the others were longer inside.
    """
    if world < 2:
        return None
    last: Dict[int, List[int]] = {}
    compared = 0
    for name in outcomes.get(0, {}):
        times = [_shortest(outcomes, rank, name) for rank in range(world)]
        known = [took for took in times if took is not None]
        if len(known) < world or not name.startswith((names.ALL_REDUCE, names.ALL_GATHER, names.BARRIER)):
            continue
        compared += 1
        shortest = min(known)
        rest = sorted(known)[1:]
        last.setdefault(known.index(shortest), []).append(median_low(rest) - shortest)
    if compared < _LEAST_ITEMS:
        return None
    rank, gaps = max(last.items(), key=lambda each: len(each[1]))
    late_ns = median_low(gaps)
    usual = median_low(_all_shortest(world, outcomes, rank) or [0])
    if len(gaps) * 1000 < compared * _LATE_PERMILLE or late_ns < _LEAST_GAP_NS:
        return None
    if late_ns * _LATE_FACTOR < usual:
        return None
    return {"rank": rank, "items": len(gaps), "of": compared, "late_ns": late_ns}


def link_milli_gbps(rows: Sequence[Mapping[str, Mapping[str, Any]]]) -> Optional[int]:
    """The bandwidth of a pair: the best busbw of its large items; None where it had none."""
    best: Optional[int] = None
    for name in rows[0] if rows else ():
        found = [row.get(name) for row in rows]
        if any(each is None or each["shortest_ns"] is None for each in found):
            continue
        row = _figure(name, len(rows), [each for each in found if each is not None])
        if row["busbw"] is not None and row["size_bytes"] >= _LEAST_BYTES:
            best = max(best or 0, int(row["busbw"]))
    return best


def _figure(name: str, world: int, rows: Sequence[Mapping[str, Any]]) -> Dict[str, Any]:
    shortest = min(int(row["shortest_ns"]) for row in rows)
    size_bytes = int(rows[0]["size_bytes"])
    op = item_of(name).op
    algbw, busbw = bandwidth(op, world, size_bytes, shortest)
    counts = op not in (names.BARRIER, names.DDP)
    return {
        "algbw": algbw if counts else None,
        "busbw": busbw if counts else None,
        "size_bytes": size_bytes,
        "shortest_ns": shortest,
        "median_ns": min(int(row["median_ns"]) for row in rows),
    }


def _shortest(outcomes: Outcomes, rank: int, name: str) -> Optional[int]:
    took = outcomes.get(rank, {}).get(name, {}).get("shortest_ns")
    return None if took is None else int(took)


def _all_shortest(world: int, outcomes: Outcomes, but: int) -> List[int]:
    return [
        int(row["shortest_ns"])
        for rank in range(world)
        if rank != but
        for row in outcomes.get(rank, {}).values()
        if row.get("shortest_ns") is not None
    ]
