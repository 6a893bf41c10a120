"""The operands that cancel and select, worked out once more with Python's integers."""

from __future__ import annotations

from random import Random

import pytest

torch = pytest.importorskip("torch", reason="needs torch: nox -s checks")

from envaudit.checks.bits import integer_view  # noqa: E402
from envaudit.checks.operands import ADJACENT, SELECT, SPREAD, SelectProduct, left, result, right  # noqa: E402


def of(order: str, exponents: int | None = None, seed: int = 1) -> SelectProduct:
    """A small product."""
    return SelectProduct(6, 16, 5, 9, exponents, order, seed)


@pytest.mark.parametrize("order", [SPREAD, ADJACENT, SELECT])
@pytest.mark.parametrize("seed", range(8))
def test_product_of_the_integers_is_the_gather(order: str, seed: int) -> None:
    """Whose reference multiplies nothing."""
    numbers = of(order, seed=seed)
    a, b = (side(numbers, "cpu", torch.int64).tolist() for side in (left, right))
    wanted = [[sum(x * y for x, y in zip(row, column)) for column in zip(*b)] for row in a]
    assert wanted == result(numbers, "cpu", torch.int64).tolist()


@pytest.mark.parametrize("order", [SPREAD, ADJACENT])
def test_operands_stay_in_their_range_and_are_all_in_use(order: str) -> None:
    """In [-k, k]; nothing is left out of the sum by being zero throughout."""
    for side in (left, right):
        values = side(of(order), "cpu", torch.int64)
        assert int(values.abs().max()) <= 9
        assert bool(values.any(dim=0).all())


@pytest.mark.parametrize("seed", range(20))
def test_smallest_integers_keep_their_range_too(seed: int) -> None:
    """With k = 1, which is all that fp8 has room for."""
    for side in (left, right):
        assert int(side(SelectProduct(8, 32, 8, 1, None, SPREAD, seed), "cpu", torch.int64).abs().max()) <= 1


def test_adjacent_pairs_return_to_the_result_after_every_pair() -> None:
    """A sum in order is never larger than half a pair and the result."""
    numbers = of(ADJACENT)
    a, b = (side(numbers, "cpu", torch.int64) for side in (left, right))
    sums = torch.cumsum(a[:, :, None] * b[None], dim=1)
    assert int(sums[:, 1::2].abs().max()) <= 9
    assert int(sums.abs().max()) <= 9 * 9 + 9


def test_selecting_adds_nothing_to_one_element() -> None:
    """One ±1 in each column, and zeros."""
    b = right(of(SELECT), "cpu", torch.int64)
    assert [1] * 5 == b.abs().sum(dim=0).tolist() == b.abs().amax(dim=0).tolist()


def test_spread_sums_grow_large() -> None:
    """Which is what makes errors in the low bits of the accumulator show."""
    numbers = SelectProduct(16, 512, 16, 100, None, SPREAD, 3)
    a, b = (side(numbers, "cpu", torch.int64) for side in (left, right))
    largest = torch.cumsum(a[:, :, None] * b[None], dim=1).abs().amax(dim=1)
    assert int(largest.min()) > 2 * 100 * 100


def test_scales_multiply_rows_and_columns_by_powers_of_two() -> None:
    """Every row has one factor, and the result has both factors."""
    plain, scaled = of(SPREAD), of(SPREAD, exponents=3)
    factors = left(scaled, "cpu", torch.float64) / left(plain, "cpu", torch.float64)
    for row in factors.tolist():
        met = {value for value in row if value == value}
        assert 1 == len(met)
        assert abs(met.pop()) in {2.0**power for power in range(-3, 4)}
    product = left(scaled, "cpu", torch.float64) @ right(scaled, "cpu", torch.float64)
    assert torch.equal(product, result(scaled, "cpu", torch.float64))


@pytest.mark.parametrize("make", [left, right, result])
def test_zeros_have_no_sign(make: object) -> None:
    """A sum of products ends with +0, and the data holds no −0 either."""
    random = Random(5)
    for _ in range(20):
        numbers = SelectProduct(9, 32, 7, 1, 2, SPREAD, random.randrange(2**40))
        values = make(numbers, "cpu", torch.float32)  # type: ignore[operator]
        assert 0 == int((integer_view(values) == -(2**31)).sum())
