"""Sorts whose order is known: distinct values, made in order, then permuted.

The result is held against the values in their order (ordered), at the places they were put
(the permutation), and gathered back out of the data by the indices that came with it.
"""

from __future__ import annotations

from typing import Any, List, NamedTuple, Tuple

from envaudit.checks.counterhash import derive, permutation
from envaudit.checks.device import CPU, DeviceFacts
from envaudit.checks.operations import Case, Prepared

# The first and the last pattern of the positive normal numbers, and those patterns' width in bits.
_PATTERNS = {
    "fp64": (0x0010_0000_0000_0000, 0x7FEF_FFFF_FFFF_FFFF),
    "fp32": (0x0080_0000, 0x7F7F_FFFF),
    "bf16": (0x0080, 0x7F7F),
    "fp16": (0x0400, 0x7BFF),
    "int32": (1, 2**31 - 1),
    "int64": (1, 2**63 - 1),
}


class Sorting(NamedTuple):
    """`rows` sorts of `length` elements each, all rows a rotation of one permutation."""

    rows: int
    length: int
    descending: bool = False


def CASES(facts: DeviceFacts) -> List[Case]:  # noqa: N802
    """One long sort and many short ones, upwards and downwards."""
    long, rows, short = (2**14, 16, 1000) if facts.kind == CPU else (2**20, 512, 4000)
    found = []
    for dtype in ("fp64", "fp32", "int64", "int32"):
        found.append(sort_case(f"sorting/{dtype}/long", dtype, Sorting(1, long)))
    for dtype in ("fp32", "bf16", "fp16"):
        found.append(sort_case(f"sorting/{dtype}/rows", dtype, Sorting(rows, short, descending=True)))
    return found


def sort_case(name: str, dtype: str, sorting: Sorting) -> Case:
    """A case of one sort, with indices."""

    def prepare(device: Any, seed: int, scaled: bool) -> Prepared:
        return _prepare(sorting, dtype, device, seed)

    return Case(name, dtype, f"{sorting.rows}x{sorting.length}", True, prepare)


def _prepare(sorting: Sorting, dtype: str, device: Any, seed: int) -> Prepared:
    import torch

    values = _ordered(dtype, sorting.length, device)
    places_on_host = _places(sorting, seed)
    data = values[places_on_host.to(device)]

    def run() -> Tuple[Any, ...]:
        found = torch.sort(data, dim=1, descending=sorting.descending)
        return found.values, found.indices, torch.gather(data, 1, found.indices)

    def expected(where: Any) -> Tuple[Any, ...]:
        # data[r, j] = values[places[r, j]], so value i is found where places is i.
        wanted = _ordered(dtype, sorting.length, where).expand(sorting.rows, -1)
        places = places_on_host.to(where)
        indices = torch.empty_like(places)
        indices.scatter_(1, places, torch.arange(sorting.length, device=where).expand(sorting.rows, -1))
        if sorting.descending:
            wanted, indices = wanted.flip(1), indices.flip(1)
        return wanted, indices, wanted

    return Prepared(run, expected, moved_bytes=2 * data.numel() * (data.element_size() + 8))


def _ordered(dtype: str, length: int, device: Any) -> Any:
    """Distinct values from about the most negative to the largest, in rising order.

    A positive float's bit pattern rises with its value; a negative one is the same with the sign bit.
    """
    import torch

    kinds = {
        "fp64": (torch.int64, torch.float64),
        "fp32": (torch.int32, torch.float32),
        "bf16": (torch.int16, torch.bfloat16),
        "fp16": (torch.int16, torch.float16),
        "int32": (torch.int32, torch.int32),
        "int64": (torch.int64, torch.int64),
    }
    pattern_kind, kind = kinds[dtype]
    first, last = _PATTERNS[dtype]
    half = (length + 1) // 2
    step = (last - first) // half
    pattern = torch.arange(half, dtype=torch.int64, device=device) * step + first
    positive = pattern.to(pattern_kind)
    if kind == pattern_kind:
        return torch.cat([-positive.flip(0), positive])[-length:]
    lowest = torch.iinfo(pattern_kind).min
    negative = (positive.flip(0)) | lowest
    return torch.cat([negative, positive])[-length:].view(kind)


def _places(sorting: Sorting, seed: int) -> Any:
    import torch

    order = permutation(sorting.length, derive(seed, "order"), "cpu")
    # Rotated by 7 from row to row: no two rows are alike, and the CPU permutes once.
    rows = torch.arange(sorting.rows).unsqueeze(1) * 7 + torch.arange(sorting.length)
    return order[torch.remainder(rows, sorting.length)]
