"""Sums and prefix sums whose results are known before anything is added.

Sum: a row holds x, −x for half as many x as it is long, at random places, and one of its elements is
raised by e: the sum is e. Prefix sum: the addends are the differences of the results that are wanted.
Bounds: `tolerance.largest_cancelling_k` and `tolerance.largest_prefix_k`.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple

from envaudit.checks.counterhash import derive, integers, permutation, words
from envaudit.checks.device import CPU, DeviceFacts
from envaudit.checks.operations import Case, Prepared
from envaudit.checks.tolerance import largest_cancelling_k, largest_prefix_k


class Reduction(NamedTuple):
    """`rows` sums of `length` elements each; `along` is the dimension that is summed."""

    rows: int
    length: int
    along: int = 1


_DTYPES = ("fp64", "fp32", "bf16", "fp16")


def CASES(facts: DeviceFacts) -> List[Case]:  # noqa: N802
    """Sums along either dimension and over everything, and prefix sums."""
    rows, length = (64, 1024) if facts.kind == CPU else (2048, 4096)
    found = []
    for dtype in _DTYPES:
        found.append(sum_case(f"reductions/{dtype}/rows", dtype, Reduction(rows, length)))
        found.append(sum_case(f"reductions/{dtype}/columns", dtype, Reduction(rows, length, along=0)))
        found.append(scan_case(f"reductions/{dtype}/cumsum", dtype, Reduction(rows, length)))
    # In 16 bits torch may keep the threads' parts of one long sum in the output's own precision.
    for dtype in ("fp64", "fp32"):
        whole = Reduction(1, 2**16 if facts.kind == CPU else 2**22)
        found.append(sum_case(f"reductions/{dtype}/all", dtype, whole))
        found.append(scan_case(f"reductions/{dtype}/cumsum-all", dtype, whole))
    return found


def sum_case(name: str, dtype: str, reduction: Reduction) -> Case:
    """A case of one sum."""

    def prepare(device: Any, seed: int, scaled: bool) -> Prepared:
        import torch

        kind = _kinds()[dtype]
        k = largest_cancelling_k(dtype, reduction.length)
        data = _cancelling(reduction, k, seed, device, kind)
        data = data if reduction.along == 1 else data.t().contiguous()
        return Prepared(
            run=lambda: (torch.sum(data, dim=reduction.along),),
            expected=lambda where: (_raised(reduction, k, seed, where, kind),),
            moved_bytes=data.numel() * data.element_size(),
        )

    return Case(name, dtype, f"{reduction.rows}x{reduction.length}", True, prepare)


def scan_case(name: str, dtype: str, reduction: Reduction) -> Case:
    """A case of one prefix sum."""

    def prepare(device: Any, seed: int, scaled: bool) -> Prepared:
        import torch

        kind = _kinds()[dtype]
        k = largest_prefix_k(dtype)
        wanted = _prefixes(reduction, k, seed, device, kind)
        data = wanted.clone()
        data[:, 1:] -= wanted[:, :-1]
        return Prepared(
            run=lambda: (torch.cumsum(data, dim=1),),
            expected=lambda where: (_prefixes(reduction, k, seed, where, kind),),
            moved_bytes=2 * data.numel() * data.element_size(),
        )

    return Case(name, dtype, f"{reduction.rows}x{reduction.length}", True, prepare)


def _cancelling(reduction: Reduction, k: int, seed: int, device: Any, kind: Any) -> Any:
    import torch

    shape = (reduction.rows, reduction.length // 2)
    half = integers(shape, k, derive(seed, "addends"), device, kind)
    # Without −0: every zero of the data is +0, as its integer is.
    order = permutation(reduction.length, derive(seed, "order"), device)
    data = torch.cat([half, -half + 0], dim=1)[:, order]
    place = torch.remainder(words(reduction.rows, derive(seed, "place"), device) >> 1, reduction.length)
    at = (torch.arange(reduction.rows, device=device), place)
    data[at] += _raised(reduction, k, seed, device, kind)
    return data


def _raised(reduction: Reduction, k: int, seed: int, device: Any, kind: Any) -> Any:
    return integers((reduction.rows,), k, derive(seed, "sums"), device, kind)


def _prefixes(reduction: Reduction, k: int, seed: int, device: Any, kind: Any) -> Any:
    return integers((reduction.rows, reduction.length), k, derive(seed, "prefixes"), device, kind)


def _kinds() -> Dict[str, Any]:
    import torch

    return {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
