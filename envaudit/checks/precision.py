"""The switches of torch under which an operation is exact, set for a moment and put back."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator, List, Tuple

from envaudit.checks.device import CPU, DeviceFacts
from envaudit.checks.operations import NotRunnable


def need_wide_sums(dtype: str, facts: DeviceFacts) -> None:
    """Leave out what would be rounded on the way, on a device that is sound.

    torch 1.13's own loops on a CPU (without oneDNN's AVX-512 ones, and for small sizes) add the products
    of bf16 in bf16. 2.0 was not looked at.

    Raises:
        NotRunnable: sums of this dtype may be formed in no more than its own precision.
    """
    if facts.kind == CPU and dtype == "bf16" and facts.torch < (2, 1):
        raise NotRunnable("needs torch 2.1: older ones add products of bf16 in bf16 on the CPU")


def need_units(dtype: str, facts: DeviceFacts) -> None:
    """Leave out products of a dtype for which a card has no units: torch refuses them, or emulates them.

    bf16 came with compute capability 8.0, int8 matrix units with 7.5.

    Raises:
        NotRunnable: the card is older.
    """
    if facts.kind == CPU or facts.capability is None:
        return
    for name, least in (("bf16", (8, 0)), ("int8", (7, 5))):
        if dtype == name and facts.capability < least:
            raise NotRunnable(f"needs compute capability {least[0]}.{least[1]} or newer: {name}")


@contextmanager
def full_precision(tf32: bool = False) -> Iterator[None]:
    """Sums in the accumulator's own precision, and TF32 only where it is what is tried.

    `fp32_precision` of oneDNN (torch 2.9), "bf16" after `set_float32_matmul_precision("medium")`, rounds
    fp32 operands on a CPU with AMX. `allow_*_reduced_precision_reduction` lets cuBLAS add the parts of a
    split sum in 16 bits; `allow_fp16_accumulation` (torch 2.7) lets it sum in 16 bits throughout. Flags
    that this torch does not have are left out.
    """
    import torch

    matmul = torch.backends.cuda.matmul
    onednn = getattr(torch.backends, "mkldnn", None)
    wanted: List[Tuple[Any, str, Any]] = [
        (getattr(onednn, "matmul", None), "fp32_precision", "ieee"),
        (getattr(onednn, "conv", None), "fp32_precision", "ieee"),
        (matmul, "allow_tf32", tf32),
        (torch.backends.cudnn, "allow_tf32", tf32),
        (matmul, "allow_fp16_reduced_precision_reduction", False),
        (matmul, "allow_bf16_reduced_precision_reduction", False),
        (matmul, "allow_fp16_accumulation", False),
    ]
    before = [(owner, name, found) for owner, name, _ in wanted for found in _read(owner, name)]
    try:
        for owner, name, value in wanted:
            if any(owner is known and name == flag for known, flag, _ in before):
                setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in reversed(before):
            setattr(owner, name, value)


def _read(owner: Any, name: str) -> List[Any]:
    # A flag that this release does not know raises AttributeError or, from 1.12 to 2.x, AssertionError.
    try:
        return [getattr(owner, name)]
    except (AttributeError, AssertionError, RuntimeError):
        return []
