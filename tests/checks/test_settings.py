"""Random shapes, layouts, threads, seeds and dtypes: none of them makes an exact operation wrong."""

from __future__ import annotations

from random import Random

import pytest

torch = pytest.importorskip("torch", reason="needs torch: nox -s checks")

from envaudit.checks.device import facts_of  # noqa: E402
from envaudit.checks.operands import ADJACENT, SELECT, SPREAD  # noqa: E402
from envaudit.checks.operations import Case  # noqa: E402
from envaudit.checks.operations.attention import Attention, attention_case  # noqa: E402
from envaudit.checks.operations.convolution import Convolution, convolution_case  # noqa: E402
from envaudit.checks.operations.elementwise import elementwise_case  # noqa: E402
from envaudit.checks.operations.gemm import LAYOUTS, Multiplication, product_case  # noqa: E402
from envaudit.checks.operations.reductions import Reduction, scan_case, sum_case  # noqa: E402
from envaudit.checks.operations.sorting import Sorting, sort_case  # noqa: E402
from envaudit.checks.outcome import NOT_RUN, OK  # noqa: E402
from envaudit.checks.trial import Effort, attempt  # noqa: E402

CPU = facts_of("cpu")
KINDS = ("gemm", "gemm", "gemm", "convolution", "attention", "sum", "scan", "sort", "elementwise")


def product_of(random: Random) -> Case:
    """fp8 and int8 take multiples of 16, everything else any size."""
    dtype = random.choice(["fp64", "fp32", "bf16", "fp16", "e4m3", "e5m2", "int8"])
    narrow = dtype in ("e4m3", "e5m2")
    if narrow or dtype == "int8":
        most = 3 if narrow else 16
        shape = (
            16 * random.randint(2, most),
            16 * random.randint(2, 4 * most),
            16 * random.randint(1, most),
        )
    else:
        shape = (random.randint(1, 300), 2 * random.randint(16, 700), random.randint(1, 300))
    order = random.choice([SPREAD, ADJACENT, SELECT])
    multiplication = Multiplication(dtype, shape, order, random.choice(LAYOUTS))
    return product_case(f"gemm {multiplication}", multiplication, CPU)


def convolution_of(random: Random) -> Case:
    """Any stride, dilation and groups: Winograd is not among a CPU's ways."""
    groups = random.choice([1, 1, 2, 4])
    convolution = Convolution(
        images=random.randint(1, 4),
        channels_in=2 * groups * random.randint(1, 16),
        channels_out=groups * random.randint(1, 24),
        side=random.randint(11, 24),
        kernel=(random.randint(1, 5), random.randint(1, 5)),
        stride=random.randint(1, 3),
        padding=random.randint(0, 3),
        dilation=random.randint(1, 2),
        groups=groups,
        channels_last=random.random() < 0.5,
    )
    dtype = random.choice(["fp32", "bf16", "fp16"])
    return convolution_case(f"convolution {dtype} {convolution}", dtype, convolution, CPU)


def attention_of(random: Random) -> Case:
    """Every head size that is in use."""
    fused = random.random() < 0.7
    attention = Attention(
        batch=random.randint(1, 3),
        heads=random.randint(1, 4),
        length=random.randint(1, 250),
        head_dim=random.choice([32, 64, 80, 128]),
        fused=fused,
        causal=fused and random.random() < 0.5,
    )
    dtype = random.choice(["fp32", "bf16", "fp16"])
    return attention_case(f"attention {dtype} {attention}", dtype, attention, CPU)


def case_of(kind: str, random: Random) -> Case:
    """A random case of one kind."""
    dtype = random.choice(["fp64", "fp32", "bf16", "fp16"])
    if kind == "gemm":
        return product_of(random)
    if kind == "convolution":
        return convolution_of(random)
    if kind == "attention":
        return attention_of(random)
    if kind == "sum":
        reduction = Reduction(random.randint(2, 200), 2 * random.randint(1, 2000), random.randint(0, 1))
        return sum_case(f"sum {dtype} {reduction}", dtype, reduction)
    if kind == "scan":
        reduction = Reduction(random.randint(1, 40), random.randint(1, 5000))
        return scan_case(f"scan {dtype} {reduction}", dtype, reduction)
    if kind == "sort":
        sorting = Sorting(random.randint(1, 9), random.randint(1, 4000), random.random() < 0.5)
        return sort_case(f"sort {dtype} {sorting}", random.choice([dtype, "int32", "int64"]), sorting)
    operation = random.choice(["add", "mul", "div", "fma", "sqrt-of-squares"])
    return elementwise_case(f"{operation} {dtype}", operation, dtype, random.randint(1, 5))


def failures(seed: int, count: int) -> tuple[list[str], int]:
    """What is wrong among `count` settings, and how many of them did run."""
    random = Random(seed)
    wrong, ran = [], 0
    before = torch.get_num_threads()
    try:
        for index in range(count):
            torch.set_num_threads(random.choice([1, 1, 2, 3]))
            case = case_of(KINDS[index % len(KINDS)], random)
            effort = Effort(repeats=1, scaled=random.random() < 0.7)
            outcome = attempt(case, CPU, random.getrandbits(64), effort)
            ran += outcome.status != NOT_RUN
            if outcome.status not in (OK, NOT_RUN):
                wrong.append(f"{case.name}: {outcome.status} {outcome.reason} {outcome.mismatch}")
    finally:
        torch.set_num_threads(before)
    return wrong, ran


def test_sixty_random_settings_have_no_failure() -> None:
    """The same sixty every time."""
    wrong, ran = failures(seed=1, count=60)
    assert [] == wrong
    # Old releases have no fp16 on the CPU, and no fp8 at all.
    assert ran >= 25


@pytest.mark.kernels
@pytest.mark.timeout(900)
def test_four_hundred_random_settings_have_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    """The row of docs/measurements.md."""
    wrong, ran = failures(seed=2, count=400)
    with capsys.disabled():
        print(f"\n{ran} random settings ran, {len(wrong)} failed")
    assert [] == wrong
