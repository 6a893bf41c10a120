"""Kernels that Triton compiles for the device: a masked addition and a product of tiles.

A broken compiler, ptxas or driver under Triton gives wrong numbers where everything of torch's own is
right. Without a GPU they run under Triton's interpreter (TRITON_INTERPRET=1), which is Triton's switch.
"""

from __future__ import annotations

import os
import subprocess
from typing import Any, Callable, List, Tuple

from envaudit.checks.counterhash import derive, integers
from envaudit.checks.device import CPU, DeviceFacts
from envaudit.checks.operands import SPREAD, SelectProduct, left, result, right
from envaudit.checks.operations import Case, NotRunnable, Prepared
from envaudit.checks.tolerance import PRECISIONS, largest_k

_BLOCK = 1024
_SIDE = 32


def CASES(facts: DeviceFacts) -> List[Case]:  # noqa: N802
    """The addition of integers, and the product in fp32 and fp16."""
    # Not a multiple of the block: the mask has something to do.
    count, size = (3 * _BLOCK - 7, 64) if facts.kind == CPU else (2**22 - 7, 2048)
    add = Case("triton_kernels/int32/add", "int32", str(count), True, _preparing_add(facts, count))
    products = [
        Case(
            f"triton_kernels/{dtype}/dot",
            dtype,
            f"{size}x{size}x{size}",
            True,
            _preparing_dot(facts, dtype, size),
        )
        for dtype in ("fp32", "fp16")
    ]
    return [add, *products]


def _preparing_add(facts: DeviceFacts, count: int) -> Any:
    def prepare(device: Any, seed: int, scaled: bool) -> Prepared:
        import torch

        kernels = _kernels(facts)

        def wanted(where: Any) -> Any:
            return integers((count,), 2**29, derive(seed, "sum"), where, torch.int32)

        a = integers((count,), 2**29, derive(seed, "a"), device, torch.int32)
        b = wanted(device) - a
        grid = ((count + _BLOCK - 1) // _BLOCK,)

        def run() -> Tuple[Any, ...]:
            total = torch.empty_like(a)
            kernels.add[grid](a, b, total, count, BLOCK=_BLOCK)
            return (total,)

        return Prepared(_launched(run), lambda where: (wanted(where),), moved_bytes=12 * count)

    return prepare


def _preparing_dot(facts: DeviceFacts, dtype: str, size: int) -> Any:
    def prepare(device: Any, seed: int, scaled: bool) -> Prepared:
        import torch

        kernels = _kernels(facts)
        kind = {"fp32": torch.float32, "fp16": torch.float16}[dtype]
        exponents = PRECISIONS[dtype].exponents if scaled else None
        product = SelectProduct(size, size, size, largest_k(dtype, size), exponents, SPREAD, seed)
        a, b = left(product, device, kind).contiguous(), right(product, device, kind).contiguous()

        def run() -> Tuple[Any, ...]:
            total = torch.empty(size, size, dtype=torch.float32, device=device)
            kernels.multiply[(size // _SIDE, size // _SIDE)](a, b, total, size, size, SIDE=_SIDE, STEP=_SIDE)
            return (total,)

        def expected(where: Any) -> Tuple[Any, ...]:
            return (result(product, where, torch.float32),)

        return Prepared(_launched(run), expected, flops=2 * size**3)

    return prepare


def _launched(run: Callable[[], Tuple[Any, ...]]) -> Callable[[], Tuple[Any, ...]]:
    """The same, launched once: for that Triton builds C code on the machine, and many an image cannot.

    torch's own CUDA runtime images have long had no compiler; a device is not wrong for it.

    Raises:
        NotRunnable: there is no C compiler, not the one that CC names, or it finds no headers of Python.
    """
    try:
        run()
    except subprocess.CalledProcessError as error:
        # The whole command has the name of a temporary folder, which is another on every node.
        program = os.path.basename(str(error.cmd[0]))
        if program.startswith("ptxas"):
            raise
        why = f"{program} ended with exit status {error.returncode}"
        raise NotRunnable(f"needs a C compiler and Python's headers, for Triton: {why}") from error
    except FileNotFoundError as error:
        # The compiler that CC names, or a tool of the system.
        raise NotRunnable(f"needs a C compiler, for Triton: there is no {error.filename}") from error
    except RuntimeError as error:
        if "Failed to find C compiler" not in str(error):
            raise
        raise NotRunnable("needs a C compiler, for Triton: there is none") from error
    return run


def _kernels(facts: DeviceFacts) -> Any:
    if not facts.triton:
        raise NotRunnable("needs the package triton")
    if facts.kind == CPU and os.environ.get("TRITON_INTERPRET") != "1":
        raise NotRunnable("needs a GPU: Triton compiles for GPUs")
    try:
        from envaudit.checks import tritonkernels
    except ImportError as error:
        raise NotRunnable(f"triton cannot be imported: {error}") from error
    return tritonkernels
