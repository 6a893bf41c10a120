"""Ranks in pairs: who fails with a good partner is bad; two that fail only with each other have a bad link.

The first round pairs everybody once, each with one from the other half, for neighbours share a node and
its roads. Every bad rank takes one partner down with it; in the second round both are paired with ranks
that have passed, which tells them apart: two rounds for 1 to 3 bad ranks, whatever their number. Up to
four ranks are paired in every way there is, which also fills the table of links.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from envaudit.checks.collectives.figures import link_milli_gbps

Pair = Tuple[int, int]

# Up to here every pair is tried in the first rounds; up to EXHAUSTIVE when the first round finds nobody.
ALL_PAIRS = 4
EXHAUSTIVE = 8


class PairResult(NamedTuple):
    """What became of one pair.

    Attributes:
        ok: it came to its end, and every item was right at both.
        wrong: items that came out wrong at either.
        milli_gbps: 10⁶ bytes a second from one to the other, the larger of what its items reached.
        ended: it came to its end at all.
    """

    ok: bool
    wrong: Tuple[str, ...] = ()
    milli_gbps: Optional[int] = None
    ended: bool = True


class Judged(NamedTuple):
    """What all pairs together say.

    Attributes:
        bad: ranks that failed with two partners, a good one among them, and never passed.
        links: pairs that failed while each of the two passed with somebody else.
        undecided: pairs that failed and of which it is not known which is bad.
        good: ranks that have passed with anybody.
    """

    bad: Tuple[int, ...]
    links: Tuple[Pair, ...]
    undecided: Tuple[Pair, ...]
    good: Tuple[int, ...]


def result_of(
    pair: Sequence[int], outcomes: Mapping[int, Mapping[str, Mapping[str, Any]]], ended: bool
) -> PairResult:
    """What a pair's outcomes, by rank and item, come to.

    Args:
        pair: its two ranks.
        outcomes: as `rank.outcome_of` makes them.
        ended: both came to their end.
    """
    rows = [outcomes.get(rank, {}) for rank in pair]
    wrong = sorted({name for row in rows for name, each in row.items() if each["status"] == "wrong"})
    return PairResult(ended and not wrong and all(rows), tuple(wrong), link_milli_gbps(rows), ended)


def first_rounds(count: int) -> List[List[Pair]]:
    """The rounds that are run whatever comes out; in each, every rank is in one pair at most."""
    if count < 2:
        return []
    if count <= ALL_PAIRS:
        return _all_matchings(count)
    half = count // 2
    rounds = [[(rank, rank + half) for rank in range(half)]]
    if count % 2:
        rounds.append([(0, count - 1)])
    return rounds


def next_round(results: Mapping[Pair, Any], count: int) -> List[Pair]:
    """The pairs that tell apart what is not yet; empty when there is nothing more to learn."""
    judged = judge(results)
    if not any(not each.ok for each in results.values()):
        return _untried_matching(results, count) if count <= EXHAUSTIVE else []
    known = {*judged.good, *judged.bad}
    suspects = sorted({rank for pair in judged.undecided for rank in pair} - known)
    tried = {frozenset(pair) for pair in results}
    free = list(judged.good)
    chosen: List[Pair] = []
    for suspect in suspects:
        partner = next((rank for rank in free if frozenset((rank, suspect)) not in tried), None)
        if partner is not None:
            free.remove(partner)
            chosen.append((min(partner, suspect), max(partner, suspect)))
    return chosen or _among(suspects, tried)


def judge(results: Mapping[Pair, Any]) -> Judged:
    """What the pairs say so far."""
    passed: Set[int] = {rank for pair, each in results.items() if each.ok for rank in pair}
    failed = [pair for pair, each in results.items() if not each.ok]
    partners: Dict[int, Set[int]] = {}
    for one, two in failed:
        partners.setdefault(one, set()).add(two)
        partners.setdefault(two, set()).add(one)
    bad = {
        rank
        for rank, others in partners.items()
        # One failure with a good partner may be the link's.
        if rank not in passed and len(others) > 1 and others & passed
    }
    known = passed | bad
    links = [pair for pair in failed if passed.issuperset(pair)]
    undecided = [pair for pair in failed if not known.issuperset(pair)]
    return Judged(tuple(sorted(bad)), tuple(links), tuple(undecided), tuple(sorted(passed)))


def _all_matchings(count: int) -> List[List[Pair]]:
    """Every pair once, in rounds: the circle method of a round-robin tournament."""
    places: List[int] = list(range(count)) + ([-1] if count % 2 else [])
    rounds = []
    for _ in range(len(places) - 1):
        half = len(places) // 2
        met = zip(places[:half], reversed(places[half:]))
        rounds.append(sorted((min(pair), max(pair)) for pair in met if -1 not in pair))
        places = [places[0], places[-1], *places[1:-1]]
    return rounds


def _untried_matching(results: Mapping[Pair, Any], count: int) -> List[Pair]:
    tried = {frozenset(pair) for pair in results}
    for matching in _all_matchings(count):
        left = [pair for pair in matching if frozenset(pair) not in tried]
        if left:
            return left
    return []


def _among(suspects: Sequence[int], tried: Set[Any]) -> List[Pair]:
    """Suspects with each other, when there is nobody who passed."""
    free = list(suspects)
    chosen: List[Pair] = []
    while free:
        one = free.pop(0)
        other = next((rank for rank in free if frozenset((one, rank)) not in tried), None)
        if other is not None:
            free.remove(other)
            chosen.append((one, other))
    return chosen


def links_of(results: Mapping[Pair, Any]) -> Dict[str, int]:
    """The table of links, `"0-3"` to thousandths of 10⁹ bytes a second, for the pairs that told one."""
    return {
        f"{one}-{two}": each.milli_gbps
        for (one, two), each in sorted(results.items())
        if each.milli_gbps is not None
    }
