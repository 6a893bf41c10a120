"""IEEE arithmetic in plain Python: what a correctly rounded operation gives, without torch.

Python's floats are the CPU's scalar doubles. An operation on narrower operands is formed in double and
rounded once more: for +, −, ×, ÷ and √ that is the correctly rounded result whenever the wide format has
at least 2p + 2 bits (S. A. Figueroa, "When is double rounding innocuous?", SIGNUM Newsletter 30, 1995).
53 ≥ 2·24 + 2 covers fp32 and all that is narrower.
"""

from __future__ import annotations

import math
import struct
from array import array
from typing import Callable, Dict, List, Tuple

from envaudit.checks.counterhash import derive, mix_word

_MASK = 2**64 - 1

Operation = Callable[..., float]


def _multiply_add(a: float, b: float, c: float) -> float:
    # The factors have half the significand's bits (`operands_of`), so the product is exact, and fused or
    # not the sum is rounded once.
    return a * b + c


# Square roots that are exact: also a routine that is good to a fraction of the last place only, as a
# CPU's vector library is, has one right answer.
SQRT_OF_SQUARES = "sqrt-of-squares"

# Operation to its number of operands and its meaning.
OPERATIONS: Dict[str, Tuple[int, Operation]] = {
    "add": (2, lambda a, b: a + b),
    "mul": (2, lambda a, b: a * b),
    "div": (2, lambda a, b: a / b),
    "sqrt": (1, math.sqrt),
    SQRT_OF_SQUARES: (1, math.sqrt),
    "fma": (3, _multiply_add),
}

# Significand bits with the hidden one, and exponents that keep every result of the operations above a
# normal number: fp16's products lie within 2**±13.
_FORMATS = {"fp64": (53, 300), "fp32": (24, 40), "bf16": (8, 40), "fp16": (11, 6)}


def operands_of(operation: str, dtype: str, count: int, seed: int) -> List[List[float]]:
    """`count` operands for each argument: random sign, significand and exponent, all of them normal."""
    bits, exponents = _FORMATS[dtype]
    arity = OPERATIONS[operation][0]
    columns = []
    for argument in range(arity):
        factor = (operation == "fma" and argument < 2) or operation == SQRT_OF_SQUARES
        width, span = (bits // 2, exponents // 2) if factor else (bits, exponents)
        stream = derive(seed, f"{operation} {dtype} {argument}")
        made = [_number(mix_word((stream + place) & _MASK), width, span) for place in range(count)]
        if operation == SQRT_OF_SQUARES:
            made = [value * value for value in made]
        columns.append([abs(value) for value in made] if operation == "sqrt" else made)
    return columns


def results_of(operation: str, dtype: str, operands: List[List[float]]) -> List[float]:
    """The correctly rounded result for each row of operands, as a float that holds it exactly."""
    function = OPERATIONS[operation][1]
    exact = [function(*row) for row in zip(*operands)]
    if dtype == "fp64":
        return exact
    if dtype == "fp32":
        return array("f", exact).tolist()
    if dtype == "fp16":
        return list(struct.unpack(f"{len(exact)}e", struct.pack(f"{len(exact)}e", *exact)))
    return [_rounded(value, _FORMATS[dtype][0]) for value in exact]


def _number(word: int, bits: int, exponents: int) -> float:
    # A normal number, 1.f · 2**e, with `bits` bits of significand.
    significand = (1 << (bits - 1)) | (word >> (64 - bits + 1) if bits > 1 else 0)
    exponent = (word & 0xFF) * (2 * exponents + 1) // 256 - exponents
    value = math.ldexp(significand, exponent - (bits - 1))
    return -value if word & 0x100 else value


def _rounded(value: float, bits: int) -> float:
    # To the nearest of `bits` significand bits, ties to even, as round() does on an exact product.
    fraction, exponent = math.frexp(value)
    return math.ldexp(round(fraction * (1 << bits)), exponent - bits)
