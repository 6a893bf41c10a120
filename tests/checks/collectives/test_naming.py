"""Who is named, from evidence made by hand."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Tuple

from envaudit.checks.collectives.naming import LINK, ONE_OF, RANK, Suspect, name_culprits
from envaudit.checks.collectives.pairs import PairResult


def matrices(world: int, cells: Iterable[Tuple[int, int]]) -> Dict[int, Dict[str, Any]]:
    """What each receiver tells, of cells (source, receiver) that are wrong."""
    rows: Dict[int, Dict[str, Any]] = {rank: {"wrong": {}, "compared": 100} for rank in range(world)}
    for source, receiver in cells:
        rows[receiver]["wrong"][str(source)] = 7
    return rows


def wrong(kind: str = "", ranks: Iterable[int] = (), sources: Iterable[int] = ()) -> Dict[str, Any]:
    """An outcome that is wrong."""
    evidence = {
        "residual": {"kind": kind, "ranks": list(ranks)},
        "sources": {str(source): 1 for source in sources},
        "wrong": 9,
        "guards": 0,
    }
    return {"status": "wrong", "reason": "", "wrong": evidence}


OK = {"status": "ok", "reason": "", "wrong": None}
SUM = "all_reduce/sum/fp32/1021+0"


def brief(suspects: List[Suspect]) -> List[Tuple[str, Tuple[int, ...], bool]]:
    """All but the words."""
    return [(each.kind, each.ranks, each.sure) for each in suspects]


def test_nothing_wrong_names_nobody() -> None:
    """Good outcomes, a clean matrix, pairs that pass."""
    rows = {rank: {SUM: OK} for rank in range(4)}
    assert [] == name_culprits(4, rows, matrices(4, ()), {(0, 1): PairResult(True)})


def test_two_ranks_are_never_told_apart() -> None:
    """Whatever the evidence points at."""
    for cells in ([(0, 1)], [(0, 0), (0, 1)]):
        found = name_culprits(2, {}, matrices(2, cells))
        assert [(ONE_OF, (0, 1), False)] == brief(found)


def test_wrong_column_names_the_source() -> None:
    """With and without its own copy."""
    for own in ([], [(2, 2)]):
        cells = [(2, receiver) for receiver in (0, 1, 3)] + own
        assert [(RANK, (2,), True)] == brief(name_culprits(4, {}, matrices(4, cells)))


def test_wrong_row_names_the_receiver() -> None:
    """It gets from everybody what nobody sent."""
    cells = [(source, 1) for source in (0, 2, 3)]
    (found,) = name_culprits(4, {}, matrices(4, cells))
    assert (RANK, (1,), "what it receives is wrong from 3 of 3 others") == (
        found.kind,
        found.ranks,
        found.how,
    )


def test_single_cell_is_a_link_or_one_of_its_ends() -> None:
    """Sure only when it comes again and again."""
    found = name_culprits(4, {}, matrices(4, [(3, 1)]))
    assert [(LINK, (3, 1), False)] == brief(found)
    rows = {1: {f"all_gather/fp32/{size}+0": wrong(sources=[3]) for size in range(1, 5)}}
    (sure,) = name_culprits(4, rows, matrices(4, [(3, 1)]))
    assert ((3, 1), True) == (sure.link, sure.sure)


def test_single_cell_of_a_rank_that_fails_in_pairs_is_that_rank() -> None:
    """Pairs tell the end of a link."""
    results = {(0, 2): PairResult(True), (1, 3): PairResult(False), (0, 3): PairResult(False)}
    results[1, 2] = PairResult(True)
    found = name_culprits(4, {}, matrices(4, [(3, 1)]), results)
    assert [(RANK, (3,), True)] == brief(found)


def test_cell_that_comes_again_and_again_is_its_end_where_that_fails_with_others_too() -> None:
    """A rank that spoils the first element of what it gets always spoils what came from rank 0."""
    rows = {1: {f"all_gather/fp32/{size}+1": wrong(sources=[0]) for size in range(1, 9)}}
    results = {(0, 1): PairResult(False), (1, 2): PairResult(False), (0, 2): PairResult(True)}
    found = name_culprits(3, rows, matrices(3, [(0, 1)]), results)
    assert [(RANK, (1,), True)] == brief(found)


def test_two_bad_ranks_of_many_are_both_named() -> None:
    """One as a source, one as a receiver."""
    cells = [(2, rank) for rank in range(8) if rank != 2] + [(rank, 5) for rank in range(8) if rank != 5]
    assert {(2,), (5,)} == {each.ranks for each in name_culprits(8, {}, matrices(8, cells))}


def test_ring_that_is_cut_names_no_rank() -> None:
    """A bad link of a ring spoils what passes it: half of all cells, no column and no row."""
    world = 8
    cells = [(s, d) for s in range(world) for d in range(world) if (3 - s) % world < (d - s) % world]
    assert all(each.kind != RANK for each in name_culprits(world, {}, matrices(world, cells)))


def test_lost_contribution_names_its_rank() -> None:
    """Every rank sees the same residual."""
    rows = {rank: {SUM: wrong("dropped", [2])} for rank in range(4)}
    assert [(RANK, (2,), True)] == brief(name_culprits(4, rows, matrices(4, ())))


def test_residuals_that_contradict_each_other_name_nobody() -> None:
    """One says 2, one says 3."""
    rows = {0: {SUM: wrong("dropped", [2])}, 1: {SUM: wrong("dropped", [3])}}
    assert [] == name_culprits(4, rows, matrices(4, ()))


def test_rank_that_alone_is_wrong_is_named() -> None:
    """The others have the right sum. Once alone, it may be what brought it to that rank last."""
    rows = {rank: {SUM: wrong() if rank == 3 else OK} for rank in range(4)}
    assert [(RANK, (3,), False)] == brief(name_culprits(4, rows, matrices(4, ())))
    for rank, row in rows.items():
        row["all_reduce/max/fp32/1021+0"] = wrong() if rank == 3 else OK
    assert [(RANK, (3,), True)] == brief(name_culprits(4, rows, matrices(4, ())))


def test_pairs_decide_where_a_sum_says_nothing() -> None:
    """A wrong sum everywhere, without a residual."""
    rows = {rank: {SUM: wrong()} for rank in range(4)}
    results = {(0, 1): PairResult(True), (2, 3): PairResult(False), (0, 2): PairResult(False)}
    results[1, 3] = PairResult(True)
    assert [(RANK, (2,), True)] == brief(name_culprits(4, rows, matrices(4, ()), results))
    assert [] == name_culprits(4, rows, matrices(4, ()))


def test_pair_that_is_not_told_apart_is_one_of_two() -> None:
    """Both fail, and there was nobody to pair them with."""
    rows = {rank: {SUM: wrong()} for rank in range(4)}
    results = {(0, 2): PairResult(True), (1, 3): PairResult(False)}
    assert [(ONE_OF, (1, 3), False)] == brief(name_culprits(4, rows, matrices(4, ()), results))


def test_all_ranks_of_a_bad_node_are_named_as_one() -> None:
    """Its network card spoils what leaves it; within a node all is right."""
    nodes = {rank: f"node{rank // 4}" for rank in range(16)}
    cells = [(s, d) for s in range(4, 8) for d in range(16) if nodes[s] != nodes[d]]
    (found,) = name_culprits(16, {}, matrices(16, cells), nodes=nodes)
    assert (ONE_OF, (4, 5, 6, 7)) == (found.kind, found.ranks)
    assert found.how.startswith("node1, taken as one")


def test_two_nodes_are_never_told_apart() -> None:
    """All that crosses is wrong."""
    nodes = {rank: f"node{rank // 4}" for rank in range(8)}
    cells = [(s, d) for s in range(4) for d in range(4, 8)]
    (found,) = name_culprits(8, {}, matrices(8, cells), nodes=nodes)
    assert (ONE_OF, tuple(range(8)), False) == (found.kind, found.ranks, found.sure)


def test_cells_outside_the_world_are_ignored() -> None:
    """A hub hears from strangers, too."""
    assert [] == name_culprits(4, {}, {1: {"wrong": {"99": 1}, "compared": 1}})
