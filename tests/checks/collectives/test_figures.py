"""Bandwidths as nccl-tests counts them, and who is waited for."""

from __future__ import annotations

from typing import Any, Dict, List

import pytest

from envaudit.checks.collectives.figures import bandwidth, figures_of, straggler


def outcomes(times: List[List[int]], op: str = "all_reduce/sum") -> Dict[int, Dict[str, Any]]:
    """Times in ns, one list a rank, one time an item of 2**20 elements."""
    return {
        rank: {
            f"{op}/fp32/{1048576 + place}+0": {
                "status": "ok",
                "shortest_ns": took,
                "median_ns": took,
                "size_bytes": 4 << 20,
            }
            for place, took in enumerate(row)
        }
        for rank, row in enumerate(times)
    }


@pytest.mark.parametrize(
    ("op", "busbw"),
    [
        ("all_reduce", 7340),
        ("all_gather", 3670),
        ("reduce_scatter", 3670),
        ("all_to_all", 3670),
        ("broadcast", 4194),
    ],
)
def test_bus_bandwidth_follows_the_links_that_were_loaded(op: str, busbw: int) -> None:
    """4 MiB in a millisecond at eight ranks: 4.194 GB/s, times 14/8, 7/8 or 1."""
    algbw, found = bandwidth(op, 8, 4 << 20, 1_000_000)
    assert 4194 == algbw
    assert abs(found - busbw) <= 1


def test_time_of_an_item_is_that_of_the_rank_that_came_last() -> None:
    """The others' time has the waiting in it."""
    figures = figures_of(2, outcomes([[9_000_000], [1_000_000]]))
    (row,) = figures["items"].values()
    assert (4194, 4194, 1_000_000) == (row["algbw"], row["busbw"], row["shortest_ns"])
    assert 1_000_000 == figures["latency_ns"]


def test_item_that_one_rank_has_wrong_or_not_at_all_has_no_figure() -> None:
    """A wrong result's speed is worth nothing."""
    rows = outcomes([[5, 5], [5, 5]])
    first, second = rows[0]
    rows[1][first]["status"] = "wrong"
    del rows[1][second]
    figures = figures_of(2, rows)
    assert ({}, None) == (figures["items"], figures["latency_ns"])


def test_rank_that_is_always_the_shortest_inside_is_late() -> None:
    """Its 5 ms outside are the others' inside."""
    times = [[6_000_000 + 1000 * item for item in range(30)] for _ in range(4)]
    times[2] = [1_000_000] * 30
    found = straggler(4, outcomes(times))
    assert found is not None
    assert (2, 30, 30) == (found["rank"], found["items"], found["of"])
    assert 5_000_000 <= found["late_ns"] <= 5_030_000


def test_ranks_that_are_late_in_turn_are_no_stragglers() -> None:
    """Nor is one by less than is felt."""
    turns = [[1_000_000 if item % 4 == rank else 6_000_000 for item in range(40)] for rank in range(4)]
    assert straggler(4, outcomes(turns)) is None
    slightly = [[6_000_000] * 30 for _ in range(4)]
    slightly[1] = [5_900_000] * 30
    assert straggler(4, outcomes(slightly)) is None


def test_few_items_accuse_nobody_of_being_late() -> None:
    """Nineteen."""
    assert straggler(2, outcomes([[9_000_000] * 19, [1_000_000] * 19])) is None
