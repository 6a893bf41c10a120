"""The bounds, held to their inequalities and to what was worked out by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envaudit.checks.tolerance import (
    PRECISIONS,
    attention_penalty,
    largest_adjacent_k,
    largest_cancelling_k,
    largest_k,
    largest_prefix_k,
)

# The k of one product at K = 1024, 4096 and 8192; fp64 to two digits.
TABLE = {
    "fp32": (128, 64, 45),
    "tf32": (128, 64, 45),
    "bf16": (128, 64, 45),
    "fp16": (128, 64, 45),
    "e4m3": (2, 1, 1),
    "e5m2": (2, 1, 1),
    "int8": (127, 127, 127),
}


@pytest.mark.parametrize("dtype", TABLE)
def test_largest_k_is_that_of_the_table(dtype: str) -> None:
    """At the three usual lengths."""
    assert TABLE[dtype] == tuple(largest_k(dtype, length) for length in (1024, 4096, 8192))


def test_largest_k_of_fp64_is_that_of_the_table() -> None:
    """In hundreds of thousands."""
    assert [29, 14, 10] == [largest_k("fp64", length) // 100_000 for length in (1024, 4096, 8192)]


@given(st.sampled_from(sorted(PRECISIONS)), st.integers(1, 8192))
def test_largest_k_keeps_the_law_and_is_the_largest(dtype: str, length: int) -> None:
    """K · k² ≤ 2**acc, k ≤ 2**p, and no larger k does."""
    precision = PRECISIONS[dtype]
    k = largest_k(dtype, length)
    assert length * k * k <= 2**precision.accumulator_bits
    assert k <= 2**precision.operand_bits
    assert dtype == "int8" or (
        length * (k + 1) ** 2 > 2**precision.accumulator_bits or k == 2**precision.operand_bits
    )


@given(st.sampled_from(["fp64", "fp32", "tf32", "bf16", "fp16"]), st.integers(1, 8192))
def test_adjacent_pairs_are_exact_in_the_operands_own_precision(dtype: str, length: int) -> None:
    """k² + k ≤ 2**p."""
    k = largest_adjacent_k(dtype, length)
    assert 1 <= k <= largest_k(dtype, length)
    assert k * k + k <= 2 ** PRECISIONS[dtype].operand_bits


@given(st.sampled_from(["fp64", "fp32", "bf16", "fp16"]), st.integers(2, 2**22))
def test_cancelling_sums_are_exact(dtype: str, length: int) -> None:
    """With length · 2k ≤ 2**acc and 2k ≤ 2**p."""
    precision = PRECISIONS[dtype]
    k = largest_cancelling_k(dtype, length)
    assert length * 2 * k <= 2**precision.accumulator_bits
    assert 2 * k <= 2**precision.operand_bits
    assert 2 * largest_prefix_k(dtype) <= 2**precision.operand_bits


def test_length_beyond_the_accumulator_is_refused() -> None:
    """Rather than answered with a k that is not exact."""
    with pytest.raises(ValueError, match="e4m3: a sum of 8193 products is not exact"):
        largest_k("e4m3", 8193)
    with pytest.raises(ValueError, match="bf16: a sum of 16777216 integers"):
        largest_cancelling_k("bf16", 2**24)


@pytest.mark.parametrize("head_dim", [16, 32, 64, 80, 128, 256])
def test_other_keys_weigh_nothing_in_attention(head_dim: int) -> None:
    """exp(-L/√D) is below half of the smallest fp32, and L is a power of two that fp16 holds."""
    penalty = attention_penalty(head_dim)
    assert math.exp(-penalty / math.sqrt(head_dim)) < 2.0**-150
    assert 0 == penalty & (penalty - 1)
    # A score is two dimensions' worth.
    assert 2 * penalty < 65504


@pytest.mark.parametrize("dtype", sorted(PRECISIONS))
def test_scaled_results_stay_within_their_format(dtype: str) -> None:
    """The largest result and the smallest operand are normal numbers."""
    ranges = {
        "fp64": (-1022, 1023),
        "fp32": (-126, 127),
        "tf32": (-126, 127),
        "bf16": (-126, 127),
        "fp16": (-14, 15),
        "e4m3": (-6, 8),
        "e5m2": (-14, 15),
        "int8": (0, 31),
    }
    lowest, highest = ranges[dtype]
    precision = PRECISIONS[dtype]
    output_exponents = 0 if dtype in ("e4m3", "e5m2") else 2 * precision.exponents
    k = largest_k(dtype, 16)
    assert math.log2(k) + max(precision.exponents, output_exponents) < highest + 1
    assert -precision.exponents >= lowest


@pytest.mark.parametrize("length", [2**17, 133_144, 133_145, 2**19, 2**29])
def test_largest_int8_sum_is_no_overflow(length: int) -> None:
    """2**19 · 64² would be 2**31, which int32 writes as its lowest."""
    assert length * largest_k("int8", length) ** 2 < 2**31
