"""The Triton kernels of `operations/triton_kernels.py`.

A module of its own, for Triton reads a kernel's source and its module's globals: this one alone imports
triton (and with it torch) and is itself only imported where a kernel is to run.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def add(left, right, result, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Result = left + right over `count` elements, the last block masked."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    total = tl.load(left + place, mask=inside) + tl.load(right + place, mask=inside)
    tl.store(result + place, total, mask=inside)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def multiply(left, right, result, inner, columns, SIDE: tl.constexpr, STEP: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """One SIDE × SIDE tile of result = left · right, all row by row, sizes in whole tiles; no TF32."""
    row = tl.program_id(0) * SIDE + tl.arange(0, SIDE)
    column = tl.program_id(1) * SIDE + tl.arange(0, SIDE)
    step = tl.arange(0, STEP)
    total = tl.zeros((SIDE, SIDE), dtype=tl.float32)
    for start in range(0, inner, STEP):
        a = tl.load(left + row[:, None] * inner + start + step[None, :])
        b = tl.load(right + (start + step)[:, None] * columns + column[None, :])
        total += tl.dot(a, b, allow_tf32=False)
    tl.store(result + row[:, None] * columns + column[None, :], total)
