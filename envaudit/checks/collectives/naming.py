"""Who is at fault for wrong results: judged on the hub, from what every rank has seen.

Four kinds of evidence, the first that says something naming the culprit, the others to contradict it:

1. *Cells*. What is copied says whose bits arrived wrong, and where: a cell (source, receiver). A wrong
   column is the source, a wrong row the receiver, a single cell that link or one of its ends.
2. *Residuals*. A sum that is wrong by one rank's whole contribution names that rank.
3. *Alone*. A rank whose all_reduce is wrong where everybody else's is right has spoilt it itself.
4. *Pairs*. A rank that fails with a good partner is bad.

With two ranks, or two nodes, no evidence tells the one from the other: the answer is "one of A, B". When
evidence contradicts itself nobody is named; the wrong results stand all the same. Standard library.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from envaudit.checks.collectives import items as names
from envaudit.checks.collectives import pairs as pairing
from envaudit.checks.collectives.items import item_of
from envaudit.checks.collectives.pairs import Pair

RANK, LINK, ONE_OF = "rank", "link", "one_of"

# More culprits than this at once are not told apart from one that nobody has thought of.
_MOST = 3
# The same single cell in so many collectives is no accident of where one rank's fault fell.
_SURE_CELLS = 5

Cell = Tuple[int, int]
Outcomes = Mapping[int, Mapping[str, Mapping[str, Any]]]


class Suspect(NamedTuple):
    """One who may be at fault.

    Attributes:
        kind: RANK, LINK (from link[0] to link[1]; the ends are in `ranks`, for each may be the cause), or
            ONE_OF several ranks.
        ranks: the rank, or those it may be.
        link: source and receiver; None where no link is named.
        sure: whether the evidence allows nobody else.
        how: what it is seen by, one line for people.
    """

    kind: str
    ranks: Tuple[int, ...]
    link: Optional[Tuple[int, int]]
    sure: bool
    how: str


def name_culprits(
    world: int,
    outcomes: Outcomes,
    matrices: Mapping[int, Mapping[str, Any]],
    pairs: Optional[Mapping[Pair, Any]] = None,
    nodes: Optional[Mapping[int, str]] = None,
) -> List[Suspect]:
    """The suspects, the surest first; empty when nothing is wrong, or nothing says who.

    Args:
        world: how many ranks.
        outcomes: by rank and item, as `rank.outcome_of` makes them.
        matrices: by rank, what its raw all_gather found (`rank.Runner.matrix`).
        pairs: what became of pairs of ranks, `pairs.PairResult`.
        nodes: where each rank runs; with it several ranks of one node are named together.
    """
    cells = cells_of(world, outcomes, matrices)
    wrong = _wrong_items(outcomes)
    failed = [pair for pair, each in (pairs or {}).items() if not each.ok]
    if not cells and not wrong and not failed:
        return []
    if world == 2:
        return [Suspect(ONE_OF, (0, 1), None, False, "with two ranks nothing tells one from the other")]
    results = pairs or {}
    found = _by_cells(world, cells)
    if found is None and nodes is not None:
        found = _by_nodes(world, cells, nodes)
    if found is None:
        return _by_pairs(results)
    decided = _by_pairs(results, decided=True)
    if found:
        return [_narrowed(each, decided) for each in found]
    return decided or _by_sums(world, outcomes) or _by_pairs(results)


def _narrowed(suspect: Suspect, by_pairs: Sequence[Suspect]) -> Suspect:
    """A link, when pairs have found one of its ends bad: that fails with others, too."""
    if suspect.kind != LINK:
        return suspect
    return next((each for each in by_pairs if each.ranks[0] in suspect.ranks), suspect)


def cells_of(world: int, outcomes: Outcomes, matrices: Mapping[int, Mapping[str, Any]]) -> Dict[Cell, int]:
    """(source, receiver) to the number of collectives in which its bits arrived wrong.

    A broadcast is passed on by others on its way, and says nothing of a link: it is left out.
    """
    cells: Dict[Cell, int] = {}
    for receiver, matrix in matrices.items():
        for source in matrix.get("wrong", {}):
            _add(cells, int(source), receiver, world)
    for receiver, rows in outcomes.items():
        for name, row in rows.items():
            if row["status"] == "wrong" and item_of(name).op in (
                names.ALL_GATHER,
                names.ALL_TO_ALL,
                names.SEND_RECV,
            ):
                for source in row["wrong"]["sources"]:
                    _add(cells, int(source), receiver, world)
    return cells


def _add(cells: Dict[Cell, int], source: int, receiver: int, world: int) -> None:
    if 0 <= source < world and 0 <= receiver < world:
        cells[source, receiver] = cells.get((source, receiver), 0) + 1


def _wrong_items(outcomes: Outcomes) -> Set[str]:
    return {name for rows in outcomes.values() for name, row in rows.items() if row["status"] == "wrong"}


def _by_cells(world: int, cells: Mapping[Cell, int]) -> Optional[List[Suspect]]:
    """Suspects that together explain every cell; None when there are cells, and no few of them do.

    The rank that explains most of what is left comes first: a column for a source, a row for a receiver.
    """
    left = dict(cells)
    found: List[Suspect] = []
    while left:
        if len(found) == _MOST:
            return None
        ranked = sorted(
            ((len(_of(rank, left)), rank) for rank in range(world)), key=lambda each: (-each[0], each[1])
        )
        (most, rank), (second, other) = ranked[0], ranked[1]
        own = _of(rank, left)
        if most == 1 or (most == 2 and second == 2 and _of(other, left) == own):
            # One cell, or one link in both directions.
            found.append(_single(left, own))
        elif second == most and len(set(_of(other, left)) - set(own)) < 2:
            # Either of the two explains the same: nothing tells them apart.
            return None
        else:
            found.append(_whole(world, rank, own))
        for cell in own:
            del left[cell]
    if world <= 2 * sum(len(each.ranks) for each in found if each.kind == RANK):
        return None if found else []
    return sorted(found, key=lambda each: not each.sure)


def _of(rank: int, cells: Mapping[Cell, int]) -> List[Cell]:
    return [cell for cell in cells if rank in cell]


def _single(cells: Mapping[Cell, int], own: Sequence[Cell]) -> Suspect:
    source, receiver = own[0]
    times = sum(cells[cell] for cell in own)
    seen = f"in {times} collective{'s' if times > 1 else ''}"
    if source == receiver:
        return Suspect(RANK, (source,), None, True, f"its own copy of its own data is wrong {seen}")
    sure = times >= _SURE_CELLS
    how = f"what rank {source} sends arrives wrong at rank {receiver} alone, {seen}"
    return Suspect(LINK, (source, receiver), (source, receiver), sure, how)


def _whole(world: int, rank: int, own: Sequence[Cell]) -> Suspect:
    receivers = {receiver for source, receiver in own if source == rank and receiver != rank}
    sources = {source for source, receiver in own if receiver == rank and source != rank}
    if len(receivers) >= len(sources):
        how = f"what it sends arrives wrong at {len(receivers)} of {world - 1} others"
    else:
        how = f"what it receives is wrong from {len(sources)} of {world - 1} others"
    return Suspect(RANK, (rank,), None, True, how)


def _by_nodes(world: int, cells: Mapping[Cell, int], nodes: Mapping[int, str]) -> Optional[List[Suspect]]:
    """The same with all ranks of a node as one."""
    order = list(dict.fromkeys(nodes[rank] for rank in range(world)))
    if len(order) < 2:
        return None
    place = {rank: order.index(nodes[rank]) for rank in range(world)}
    members = {name: tuple(rank for rank in range(world) if nodes[rank] == name) for name in order}
    if len(order) == 2:
        both = tuple(range(world))
        return [Suspect(ONE_OF, both, None, False, "with two nodes nothing tells one from the other")]
    folded: Dict[Cell, int] = {}
    for (source, receiver), times in cells.items():
        cell = place[source], place[receiver]
        folded[cell] = folded.get(cell, 0) + times
    found = _by_cells(len(order), folded)
    if found is None:
        return None
    return [_of_nodes(each, order, members) for each in found]


def _of_nodes(suspect: Suspect, order: Sequence[str], members: Mapping[str, Tuple[int, ...]]) -> Suspect:
    named = [order[place] for place in suspect.ranks]
    return suspect._replace(
        kind=LINK if suspect.kind == LINK else ONE_OF,
        ranks=tuple(rank for name in named for rank in members[name]),
        link=None,
        how=f"{' and '.join(named)}, taken as one: {suspect.how.replace('rank', 'node')}",
    )


def _by_sums(world: int, outcomes: Outcomes) -> List[Suspect]:
    """By residuals, and by who alone has a wrong all_reduce; nobody where two are accused."""
    accused: Dict[int, str] = {}
    for rows in outcomes.values():
        for name, row in rows.items():
            residual = row["wrong"]["residual"] if row["status"] == "wrong" else {}
            if residual.get("kind") and len(residual["ranks"]) == 1:
                (rank,) = residual["ranks"]
                accused.setdefault(int(rank), f"{name} is wrong by its contribution ({residual['kind']})")
    spoilt = _spoilt(outcomes)
    sure = True
    if not accused and len(spoilt) == 1 and world > 2:
        (rank,) = spoilt
        accused[rank] = "its results are wrong where every other rank's are right"
        # Once alone, it may be the last hop that reached it.
        sure = spoilt[rank] > 1
    if len(accused) != 1:
        return []
    ((rank, how),) = accused.items()
    return [Suspect(RANK, (rank,), None, sure, how)]


def _spoilt(outcomes: Outcomes) -> Dict[int, int]:
    """At which ranks collectives came out wrong that are checked at all of them alike, and how many."""
    spoilt: Dict[int, int] = {}
    for rank, rows in outcomes.items():
        for name, row in rows.items():
            if row["status"] == "wrong" and item_of(name).op in (names.ALL_REDUCE, names.DDP):
                spoilt[rank] = spoilt.get(rank, 0) + 1
    return spoilt


def _by_pairs(results: Mapping[Pair, Any], decided: bool = False) -> List[Suspect]:
    """By pairs; with `decided`, only where they leave no pair open."""
    judged = pairing.judge(results)
    found = [
        Suspect(RANK, (rank,), None, True, "it fails with partners that pass with others")
        for rank in judged.bad
    ]
    if decided:
        return found if found and not judged.links and not judged.undecided else []
    for one, two in judged.links:
        how = "they fail with each other, and each passes with others"
        found.append(Suspect(LINK, (one, two), (one, two), False, how))
    for pair in judged.undecided:
        if not any(rank in judged.bad for rank in pair):
            how = "they fail with each other, and nobody tells them apart"
            found.append(Suspect(ONE_OF, pair, None, False, how))
    return found if len(found) <= _MOST else []
