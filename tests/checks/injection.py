"""Faults put into operations by the tests: one bit flipped in a result, an accumulator or an operand."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import torch

from envaudit.checks.bits import compare, integer_view
from envaudit.checks.operands import SPREAD, SelectProduct, left, result, right
from envaudit.checks.operations import Case, Prepared, Tensors
from envaudit.checks.tolerance import PRECISIONS, largest_adjacent_k, largest_k


class Arithmetic(NamedTuple):
    """The dtypes of one kind of matrix product: operands, accumulator, result."""

    operand: Any
    accumulator: Any
    output: Any


# As the hardware has them; fp8 stands on torch 2.1 and newer.
ARITHMETIC = {
    "fp64": Arithmetic(torch.float64, torch.float64, torch.float64),
    "fp32": Arithmetic(torch.float32, torch.float32, torch.float32),
    "bf16": Arithmetic(torch.bfloat16, torch.float32, torch.bfloat16),
    "fp16": Arithmetic(torch.float16, torch.float32, torch.float16),
    "int8": Arithmetic(torch.int8, torch.int32, torch.int32),
}
if hasattr(torch, "float8_e4m3fn"):
    ARITHMETIC["e4m3"] = Arithmetic(torch.float8_e4m3fn, torch.float32, torch.bfloat16)
    ARITHMETIC["e5m2"] = Arithmetic(torch.float8_e5m2, torch.float32, torch.bfloat16)


class Product(NamedTuple):
    """Operands and the right answer of one cancel-and-select product."""

    a: Any
    b: Any
    wanted: Any
    kinds: Arithmetic


def product(dtype: str, order: str, shape: tuple[int, int, int], seed: int) -> Product:
    """One product as `operations/gemm.py` makes it."""
    kinds = ARITHMETIC[dtype]
    k = (largest_k if order == SPREAD else largest_adjacent_k)(dtype, shape[1])
    numbers = SelectProduct(*shape, k, PRECISIONS[dtype].exponents or None, order, seed)
    made_in = torch.int32 if dtype == "int8" else torch.float64
    a, b = (side(numbers, "cpu", made_in).to(kinds.operand) for side in (left, right))
    return Product(a, b, result(numbers, "cpu", made_in).to(kinds.output), kinds)


def flipped(values: Any, place: Any, bit: Any) -> Any:
    """A copy of `values` with one bit flipped: of each element of `place`, the bit of the same index."""
    copy = values.contiguous().clone()
    view = integer_view(copy).reshape(-1)
    assert view.data_ptr() == copy.data_ptr()
    width = 8 * view.element_size()
    one = torch.ones((), dtype=torch.int64) << torch.as_tensor(bit)
    # 1 << (width - 1) is the sign, which a signed integer of that width writes as its lowest.
    signed = torch.where(one >= 2 ** (width - 1), one - 2**width, one) if width < 64 else one
    view[place] ^= signed.to(view.dtype)
    return copy


def wrong_result(case: Case, random: Random) -> tuple[Case, Callable[[], tuple[tuple[int, ...], int]]]:
    """The case with a random bit of one of its results flipped, and where that was."""
    where: list[tuple[tuple[int, ...], int]] = []

    def prepare(device: Any, seed: int, scaled: bool) -> Prepared:
        prepared = case.prepare(device, seed, scaled)

        def run() -> Tensors:
            results = list(prepared.run())
            victim = random.randrange(len(results))
            tensor = results[victim]
            place = random.randrange(tensor.numel())
            bit = random.randrange(8 * tensor.element_size())
            index = (torch.arange(tensor.numel()).reshape(tensor.shape) == place).nonzero()[0]
            where.append((tuple(index.tolist()), bit))
            results[victim] = flipped(tensor, place, bit)
            return tuple(results)

        return prepared._replace(run=run)

    return case._replace(prepare=prepare), lambda: where[0]


def seen_in_results(made: Product, random: Random, count: int) -> int:
    """How many of `count` single-bit flips in the result are seen."""
    seen = 0
    width = 8 * made.wanted.element_size()
    for _ in range(count):
        got = flipped(made.wanted, random.randrange(made.wanted.numel()), random.randrange(width))
        seen += compare(made.wanted, got) is not None
    return seen


def seen_in_accumulators(made: Product, random: Random, count: int) -> int:
    """How many of `count` flips in an accumulator are seen, each at a random step of a random element.

    The accumulator takes one product after the other, in its own precision, and is rounded at the end.
    """
    rows, inner = made.a.shape
    columns = made.b.shape[1]
    row = torch.tensor([random.randrange(rows) for _ in range(count)])
    column = torch.tensor([random.randrange(columns) for _ in range(count)])
    kind = made.kinds.accumulator
    products = made.a.to(kind)[row] * made.b.to(kind)[:, column].t()
    width = 8 * products.element_size()
    step = torch.tensor([random.randrange(inner) for _ in range(count)])
    bit = torch.tensor([random.randrange(width) for _ in range(count)])
    total = torch.zeros(count, dtype=kind)
    for position in range(inner):
        total = total + products[:, position]
        hit = (step == position).nonzero().reshape(-1)
        if len(hit):
            total = flipped(total, hit, bit[hit])
    got = total.to(made.kinds.output)
    wanted = made.wanted[row, column]
    return int((integer_view(got) != integer_view(wanted)).sum())


def seen_in_operands(made: Product, random: Random, count: int) -> int:
    """How many of `count` flips in an element of A or B change the result."""
    return _seen_in_left(made, random, (count + 1) // 2) + _seen_in_left(_turned(made), random, count // 2)


def _turned(made: Product) -> Product:
    return Product(made.b.t(), made.a.t(), made.wanted.t(), made.kinds)


def _seen_in_left(made: Product, random: Random, count: int) -> int:
    rows, inner = made.a.shape
    row = torch.tensor([random.randrange(rows) for _ in range(count)])
    chosen = integer_view(made.a)[row].view(made.a.dtype)
    width = 8 * chosen.element_size()
    place = torch.tensor([index * inner + random.randrange(inner) for index in range(count)])
    bit = torch.tensor([random.randrange(width) for _ in range(count)])
    wrong = flipped(chosen, place, bit)
    kind = made.kinds.accumulator
    got = torch.matmul(wrong.to(kind), made.b.to(kind)).to(made.kinds.output)
    return int((integer_view(got) != integer_view(made.wanted)[row]).any(dim=1).sum())
