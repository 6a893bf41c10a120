"""Operands of a matrix product whose right answer is a gather: "cancel and select".

With A1 (M × h), B1 (h × N), and E (h × N) holding one s_j = ±1 in each column, at row p_j,

    [A1 | A1] · [B1 ; E − B1] = A1·B1 + A1·E − A1·B1 = A1·E,   so   C[i, j] = s_j · A1[i, p_j].

Every product takes part in the sum and none survives: an error anywhere in the accumulation stands in
the result, which is small and needs no product to be known. The K = 2h columns of A and rows of B are
then permuted alike:

- *spread*: at random, so that the accumulator grows large before it shrinks and errors in its low bits
  show;
- *adjacent*: each pair side by side, so that partial sums in order stay small.

All integers are in [-k, k] (`tolerance.largest_k`): at row p_j of column j, B1 is s_j·|b|, so that
s_j − s_j·|b| stays in the range as well.

A sum of many leaves an operand few bits. *Select* has B1 = 0: each result is one element of A alone, of the
operand's whole width, so that its last bit counts, and fp32 that is rounded to TF32 on the way shows.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

from envaudit.checks.counterhash import derive, integers, permutation, words

SPREAD = "spread"
ADJACENT = "adjacent"
SELECT = "select"


class SelectProduct(NamedTuple):
    """One matrix product, M × K by K × N, by its numbers alone.

    Attributes:
        rows: M.
        inner: K, even.
        columns: N.
        k: the largest magnitude of an integer.
        exponents: rows of A and columns of B are scaled by ±2**e, |e| up to this; None: not at all.
        order: SPREAD, ADJACENT or SELECT.
        seed: of the counter hash.
    """

    rows: int
    inner: int
    columns: int
    k: int
    exponents: Optional[int]
    order: str
    seed: int


def left(product: SelectProduct, device: Any, dtype: Any) -> Any:
    """A, M × K."""
    import torch

    half = _left_half(product, device, dtype)
    both = torch.cat([half, half], dim=1)[:, _order(product, device)]
    # + 0: every zero of the data is +0, as its integer is, whatever sign a scale has.
    return both * _row_scale(product, device, dtype) + 0


def right(product: SelectProduct, device: Any, dtype: Any) -> Any:
    """B, K × N."""
    import torch

    half = product.inner // 2
    k = product.k
    if product.order == SELECT:
        k = 0
    upper = integers((half, product.columns), k, derive(product.seed, "B"), device, dtype)
    place, sign = _selection(product, device)
    at = (place, torch.arange(product.columns, device=device))
    sign = sign.to(dtype)
    upper[at] = upper[at].abs() * sign
    lower = -upper
    lower[at] += sign
    both = torch.cat([upper, lower], dim=0)[_order(product, device)]
    return both * _column_scale(product, device, dtype) + 0


def result(product: SelectProduct, device: Any, dtype: Any) -> Any:
    """C, M × N, by a gather: the right answer, for which nothing is multiplied but by ±2**e."""
    place, sign = _selection(product, device)
    chosen = _left_half(product, device, dtype)[:, place] * sign.to(dtype)
    scale = _row_scale(product, device, dtype)
    # + 0 makes −0 the +0 that a sum of products ends with.
    return chosen * scale * _column_scale(product, device, dtype) + 0


def _left_half(product: SelectProduct, device: Any, dtype: Any) -> Any:
    shape = (product.rows, product.inner // 2)
    return integers(shape, product.k, derive(product.seed, "A"), device, dtype)


def _selection(product: SelectProduct, device: Any) -> Any:
    # Row p_j of column j and its sign s_j.
    import torch

    word = words(product.columns, derive(product.seed, "E"), device)
    place = torch.remainder(word >> 1, product.inner // 2)
    return place, (word & 1) * 2 - 1


def _order(product: SelectProduct, device: Any) -> Any:
    import torch

    half = product.inner // 2
    if product.order != ADJACENT:
        return permutation(product.inner, derive(product.seed, "order"), device)
    pairs = permutation(half, derive(product.seed, "order"), device)
    return torch.stack([pairs, pairs + half], dim=1).reshape(-1)


def _row_scale(product: SelectProduct, device: Any, dtype: Any) -> Any:
    seed = derive(product.seed, "rows")
    return signed_powers(product.rows, product.exponents, seed, device, dtype).reshape(-1, 1)


def _column_scale(product: SelectProduct, device: Any, dtype: Any) -> Any:
    seed = derive(product.seed, "columns")
    return signed_powers(product.columns, product.exponents, seed, device, dtype).reshape(1, -1)


def signed_powers(count: int, exponents: Optional[int], seed: int, device: Any, dtype: Any) -> Any:
    """`count` factors ±2**e with |e| ≤ exponents; ones where that is None."""
    import torch

    if exponents is None:
        return torch.ones(count, dtype=dtype, device=device)
    word = words(count, seed, device)
    span = 2 * exponents + 1
    # Out of a table: a device's own pow or ldexp is under suspicion, too.
    table = torch.tensor([2.0 ** (step - exponents) for step in range(span)], dtype=torch.float64)
    power = table.to(dtype).to(device)[torch.remainder(word >> 1, span)]
    return power * ((word & 1) * 2 - 1).to(dtype)
