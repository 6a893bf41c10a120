"""The expected results against sums that were really formed, rank by rank, in plain integers."""

from __future__ import annotations

from importlib.util import find_spec
from random import Random
from typing import List

import pytest

from envaudit.checks.collectives.contribution import (
    AVG,
    MAX,
    MIN,
    PRODUCT,
    REDUCIBLE,
    REDUCTIONS,
    SUM,
    Law,
    counts,
    expected,
    law_of,
    value,
)

LARGEST = {
    "fp64": 2**53,
    "fp32": 2**24,
    "fp16": 2**11,
    "bf16": 2**8,
    "e4m3": 2**4,
    "e5m2": 2**3,
    "int64": 2**63 - 1,
    "int32": 2**31 - 1,
    "int8": 127,
    "uint8": 255,
}
WORLDS = range(2, 1001)


def naive(values: List[int], reduction: str) -> int:
    """The reduction as its definition says it."""
    if reduction == PRODUCT:
        product = 1
        for each in values:
            product *= each
        return product
    return {MIN: min, MAX: max, SUM: sum, AVG: sum}[reduction](values)


def test_expected_equals_the_reduction_over_all_ranks_in_every_world_to_1000() -> None:
    """Each world in one dtype for each reduction, at a random element."""
    random = Random(2)
    wrong = []
    for world in WORLDS:
        dtype = REDUCIBLE[world % len(REDUCIBLE)]
        for reduction in REDUCTIONS:
            law = law_of(world, dtype, reduction, seed=world)
            index = random.randrange(1 << 21)
            formed = naive([value(law, rank, index) for rank in range(world)], reduction)
            if formed != expected(law, index, reduction, counts(law)):
                wrong.append((world, dtype, reduction, index))
    assert [] == wrong


@pytest.mark.parametrize("world", [2, 3, 7, 8, 9, 63, 64, 65, 513])
def test_expected_equals_the_reduction_over_all_ranks_through_a_whole_period(world: int) -> None:
    """Every class of elements, in every dtype and reduction."""
    for dtype in REDUCIBLE:
        for reduction in REDUCTIONS:
            law = law_of(world, dtype, reduction, seed=7)
            table = counts(law)
            places = range(law.period) if law.period < 60 else range(0, law.period, law.period // 20)
            for index in places:
                formed = naive([value(law, rank, index) for rank in range(world)], reduction)
                assert formed == expected(law, index, reduction, table), (dtype, reduction, index)


def test_no_partial_sum_leaves_the_exact_range_in_any_world() -> None:
    """All active ranks at their largest, of one sign; a product likewise."""
    for world in WORLDS:
        for dtype in REDUCIBLE:
            law = law_of(world, dtype, SUM, 0)
            assert -(-world // law.stride) * law.k <= LARGEST[dtype], (world, dtype)
            assert -(-world // law_of(world, dtype, PRODUCT, 0).stride) <= 6


@pytest.mark.parametrize("world", [2, 9, 100, 1000])
def test_active_ranks_are_every_stride_th(world: int) -> None:
    """At most ⌈W / S⌉ in one element, and each rank in one of S."""
    for dtype in REDUCIBLE:
        law = law_of(world, dtype, SUM, 0)
        active = [sum(row) for row in counts(law)]
        assert -(-world // law.stride) == max(active)
        assert world * law.digits == sum(active)


def test_law_at_a_thousand_ranks_is_as_dense_as_each_dtype_allows() -> None:
    """Magnitude and stride, by hand: ⌈1000 / S⌉ · k within 2**p."""
    laws = {dtype: law_of(1000, dtype, SUM, 0) for dtype in ("fp32", "fp16", "bf16", "int8")}
    assert {"fp32": (16777, 1), "fp16": (4, 2), "bf16": (3, 12), "int8": (3, 24)} == {
        dtype: (law.k, law.stride) for dtype, law in laws.items()
    }


def test_ranks_differ_within_neighbouring_elements() -> None:
    """No two ranks of a world of 513 contribute the same over eight periods."""
    law = law_of(513, "bf16", SUM, seed=3)
    rows = {tuple(value(law, rank, index) for index in range(8 * law.period)) for rank in range(513)}
    assert 513 == len(rows)


def test_contributions_of_an_unsigned_dtype_are_never_negative() -> None:
    """uint8 has no negative numbers, and its products none either."""
    for reduction in REDUCTIONS:
        law = law_of(5, "uint8", reduction, seed=1)
        assert min(value(law, rank, index) for rank in range(5) for index in range(200)) >= 0


def test_world_without_ranks_is_refused() -> None:
    """A law needs somebody who follows it."""
    with pytest.raises(ValueError, match="a world of 0 ranks"):
        law_of(0, "fp32", SUM, 0)


@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch: nox -s checks")
class TestOnADevice:
    """What torch makes of it is what plain Python says."""

    @pytest.mark.parametrize("world", [1, 2, 6, 8, 9, 70, 1000])
    def test_tensors_equal_the_law_element_by_element(self, world: int) -> None:
        """Contributions, sums, extremes and products, from a start inside the stream on."""
        from envaudit.checks.collectives.contribution import reduced, values

        start, count = 4093, 150
        for dtype in ("fp32", "int8", "uint8"):
            for reduction in REDUCTIONS:
                law = law_of(world, dtype, reduction, seed=11)
                table = counts(law)
                rank = world // 2
                places = range(start, start + count)
                assert [value(law, rank, index) for index in places] == values(
                    law, rank, count, "cpu", start
                ).tolist()
                assert [expected(law, index, reduction, table) for index in places] == reduced(
                    law, reduction, count, "cpu", start
                ).tolist(), (dtype, reduction)

    @pytest.mark.parametrize("world", [2, 7, 100, 1000])
    def test_sums_in_the_own_precision_are_exact_in_any_order(self, world: int) -> None:
        """Each addition rounded to the dtype, the ranks in three orders."""
        import torch

        from envaudit.checks.collectives.contribution import reduced, values
        from envaudit.checks.collectives.reference import torch_dtype

        random = Random(world)
        for dtype in ("fp32", "fp16", "bf16", "int8"):
            law = law_of(world, dtype, SUM, seed=5)
            kind = torch_dtype(dtype)
            wanted = reduced(law, SUM, 64, "cpu").to(kind)
            order = list(range(world))
            for _ in range(3):
                random.shuffle(order)
                total = torch.zeros(64, dtype=kind)
                for rank in order:
                    total = total + values(law, rank, 64, "cpu").to(kind)
                assert wanted.tolist() == total.tolist(), dtype

    @pytest.mark.parametrize("world", [3, 7, 100, 999])
    def test_average_of_no_power_of_two_stays_within_its_tolerance(self, world: int) -> None:
        """Summed and divided, and multiplied by the rounded 1/W and summed: both ways of backends."""
        import torch

        from envaudit.checks.collectives.contribution import values
        from envaudit.checks.collectives.reference import difference, reduction_block, torch_dtype

        for dtype in ("fp32", "bf16", "fp16"):
            law = law_of(world, dtype, AVG, seed=5)
            kind = torch_dtype(dtype)
            parts = [values(law, rank, 64, "cpu").to(kind) for rank in range(world)]
            divided = torch.stack([part.to(torch.float32) for part in parts]).sum(0).div(world).to(kind)
            multiplied = torch.zeros(64, dtype=kind)
            for part in parts:
                multiplied = multiplied + part * (1.0 / world)
            for got in (divided, multiplied):
                assert difference(reduction_block(law, AVG, dtype, got)) is None, dtype
            without_one = divided - parts[0] / world
            assert difference(reduction_block(law, AVG, dtype, without_one)) is not None or world > 7


def test_law_is_a_value() -> None:
    """Two of the same world, dtype and seed are equal, of another seed they are not."""
    assert law_of(4, "fp32", SUM, 1) == law_of(4, "fp32", SUM, 1)
    assert law_of(4, "fp32", SUM, 1) != law_of(4, "fp32", SUM, 2)
    assert isinstance(law_of(4, "fp32", SUM, 1), Law)
