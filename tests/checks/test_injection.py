"""Faults are seen: single bits flipped in results, accumulators and operands."""

from __future__ import annotations

from random import Random

import pytest

torch = pytest.importorskip("torch", reason="needs torch: nox -s checks")

from envaudit.checks import registry  # noqa: E402
from envaudit.checks.device import facts_of  # noqa: E402
from envaudit.checks.operands import ADJACENT, SPREAD  # noqa: E402
from envaudit.checks.outcome import NOT_RUN, OK, UNSTABLE, WRONG  # noqa: E402
from envaudit.checks.trial import Effort, attempt  # noqa: E402
from tests.checks.injection import (  # noqa: E402
    ARITHMETIC,
    product,
    seen_in_accumulators,
    seen_in_operands,
    seen_in_results,
    wrong_result,
)

SHAPE = (48, 1024, 40)
CAMPAIGN_SHAPE = (256, 1024, 256)
ORDERS = (SPREAD, ADJACENT)

# Parts of 1000 that must be seen, the rates of docs/measurements.md less three standard deviations of
# 400 tries. What is not seen was rounded away: the result is right to the bit.
SEEN_IN_ACCUMULATORS = {
    "fp64": 955,
    "fp32": 920,
    "bf16": 740,
    "fp16": 845,
    "int8": 1000,
    "e4m3": 595,
    "e5m2": 595,
}
SEEN_IN_OPERANDS = {
    "fp64": 925,
    "fp32": 870,
    "bf16": 985,
    "fp16": 985,
    "int8": 1000,
    "e4m3": 950,
    "e5m2": 950,
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", ARITHMETIC)
def test_flip_in_a_product_s_result_is_always_seen(dtype: str, order: str) -> None:
    """300 of 300, in every dtype."""
    made = product(dtype, order, SHAPE, seed=1)
    assert 300 == seen_in_results(made, Random(f"{dtype} {order}"), 300)


@pytest.mark.parametrize("dtype", ARITHMETIC)
def test_flip_in_an_accumulator_is_seen_unless_it_is_rounded_away(dtype: str) -> None:
    """At the rate of its dtype, where the accumulator grows large before it shrinks."""
    made = product(dtype, SPREAD, SHAPE, seed=2)
    seen = seen_in_accumulators(made, Random(dtype), 400)
    assert seen >= 400 * SEEN_IN_ACCUMULATORS[dtype] // 1000


@pytest.mark.parametrize("dtype", ARITHMETIC)
def test_flip_in_an_operand_is_seen_unless_it_is_rounded_away(dtype: str) -> None:
    """At the rate of its dtype; the sign of a zero and the lowest bits of wide formats change nothing."""
    made = product(dtype, SPREAD, SHAPE, seed=3)
    assert seen_in_operands(made, Random(dtype), 400) >= 400 * SEEN_IN_OPERANDS[dtype] // 1000


CASES = registry.cases(facts_of("cpu"))


@pytest.mark.parametrize("name", [case.name for case in CASES if case.own is None])
def test_flip_in_any_operation_s_result_is_seen_and_told(name: str) -> None:
    """The outcome names the element and the bit; of an operation without a right answer, that it varies."""
    (case,) = [each for each in CASES if each.name == name]
    broken, where = wrong_result(case, Random(name))
    outcome = attempt(broken, facts_of("cpu"), seed=4, effort=Effort(repeats=1))
    if outcome.status == NOT_RUN:
        pytest.skip(outcome.reason)
    if not case.exact:
        assert UNSTABLE == outcome.status
        return
    index, bit = where()
    assert outcome.mismatch is not None
    assert (WRONG, 1, index, (bit,)) == (
        outcome.status,
        outcome.mismatch.wrong,
        outcome.mismatch.first_index,
        outcome.mismatch.flipped_bits,
    )


@pytest.mark.parametrize("name", ["gemm/fp32/spread", "reductions/fp32/rows", "elementwise/fp64/div"])
def test_operation_that_nothing_was_done_to_is_right(name: str) -> None:
    """The wrapped operations above fail for the flip, and for nothing else."""
    (case,) = [each for each in CASES if each.name == name]
    assert OK == attempt(case, facts_of("cpu"), seed=4).status


@pytest.mark.kernels
@pytest.mark.timeout(900)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", ARITHMETIC)
def test_campaign_of_ten_thousand_flips(dtype: str, order: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The table of docs/measurements.md: one row for each dtype and order."""
    made = product(dtype, order, CAMPAIGN_SHAPE, seed=5)
    random = Random(f"{dtype} {order}")
    count = 10_000
    in_results = seen_in_results(made, random, count)
    in_accumulators = seen_in_accumulators(made, random, count)
    in_operands = seen_in_operands(made, random, count)
    with capsys.disabled():
        rates = (f"{100 * seen / count:.2f}" for seen in (in_results, in_accumulators, in_operands))
        print(f"\n| {dtype} | {order} | " + " | ".join(rates) + " |")
    assert count == in_results
    if order == SPREAD:
        assert in_accumulators >= count * SEEN_IN_ACCUMULATORS[dtype] // 1000
        assert in_operands >= count * SEEN_IN_OPERANDS[dtype] // 1000
