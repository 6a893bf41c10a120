"""The list that all ranks go through."""

from __future__ import annotations

from typing import Any, Dict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envaudit.checks.collectives.items import (
    DTYPES,
    CollectivePlan,
    Item,
    item_of,
    items,
    narrowed,
    options_of,
    plan_of,
)

PLANS = st.builds(
    CollectivePlan,
    sizes=st.lists(st.integers(1, 70000), max_size=3, unique=True).map(tuple),
    dtypes=st.lists(st.sampled_from(DTYPES), max_size=3, unique=True).map(tuple),
    ops=st.lists(st.sampled_from(("all_reduce", "all_gather/*", "ddp", "barrier")), max_size=2).map(tuple),
    offsets=st.lists(st.integers(0, 64), max_size=2, unique=True).map(tuple),
    cap=st.integers(0, 1 << 20),
    repeats=st.integers(0, 1000),
    ddp=st.booleans(),
)


@given(PLANS)
def test_plan_survives_json_and_options(plan: CollectivePlan) -> None:
    """Both ways of telling it to another process."""
    assert plan == CollectivePlan.from_json(plan.to_json())
    assert plan == plan_of(options_of(plan))


@given(PLANS, st.integers(1, 1000), st.booleans())
def test_items_of_any_plan_have_names_of_their_own(plan: CollectivePlan, world: int, cuda: bool) -> None:
    """No name twice, each name leads back to its item, and only what is wanted."""
    backend = "nccl" if cuda else "gloo"
    found = items(plan, backend, world, cuda)
    named = [item.name for item in found]
    assert len(named) == len(set(named))
    assert [item._replace(not_run="") for item in found] == [item_of(name) for name in named]
    assert all(plan.wants(name) for name in named)


def test_default_list_has_every_operation_reduction_and_dtype() -> None:
    """And every size at both offsets."""
    found = items(CollectivePlan(), "gloo", 4, cuda=False)
    by_op: Dict[str, set[Any]] = {}
    for item in found:
        by_op.setdefault(item.op, set()).add(item.dtype)
    assert [
        *("barrier", "all_reduce", "all_gather", "reduce_scatter", "broadcast"),
        *("reduce", "all_to_all", "send_recv", "ddp"),
    ] == list(by_op)
    assert set(DTYPES) == by_op["all_gather"] == by_op["send_recv"]
    assert set(DTYPES) - {"bool"} == by_op["all_reduce"] == by_op["reduce_scatter"]
    reductions = {item.reduction for item in found if item.op == "all_reduce"}
    assert {"sum", "min", "max", "product", "avg"} == reductions
    swept = {(i.size, i.offset) for i in found if i.op == "all_reduce" and i.dtype == "fp32"}
    assert {(size, at) for size in (1, 3, 1021, 4097, 65537) for at in (0, 1)} == swept


def test_sizes_on_gpus_reach_every_protocol() -> None:
    """32 and 256 MiB of fp32."""
    found = items(CollectivePlan(), "nccl", 8, cuda=True)
    sizes = {4 * item.size for item in found if item.op == "all_reduce" and item.dtype == "fp32"}
    assert {32 << 20, 256 << 20} <= sizes


def test_blocks_of_many_ranks_stay_within_what_one_buffer_has() -> None:
    """A thousand blocks of 256 MiB would be no test but an accident."""
    for world in (8, 64, 1000):
        found = items(CollectivePlan(), "nccl", world, cuda=True)
        blocked = [item for item in found if item.op in ("all_gather", "reduce_scatter", "all_to_all")]
        assert blocked
        assert max(item.size for item in blocked) * world <= 1 << 26


def test_given_sizes_are_tried_in_every_dtype() -> None:
    """The user's choice is no sample."""
    plan = CollectivePlan(sizes=(7, 9), dtypes=("fp32", "int8"), ops=("all_gather",))
    assert {
        *("all_gather/fp32/7+0", "all_gather/fp32/9+0", "all_gather/fp32/7+1", "all_gather/fp32/9+1"),
        *("all_gather/int8/7+0", "all_gather/int8/9+0"),
    } == {item.name for item in items(plan, "gloo", 2, cuda=False)}


def test_one_rank_sends_nothing() -> None:
    """There is nobody to receive it."""
    alone = items(CollectivePlan(ops=("send_recv/fp32",)), "gloo", 1, cuda=False)
    assert {"needs two ranks"} == {item.not_run for item in alone}


def test_pairs_try_what_was_wrong_and_the_raw_copies() -> None:
    """Without DDP, whose faults the others show."""
    plan = narrowed(CollectivePlan(), ["reduce_scatter/max/fp32/4097+1", "ddp"])
    names = {item.name.rpartition("/")[0] for item in items(plan, "gloo", 2, cuda=False)}
    assert {
        *("all_gather/fp32", "all_reduce/sum/fp32", "all_to_all/fp32", "send_recv/fp32"),
        "reduce_scatter/max/fp32",
    } == names


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"dtypes": ["fp33"]}, "no dtype fp33"),
        ({"sizes": [0]}, "a size"),
        ({"offsets": [65]}, "an offset"),
        ({"repeats": 1001}, "repeats"),
        ({"cap": -1}, "a cap below 0"),
    ],
)
def test_plan_out_of_range_is_refused(row: Dict[str, Any], said: str) -> None:
    """With the reason."""
    with pytest.raises(ValueError, match=said):
        CollectivePlan.from_json(row)


def test_name_of_nothing_is_refused() -> None:
    """A hub hears names from others."""
    with pytest.raises(ValueError, match="no collective"):
        item_of("all_reduction/sum/fp32/1+0")
    assert Item("barrier") == item_of("barrier")
