"""What must come out of a collective, made on each rank without asking another.

Reductions follow `contribution.Law`; what is only copied carries full bit patterns of (seed, source,
destination), in which every bit of every element is as likely 0 as 1: NaNs and subnormals among them.
"""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Optional

from envaudit.checks.bits import Mismatch, compare
from envaudit.checks.collectives.contribution import (
    AVG,
    Law,
    magnitudes,
    reduced,
    values,
)
from envaudit.checks.counterhash import derive, words

# The names torch has for them.
TORCH_NAMES: Dict[str, str] = {
    "fp64": "float64",
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "bool": "bool",
    "int64": "int64",
    "int32": "int32",
    "int8": "int8",
    "uint8": "uint8",
}
# Bits of a significand with the hidden one.
_SIGNIFICAND = {"fp64": 53, "fp32": 24, "fp16": 11, "bf16": 8, "e4m3": 4, "e5m2": 3}
# A destination that is everybody.
ALL = -1


class Block(NamedTuple):
    """One stretch of a result and what it must be.

    Attributes:
        source: the rank whose bits it carries; -1 for what all ranks have reduced.
        got: the stretch, a view of the buffer that the collective wrote.
        expected: of the same dtype and shape.
        start: the index in the law of its first element.
        tolerance: how far each element may be off, float64; None where every bit must agree.
    """

    source: int
    got: Any
    expected: Any
    start: int = 0
    tolerance: Optional[Any] = None


def torch_dtype(name: str) -> Any:
    """Torch's own dtype of a name; None where this torch has none."""
    import torch

    return getattr(torch, TORCH_NAMES[name], None)


def pattern(seed: int, source: int, destination: int, count: int, dtype: str, device: Any) -> Any:
    """The bits that `source` sends to `destination` (ALL for everybody), as a tensor of `dtype`."""
    import torch

    drawn = words(count, derive(seed, f"{source}>{destination}"), device)
    kind = torch_dtype(dtype)
    if dtype == "bool":
        return (drawn & 1).to(torch.bool)
    width = torch.empty(0, dtype=kind).element_size()
    holder = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[width]
    return drawn.to(holder).view(kind)


def contributed(law: Law, rank: int, count: int, dtype: str, device: Any, start: int = 0) -> Any:
    """What a rank puts into a reduction, as a tensor of `dtype`."""
    return values(law, rank, count, device, start).to(torch_dtype(dtype))


def reduction_block(law: Law, reduction: str, dtype: str, got: Any, start: int = 0) -> Block:
    """What a reduction must come to, for elements `start` on of the law.

    An average over 2**m ranks is exact, for it halves. Over others, NCCL multiplies each contribution with
    1/W and sums, others sum and divide: W + 2 roundings of at most 2**-p of Σ|v| / W.
    """
    import torch

    count = got.numel()
    total = reduced(law, reduction, count, got.device, start)
    if reduction != AVG:
        return Block(-1, got, total.to(torch_dtype(dtype)), start)
    average = (total.to(torch.float64) / law.world).to(torch_dtype(dtype))
    if law.world & (law.world - 1) == 0:
        return Block(-1, got, average, start)
    far = magnitudes(law, count, got.device, start)
    room = (law.world + 2) * 2.0 ** -_SIGNIFICAND[dtype] / law.world
    return Block(-1, got, average, start, far * room)


def difference(block: Block) -> Optional[Mismatch]:
    """How a block differs from what it must be; None where it is right."""
    if block.tolerance is None:
        return compare(block.expected, block.got)
    import torch

    off = (block.got.to(torch.float64) - block.expected.to(torch.float64)).abs()
    # Also what is not a number is outside.
    outside = ~(off <= block.tolerance)
    if not bool(outside.any()):
        return None
    return compare(block.expected, torch.where(outside, block.got, block.expected))
