"""Matrix products in every dtype, with operands that cancel and select (`checks/operands.py`)."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Tuple

from envaudit.checks.device import CPU, CUDA, DeviceFacts
from envaudit.checks.operands import ADJACENT, SELECT, SPREAD, SelectProduct, left, result, right
from envaudit.checks.operations import Case, NotRunnable, Prepared
from envaudit.checks.precision import full_precision, need_units, need_wide_sums
from envaudit.checks.tolerance import (
    LARGEST_INT8_ON_CPU,
    PRECISIONS,
    largest_adjacent_k,
    largest_k,
    largest_selected_k,
)

# Both operands row by row (n) or column by column (t) in memory: the letters of BLAS.
LAYOUTS = ("nn", "nt", "tn", "tt")

# torch's names of the fp8 formats.
_FLOAT8 = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}

# A sum of thousands leaves these operands few of their bits. int8's have all of them there, and fp64's would
# have more than the counter hash gives.
_WIDE = ("fp32", "tf32", "bf16", "fp16", *_FLOAT8)

# M, K, N. On a GPU every multiprocessor gets several tiles and the product runs at nearly its full
# rate; a CPU has seconds for all cases together.
_CPU_SHAPE = (192, 1024, 160)
# Most CPUs have no fp8 instructions: the product is a loop over single elements.
_CPU_FLOAT8_SHAPE = (48, 256, 64)
_SHAPE = (4096, 4096, 4096)
_SHAPES: Dict[Tuple[str, str], Tuple[int, int, int]] = {
    ("fp64", SPREAD): (2048, 4096, 2048),
    ("fp64", ADJACENT): (2048, 4096, 2048),
    ("bf16", SPREAD): (8192, 8192, 8192),
}
# A card with less memory than this takes the smaller shape throughout: operands, their making and
# eight kept results of the largest need 3 GB.
_SMALL_MEMORY_BYTES = 12 * 2**30
_SMALL_SHAPE = (2048, 2048, 2048)


class Multiplication(NamedTuple):
    """One product to try: what `product_case` makes a Case of."""

    dtype: str
    shape: Tuple[int, int, int]
    order: str
    layout: str


def CASES(facts: DeviceFacts) -> List[Case]:  # noqa: N802
    """Spread and adjacent in every dtype, select in those of wide operands, all layouts of the most used."""
    found = [
        product_case(
            f"gemm/{dtype}/{order}", Multiplication(dtype, _shape(dtype, order, facts), order, layout), facts
        )
        for dtype in PRECISIONS
        # Column-major B is what cuBLASLt wants for fp8, and the other half of the kernels elsewhere.
        for order, layout in ((SPREAD, "nn"), (ADJACENT, "nt"))
    ]
    shape = _CPU_SHAPE if facts.kind == CPU else _SMALL_SHAPE
    for layout in LAYOUTS[2:]:
        multiplication = Multiplication("bf16", shape, SPREAD, layout)
        found.append(product_case(f"gemm/bf16/spread-{layout}", multiplication, facts))
    for dtype in _WIDE:
        size = _CPU_FLOAT8_SHAPE if facts.kind == CPU and dtype in _FLOAT8 else shape
        found.append(product_case(f"gemm/{dtype}/select", Multiplication(dtype, size, SELECT, "nn"), facts))
    return found


def product_case(name: str, multiplication: Multiplication, facts: DeviceFacts) -> Case:
    """A case of one multiplication; any shape whose K is even, fp8 and int8 in multiples of 16."""

    def prepare(device: Any, seed: int, scaled: bool) -> Prepared:
        return _prepare(multiplication, facts, device, seed, scaled)

    words = "x".join(str(size) for size in multiplication.shape)
    return Case(name, multiplication.dtype, words, True, prepare)


def _shape(dtype: str, order: str, facts: DeviceFacts) -> Tuple[int, int, int]:
    if facts.kind == CPU:
        return _CPU_FLOAT8_SHAPE if dtype in _FLOAT8 else _CPU_SHAPE
    if (facts.memory_bytes or 0) < _SMALL_MEMORY_BYTES:
        return _SMALL_SHAPE
    return _SHAPES.get((dtype, order), _SHAPE)


def _prepare(
    multiplication: Multiplication, facts: DeviceFacts, device: Any, seed: int, scaled: bool
) -> Prepared:
    name = multiplication.dtype
    operand, output, carrier = _dtypes(name, facts)
    need_units(name, facts)
    if multiplication.order == SPREAD:
        need_wide_sums(name, facts)
    rows, inner, columns = multiplication.shape
    exponents = PRECISIONS[name].exponents if scaled else 0
    k = _largest(name, multiplication.order, inner)
    if name == "int8" and facts.kind == CPU:
        k = min(k, LARGEST_INT8_ON_CPU)
    product = SelectProduct(rows, inner, columns, k, exponents or None, multiplication.order, seed)
    # cuBLASLt takes A by rows and B by columns in fp8 and int8, whatever was asked.
    layout = "nt" if name in _FLOAT8 or name == "int8" else multiplication.layout
    a = _laid_out(left(product, device, carrier).to(operand), layout[0])
    b = _laid_out(right(product, device, carrier).to(operand), layout[1])
    return Prepared(
        run=_multiply(name, a, b, output),
        expected=lambda where: (result(product, where, carrier).to(output),),
        flops=2 * rows * inner * columns,
    )


def _largest(name: str, order: str, inner: int) -> int:
    if order == SELECT:
        return largest_selected_k(name)
    return (largest_adjacent_k if order == ADJACENT else largest_k)(name, inner)


def _dtypes(name: str, facts: DeviceFacts) -> Tuple[Any, Any, Any]:
    # Of the operands, of the result, and the one the data is made in.
    import torch

    plain = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    if name in plain:
        return plain[name], plain[name], plain[name]
    if name == "tf32":
        if facts.kind != CUDA or facts.rocm or (facts.capability or (0, 0)) < (8, 0):
            raise NotRunnable("needs an NVIDIA GPU of compute capability 8.0 or newer: TF32")
        return torch.float32, torch.float32, torch.float32
    if name == "int8":
        if not hasattr(torch, "_int_mm"):
            raise NotRunnable("needs torch 2.1: torch._int_mm")
        if facts.rocm:
            raise NotRunnable("not tried under ROCm: torch._int_mm")
        return torch.int8, torch.int32, torch.int32
    return _float8(name, facts)


def _float8(name: str, facts: DeviceFacts) -> Tuple[Any, Any, Any]:
    import torch

    dtype = getattr(torch, _FLOAT8[name], None)
    if dtype is None or not hasattr(torch, "_scaled_mm") or facts.torch < (2, 5):
        raise NotRunnable("needs torch 2.5: float8 and torch._scaled_mm")
    if facts.rocm:
        raise NotRunnable("not tried under ROCm: its float8 formats differ from card to card")
    if facts.kind == CUDA and (facts.capability or (0, 0)) < (8, 9):
        raise NotRunnable("needs compute capability 8.9 or newer: float8")
    return dtype, torch.bfloat16, torch.float32


def _laid_out(matrix: Any, letter: str) -> Any:
    return matrix.contiguous() if letter == "n" else matrix.t().contiguous().t()


def _multiply(name: str, a: Any, b: Any, output: Any) -> Callable[[], Tuple[Any, ...]]:
    import torch

    if name == "int8":
        return lambda: (torch._int_mm(a, b),)
    if name in _FLOAT8:
        # cuBLASLt multiplies E5M2 by E4M3 only, never by itself: B stays E4M3, whose integers go further.
        right_operand = b.to(torch.float32).to(torch.float8_e4m3fn).t().contiguous().t()
        one = torch.ones((), dtype=torch.float32, device=a.device)
        return lambda: (_scaled_mm(a, right_operand, one, output),)

    def run() -> Tuple[Any, ...]:
        with full_precision(tf32=name == "tf32"):
            return (torch.matmul(a, b),)

    return run


def _scaled_mm(a: Any, b: Any, one: Any, output: Any) -> Any:
    import torch

    # use_fast_accum=False moves the sum into fp32 registers every few steps.
    made = torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=output, use_fast_accum=False)
    return made[0] if isinstance(made, tuple) else made
