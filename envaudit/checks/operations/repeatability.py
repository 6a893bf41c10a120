"""Operations of which no standard says the last bit: the same device must give the same bits twice.

Their digests are compared between nodes as well, but only within a group that must agree: GPU model,
number of multiprocessors, driver, torch, CUDA, cuBLAS, cuDNN, environment flags and shape.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

from envaudit.checks.counterhash import derive, integers
from envaudit.checks.device import CPU, DeviceFacts
from envaudit.checks.operations import Case, Prepared
from envaudit.checks.precision import full_precision

# Real values in [-8, 8] in steps of 2**-20, exact in fp32: exp stays finite, sin meets every quadrant.
_STEPS = 2**23
_STEP = 2.0**-20


def CASES(facts: DeviceFacts) -> List[Case]:  # noqa: N802
    """exp, sin, softmax, random numbers and a product of real values."""
    rows, columns = (64, 1000) if facts.kind == CPU else (4096, 4000)
    shape = f"{rows}x{columns}"
    return [
        _case(f"repeatability/{dtype}/{name}", dtype, shape, build, rows, columns)
        for name, build in _BUILDERS.items()
        for dtype in ("fp32", "bf16")
    ]


Run = Callable[[], Tuple[Any, ...]]


def _case(
    name: str, dtype: str, shape: str, build: Callable[[Any, int, Any], Run], rows: int, columns: int
) -> Case:
    def prepare(device: Any, seed: int, scaled: bool) -> Prepared:
        import torch

        kind = {"fp32": torch.float32, "bf16": torch.bfloat16}[dtype]
        steps = integers((rows, columns), _STEPS, derive(seed, "values"), device, torch.float32)
        values = (steps * _STEP).to(kind)
        # By one thread first, as in `elementwise.py`.
        build(values[:1, :1].contiguous(), seed, device)()
        return Prepared(build(values, seed, device), None)

    return Case(name, dtype, shape, False, prepare)


def _exponential(values: Any, seed: int, device: Any) -> Run:
    import torch

    return lambda: (torch.exp(values),)


def _sine(values: Any, seed: int, device: Any) -> Run:
    import torch

    return lambda: (torch.sin(values),)


def _softmax(values: Any, seed: int, device: Any) -> Run:
    import torch

    return lambda: (torch.softmax(values, dim=-1),)


def _random(values: Any, seed: int, device: Any) -> Run:
    import torch

    def run() -> Tuple[Any, ...]:
        generator = torch.Generator(device=device)
        generator.manual_seed(seed & (2**63 - 1))
        return (torch.randn(values.shape, dtype=values.dtype, device=device, generator=generator),)

    return run


def _product(values: Any, seed: int, device: Any) -> Run:
    import torch

    def run() -> Tuple[Any, ...]:
        with full_precision():
            return (torch.matmul(values, values.t()),)

    return run


_BUILDERS: Dict[str, Callable[[Any, int, Any], Run]] = {
    "exp": _exponential,
    "sin": _sine,
    "softmax": _softmax,
    "random": _random,
    "matmul": _product,
}
