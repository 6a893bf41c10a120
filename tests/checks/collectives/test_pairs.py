"""Pair rounds: who is bad, in how many rounds, and what stays open."""

from __future__ import annotations

from random import Random
from typing import Dict, List, Set, Tuple

import pytest

from envaudit.checks.collectives.pairs import (
    Pair,
    PairResult,
    first_rounds,
    judge,
    links_of,
    next_round,
    result_of,
)


def played(count: int, bad: Set[int], links: Set[Pair] = frozenset()) -> Tuple[Dict[Pair, PairResult], int]:  # type: ignore[assignment]
    """All rounds with ranks and links that always fail; the results and how many rounds."""
    results: Dict[Pair, PairResult] = {}
    waiting = first_rounds(count)
    rounds = 0
    while rounds < 20:
        matched = waiting.pop(0) if waiting else next_round(results, count)
        if not matched:
            return results, rounds
        ranks = [rank for pair in matched for rank in pair]
        assert len(ranks) == len(set(ranks)), "a rank in two pairs of one round"
        for pair in matched:
            assert pair not in results, "a pair for the second time"
            results[pair] = PairResult(not bad.intersection(pair) and pair not in links)
        rounds += 1
    raise AssertionError("no end")


@pytest.mark.parametrize("count", [64, 512])
@pytest.mark.parametrize("bad_count", [1, 2, 3])
def test_up_to_three_bad_of_many_are_found_in_two_rounds(count: int, bad_count: int) -> None:
    """A hundred draws each."""
    random = Random(count + bad_count)
    for _ in range(100):
        bad = set(random.sample(range(count), bad_count))
        results, rounds = played(count, bad)
        judged = judge(results)
        assert (tuple(sorted(bad)), ()) == (judged.bad, judged.links)
        # Two bad ranks that were paired with each other take a partner each.
        assert rounds == 2


@pytest.mark.parametrize("count", range(3, 20))
def test_one_bad_rank_of_few_is_found_wherever_it_is(count: int) -> None:
    """Odd and even numbers, each rank once."""
    for bad in range(count):
        judged = judge(played(count, {bad})[0])
        assert ((bad,), (), ()) == (judged.bad, judged.links, judged.undecided)


def test_pair_of_two_says_only_that_they_fail_together() -> None:
    """Nothing tells one from the other."""
    judged = judge(played(2, {1})[0])
    assert ((), (), ((0, 1),)) == (judged.bad, judged.links, judged.undecided)


@pytest.mark.parametrize("count", [3, 4, 5, 6, 7, 8])
def test_bad_link_of_few_is_found_wherever_it_is(count: int) -> None:
    """Both ends pass with everybody else."""
    for one in range(count):
        for two in range(one + 1, count):
            judged = judge(played(count, set(), {(one, two)})[0])
            assert ((), ((one, two),)) == (judged.bad, judged.links)


def test_all_good_ranks_are_accused_of_nothing() -> None:
    """And 512 of them are done in one round."""
    results, rounds = played(512, set())
    assert 1 == rounds
    assert ((), (), ()) == judge(results)[:3]


def test_majority_of_bad_ranks_still_ends() -> None:
    """Nobody good to pair with: it ends, and accuses no good rank."""
    random = Random(9)
    for count in range(2, 13):
        for _ in range(20):
            bad = set(random.sample(range(count), random.randrange(count + 1)))
            judged = judge(played(count, bad)[0])
            assert set(judged.bad) <= bad


def test_every_pair_of_four_meets_once_in_three_rounds() -> None:
    """The table of links is then whole."""
    rounds = first_rounds(4)
    met: List[Pair] = sorted(pair for each in rounds for pair in each)
    assert ([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)], 3) == (met, len(rounds))


def outcome(status: str, took_ns: int = 1000) -> Dict[str, object]:
    """What a rank tells of an item."""
    return {"status": status, "shortest_ns": took_ns, "median_ns": took_ns, "size_bytes": 1 << 20}


def test_pair_is_good_only_with_all_right_at_both() -> None:
    """A wrong item at one, no outcome at all, and no end."""
    item = "all_reduce/sum/fp32/262144+0"
    good = {4: {item: outcome("ok", 2_000_000)}, 7: {item: outcome("ok", 1_000_000)}}
    bad = {4: good[4], 7: {item: outcome("wrong")}}
    right = result_of((4, 7), good, ended=True)
    # 2**20 bytes in a millisecond; the factor of two ranks is 1.
    assert PairResult(True, (), 1048) == right
    assert (False, (item,)) == result_of((4, 7), bad, ended=True)[:2]
    assert not result_of((4, 7), good, ended=False).ok
    assert not result_of((4, 7), {4: good[4]}, ended=True).ok
    assert {"4-7": 1048} == links_of({(4, 7): right, (5, 6): PairResult(False)})
