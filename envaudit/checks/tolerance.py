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
    k = min(isqrt((1 << precision.accumulator_bits) // max(1, length)), 1 << precision.operand_bits)
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


def largest_convolution_k(dtype: str, channels: int, kernel: int) -> int:
    """The largest k, for image and weights alike, with channels·kernel·k² ≤ 2**acc and k ≤ 2**p.

    A convolution's output is a sum of Cin/groups · kh · kw products. Algorithms that transform first
    (Winograd, FFT) divide and round on the way: with integers this small fp32 Winograd's own factors
    (1/4, 1/6, 1/24) are not exact, so the operation under test is asked for a deterministic one and
    16-bit outputs must hold the result: |n| ≤ channels·kernel·k² ≤ 2**p.
    """
    precision = PRECISIONS[dtype]
    accumulated = 1 << precision.accumulator_bits
    k = isqrt(accumulated // (channels * kernel))
    return max(1, min(k, 1 << precision.operand_bits))


def largest_sum_k(dtype: str, length: int) -> int:
    """The largest k with length · k ≤ 2**acc and k ≤ 2**p: sums and prefix sums of `length` integers.

    The result itself must be exact in its own format: acc is the operand's p where that is smaller.
    """
    precision = PRECISIONS[dtype]
    exact = 1 << min(precision.operand_bits, precision.accumulator_bits)
    if length > exact:
        raise ValueError(f"{dtype}: a sum of {length} integers is not exact")
    return min(exact // max(1, length), exact)


def attention_scale(head_dim: int, length: int) -> int:
    """The factor L of one-hot attention: with Q = L · onehot and K = I the softmax is one-hot itself.

    Scores are L/√D at the selected key and 0 at the others. softmax gives the others
    exp(-L/√D), which with L = 512·√D is exp(-512) < 2**-738: +0 in fp32 and narrower, and the sum of
    the row is exactly 1 + 0. L is rounded up to a power of two, which is exact in every format that
    holds 512·√D, and only moves the others further away. `length` keys must not exceed `head_dim`.
    """
    if length > head_dim:
        raise ValueError(f"{length} keys do not fit one-hot into {head_dim} dimensions")
    scale = 512
    while scale * scale < 512 * 512 * head_dim:
        scale *= 2
    return scale
