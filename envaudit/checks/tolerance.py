"""How large test data may be so that an operation has one right answer, to the bit.

The law. Let every factor be an integer in [-k, k] and let a result be a sum of K products of two of
them. Then every partial sum, in whatever order, tree, tile or split it is formed, is an integer n
with

    |n| ≤ K · k².

An accumulator with an `acc`-bit significand holds every integer up to 2**acc exactly, so with

    K · k² ≤ 2**acc    (products and partial sums are exact)
    k ≤ 2**p           (the operands themselves are exact in their own format)

no addition ever rounds, and all orders of summation give the same bits. Multiplying a row of A or a
column of B by ±2**e multiplies every partial sum of an output element by the same ±2**e, which no
binary format notices until an exponent leaves its range (`EXPONENTS`).

Zeros: every sum of products starts from +0 or holds at least one +0 beside a −0, and
(+0) + (−0) = +0 when rounding to nearest, so an exact zero is +0 (IEEE 754-2019, 6.3).
"""

from __future__ import annotations

from math import isqrt
from typing import Dict, NamedTuple


class Precision(NamedTuple):
    """What one kind of arithmetic holds exactly.

    Attributes:
        operand_bits: p, integers up to 2**p are exact operands.
        accumulator_bits: acc, integers up to 2**acc are exact partial sums.
        exponents: rows and columns are scaled by 2**e with |e| up to this; 0 where there is no room.
    """

    operand_bits: int
    accumulator_bits: int
    exponents: int


# p is the format's significand with its hidden bit (IEEE 754: 53, 24, 11; bfloat16 8; OCP FP8: E4M3 4,
# E5M2 3; TF32 11, NVIDIA "A100 Tensor Core GPU Architecture"). The accumulator is fp32 for all
# narrow types; Hopper's fp8 instructions keep about 14 bits of each product against the largest
# (DeepSeek-V3 technical report, 3.3.2), so 13 are asked of them.
#
# exponents: an output is at most 2**p·2**(2e), an operand at least 2**-e. fp16: 2**11·2**(2·2) = 2**15
# stays below 65504 and 2**-2 far above the subnormals. E4M3 spans 2**-6 to 448: k ≤ 2**4 with e ≤ 2 is
# 64. E5M2 spans 2**-14 to 57344: k ≤ 2**3 with e ≤ 4 is 128. The rest have room for more than is used.
PRECISIONS: Dict[str, Precision] = {
    "fp64": Precision(53, 53, 100),
    "fp32": Precision(24, 24, 20),
    "tf32": Precision(11, 24, 20),
    "bf16": Precision(8, 24, 20),
    "fp16": Precision(11, 24, 2),
    "e4m3": Precision(4, 13, 2),
    "e5m2": Precision(3, 13, 4),
    # int32 sums of int8 products: K · 127² < 2**31 up to K = 133,144.
    "int8": Precision(7, 31, 0),
}

LARGEST_INT8 = 127
# Without VNNI oneDNN forms s8 · s8 as (s8 + 128) · s8 and adds two of those in 16 bits that saturate
# (vpmaddubsw): 2 · (64 + 128) · 64 = 24,576 does not.
LARGEST_INT8_ON_CPU = 64


def largest_k(dtype: str, length: int) -> int:
    """The largest k with `length` · k² ≤ 2**acc and k ≤ 2**p; at least 1.

    `length` is the number of products that one result sums, K of a matrix product.

    Raises:
        KeyError: no such kind of arithmetic.
        ValueError: even k = 1 would not be exact.
    """
    precision = PRECISIONS[dtype]
    if length > 1 << precision.accumulator_bits:
        raise ValueError(f"{dtype}: a sum of {length} products is not exact")
    # An integer of two's complement ends one short of the power of two.
    largest_sum = (1 << precision.accumulator_bits) - (dtype == "int8")
    k = min(isqrt(largest_sum // max(1, length)), 1 << precision.operand_bits)
    return min(k, LARGEST_INT8) if dtype == "int8" else k


def largest_adjacent_k(dtype: str, length: int) -> int:
    """The largest k where a sum in order stays exact in the operand's own precision as well.

    In `operands.select_product`'s adjacent layout a sum in order returns to the selected element after
    every pair; the largest partial sum is that element, |n| ≤ k, and half a pair, |n| ≤ k². With
    k² + k ≤ 2**p it is exact even where the accumulator is no wider than the operands; for the types of
    fewer than eight bits that leaves nothing, and the law above is all that is asked.
    """
    k = largest_k(dtype, length)
    bits = PRECISIONS[dtype].operand_bits
    if dtype == "int8" or bits < 8:
        return k
    own = isqrt(1 << bits)
    while own * own + own > 1 << bits:
        own -= 1
    return min(k, own)


def largest_selected_k(dtype: str) -> int:
    """The largest k where each result is one operand times ±1, and everything else is times 0.

    Every partial sum is 0 or that operand: all that is asked of it is to be one, |n| ≤ 2**p.
    """
    return 1 << PRECISIONS[dtype].operand_bits


def largest_cancelling_k(dtype: str, length: int) -> int:
    """The largest k of a sum of `length` integers in [-2k, 2k] that come to one in [-k, k].

    Partial sums in any order stay within length · 2k ≤ 2**acc, and 2k ≤ 2**p keeps the addends exact.

    Raises:
        ValueError: even k = 1 would not be exact.
    """
    precision = PRECISIONS[dtype]
    k = min((1 << precision.accumulator_bits) // length, 1 << precision.operand_bits) // 2
    if k < 1:
        raise ValueError(f"{dtype}: a sum of {length} integers is not exact")
    return k


def largest_prefix_k(dtype: str) -> int:
    """The largest k of a prefix sum whose every result is an integer in [-k, k].

    The addends are differences of neighbouring results. A sum over any stretch i … j is then
    result[j] − result[i − 1], within 2k: with 2k ≤ 2**p every scan, in order or as a tree, is exact in
    the operands' own precision and whatever its length.
    """
    return 1 << (PRECISIONS[dtype].operand_bits - 1)


def attention_penalty(head_dim: int) -> int:
    """The penalty L of selecting attention: what the query says to every key but the selected one.

    A query is −L in each dimension that its key has not and 0 where its key is 1, so the selected score
    is 0 and every other at most −L/√D. The largest score, 0, is exact in every form of the softmax,
    also in the fused one that flash attention uses, exp2(s·c − max·c); the selected weight is
    exp(0) = 1. With L ≥ 512·√D the other weights are at most exp(-512) < 2**-738: +0 in fp32 and
    narrower, where a subnormal ends at 2**-149. The weights sum to 1, and the result is 1 · V.

    A power of two, so that it is exact in every format.
    """
    penalty = 512
    while penalty * penalty < 512 * 512 * head_dim:
        penalty *= 2
    return penalty
