"""What torch.compile makes of a product and its epilogue; on request, for compiling takes seconds."""

from __future__ import annotations

from typing import Any, List, Tuple

from envaudit.checks.counterhash import derive, integers
from envaudit.checks.device import CPU, DeviceFacts
from envaudit.checks.operands import SPREAD, SelectProduct, left, result, right
from envaudit.checks.operations import Case, NotRunnable, Prepared
from envaudit.checks.precision import full_precision
from envaudit.checks.tolerance import largest_k


def CASES(facts: DeviceFacts) -> List[Case]:  # noqa: N802
    """A product with two additions behind it, in fp32 and bf16."""
    size = 128 if facts.kind == CPU else 2048
    return [
        Case(
            f"compiled/{dtype}/epilogue",
            dtype,
            f"{size}x{size}x{size}",
            True,
            _preparing(dtype, size),
            on_request=True,
        )
        for dtype in ("fp32", "bf16")
    ]


def _preparing(dtype: str, size: int) -> Any:
    def prepare(device: Any, seed: int, scaled: bool) -> Prepared:
        import torch

        if not hasattr(torch, "compile"):
            raise NotRunnable("needs torch 2.0: torch.compile")
        kind = {"fp32": torch.float32, "bf16": torch.bfloat16}[dtype]
        # The result, the bias and their sum are integers that bf16 holds.
        k = min(largest_k(dtype, size), 64)
        product = SelectProduct(size, size, size, k, None, SPREAD, seed)
        a, b = left(product, device, kind), right(product, device, kind)

        def bias(where: Any) -> Any:
            return integers((size,), k, derive(seed, "bias"), where, kind)

        addend = bias(device)
        function = torch.compile(_epilogue)

        def run() -> Tuple[Any, ...]:
            with full_precision():
                return (function(a, b, addend),)

        def expected(where: Any) -> Tuple[Any, ...]:
            return (torch.clamp_min(result(product, where, kind) + bias(where), 0),)

        return Prepared(run, expected, flops=2 * size**3)

    return prepare


def _epilogue(a: Any, b: Any, bias: Any) -> Any:
    import torch

    return torch.clamp_min(torch.matmul(a, b) + bias, 0)
