"""Every operation on the CPU: right, or with the reason why it is not there."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch: nox -s checks")

from envaudit.checks import registry  # noqa: E402
from envaudit.checks.device import DeviceFacts, facts_of  # noqa: E402
from envaudit.checks.operations import NotRunnable, triton_kernels  # noqa: E402
from envaudit.checks.outcome import ERROR, NOT_RUN, OK, WRONG  # noqa: E402
from envaudit.checks.precision import full_precision  # noqa: E402
from envaudit.checks.trial import Effort, attempt  # noqa: E402
from tests.conftest import PACKAGE_HOME  # noqa: E402

CPU = facts_of("cpu")
CASES = registry.cases(CPU)
# What a card would be asked; nothing of it is run here.
HOPPER = DeviceFacts("cuda:0", "cuda", (9, 0), (2, 13), False, True, 141 * 10**9)
VOLTA = DeviceFacts("cuda:0", "cuda", (7, 0), (1, 13), False, False, 16 * 10**9)


@pytest.mark.parametrize("name", [case.name for case in CASES if case.own is None])
def test_operation_on_the_cpu_is_right_or_says_why_it_is_not_there(name: str) -> None:
    """Three seeds and both forms of its data."""
    (case,) = [each for each in CASES if each.name == name]
    for seed, scaled in ((1, True), (2, False), (3, True)):
        outcome = attempt(case, CPU, seed, Effort(repeats=2, scaled=scaled))
        if outcome.status == NOT_RUN:
            pytest.skip(outcome.reason)
        assert (OK, "", None) == (outcome.status, outcome.reason, outcome.mismatch)
        assert 16 == len(outcome.digest)
        assert outcome.median_ns is not None


@pytest.mark.parametrize("facts", [CPU, HOPPER, VOLTA], ids=["cpu", "hopper", "volta"])
def test_case_names_are_unique_and_begin_with_their_module(facts: DeviceFacts) -> None:
    """A name is the key of an outcome."""
    names = [case.name for case in registry.cases(facts, registry.operation_names())]
    assert len(names) == len(set(names))
    assert set(registry.operation_names()) == {name.split("/")[0] for name in names}


def test_what_takes_long_is_run_on_request_only() -> None:
    """torch.compile takes seconds a case."""
    assert [] == registry.cases(CPU, ["gemm/nothing"])
    assert not any(case.name.startswith("compiled/") for case in CASES)
    requested = [case.name for case in registry.cases(CPU, ["compiled"])]
    assert ["compiled/fp32/epilogue", "compiled/bf16/epilogue"] == requested
    assert all(case.name.startswith("gemm/bf16/") for case in registry.cases(CPU, ["gemm/bf16"]))


@pytest.mark.parametrize(
    ("name", "facts", "words"),
    [
        ("gemm/tf32/spread", VOLTA, "compute capability 8.0"),
        ("gemm/bf16/adjacent", VOLTA, "compute capability 8.0 or newer: bf16"),
        ("convolution/bf16/stride", VOLTA, "compute capability 8.0 or newer: bf16"),
        ("attention/bf16/explicit", VOLTA, "compute capability 8.0 or newer: bf16"),
        ("convolution/fp32/stride", HOPPER._replace(rocm=True, capability=None), "MIOpen"),
        ("gemm/e4m3/spread", VOLTA, "torch 2.5"),
        ("gemm/e4m3/spread", HOPPER._replace(capability=(8, 6)), "compute capability 8.9"),
        ("gemm/e5m2/adjacent", HOPPER._replace(rocm=True), "ROCm"),
        ("triton_kernels/fp32/dot", HOPPER._replace(triton=False), "the package triton"),
    ],
)
def test_case_that_a_device_cannot_run_says_what_it_needs(name: str, facts: DeviceFacts, words: str) -> None:
    """Before any data is made."""
    if (
        not name.startswith(("gemm/tf32", "triton"))
        and facts is not VOLTA
        and not hasattr(torch, "_scaled_mm")
    ):
        pytest.skip("this torch has no float8")
    (case,) = registry.cases(facts, [name])
    with pytest.raises(NotRunnable, match=words):
        case.prepare("cpu", 1, True)


def test_references_made_twice_are_equal() -> None:
    """What the host compares with is made anew, and is the same."""
    (case,) = registry.cases(CPU, ["convolution/fp32/groups"])
    prepared = case.prepare("cpu", 9, True)
    assert prepared.expected is not None
    assert torch.equal(prepared.expected("cpu")[0], prepared.expected("cpu")[0])
    other = case.prepare("cpu", 10, True).expected
    assert other is not None
    assert not torch.equal(prepared.expected("cpu")[0], other("cpu")[0])


@pytest.mark.parametrize(
    ("name", "function"), [("elementwise/fp64/sqrt-of-squares", "sqrt"), ("repeatability/fp32/exp", "exp")]
)
def test_vector_function_is_first_called_for_one_element(
    name: str, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one thread, for MKL's first call may go wrong where several make it."""
    (case,) = registry.cases(CPU, [name])
    original = getattr(torch, function)
    sizes: list[int] = []
    monkeypatch.setattr(torch, function, lambda values: sizes.append(values.numel()) or original(values))
    case.prepare("cpu", 1, True).run()
    assert 1 == sizes[0] < sizes[-1]


def switches() -> tuple[bool, bool, bool]:
    """Three of those that an operation sets."""
    matmul = torch.backends.cuda.matmul
    return (
        matmul.allow_tf32,
        matmul.allow_fp16_reduced_precision_reduction,
        torch.backends.cudnn.allow_tf32,
    )


def fail_under_tf32(seen: list[tuple[bool, bool, bool]]) -> None:
    """What an operation that fails leaves behind."""
    with full_precision(tf32=True):
        seen.append(switches())
        raise ZeroDivisionError


def test_switches_of_torch_are_put_back() -> None:
    """Also after an exception; TF32 is on only inside, where it is what is tried."""
    before = switches()
    seen: list[tuple[bool, bool, bool]] = []
    with pytest.raises(ZeroDivisionError):
        fail_under_tf32(seen)
    with full_precision():
        seen.append(switches())
    assert [(True, False, True), (False, False, False)] == seen
    assert before == switches()


def test_fp32_that_is_rounded_on_the_way_to_a_product_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """As TF32 rounds it, to 11 bits, and in its last bit; a sum of thousands has no operand so wide."""
    real = torch.matmul
    for lost_bits in (13, 1):

        def rounding(a: Any, b: Any, lost_bits: int = lost_bits) -> Any:
            kept = a.contiguous().view(torch.int32) & -(1 << lost_bits)
            return real(kept.view(torch.float32), b)

        with monkeypatch.context() as patch:
            patch.setattr(torch, "matmul", rounding)
            found = {case.name: attempt(case, CPU, 3).status for case in registry.cases(CPU, ["gemm/fp32"])}
        assert {"gemm/fp32/spread": OK, "gemm/fp32/adjacent": OK, "gemm/fp32/select": WRONG} == found


@pytest.mark.parametrize("kept", ["all", "one too many", "one too few"])
def test_causal_mask_that_is_not_kept_is_seen(kept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies behind it would be selected as well."""
    attend = getattr(torch.nn.functional, "scaled_dot_product_attention", None)
    if attend is None:
        pytest.skip("needs torch 2.0: scaled_dot_product_attention")
    diagonal = {"all": 10**6, "one too many": 1, "one too few": -1}[kept]

    def masked(query: Any, key: Any, value: Any, is_causal: bool) -> Any:
        side = query.shape[2]
        mask = torch.ones(side, side).tril(diagonal if is_causal else 10**6).bool()
        mask[0, 0] = True
        return attend(query, key, value, attn_mask=mask)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", masked)
    found = {case.name: attempt(case, CPU, 3).status for case in registry.cases(CPU, ["attention/fp32"])}
    assert {
        "attention/fp32/fused": OK,
        "attention/fp32/causal": WRONG,
        "attention/fp32/explicit": OK,
    } == found


def test_importing_the_checks_does_not_import_torch() -> None:
    """Every module but the one that is Triton's source."""
    program = (
        "import importlib, pkgutil, sys, envaudit.checks as checks\n"
        "names = [m.name for m in pkgutil.walk_packages(checks.__path__, 'envaudit.checks.')]\n"
        "names.remove('envaudit.checks.tritonkernels')\n"
        "[importlib.import_module(name) for name in names]\n"
        "print(len(names) > 15, 'torch' in sys.modules, 'triton' in sys.modules)\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(PACKAGE_HOME)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environ)
    assert ("True False False\n", "") == (done.stdout, done.stderr)


def test_triton_s_kernels_are_right_under_its_interpreter() -> None:
    """The kernels themselves, without a GPU."""
    pytest.importorskip("triton", reason="needs triton")
    pytest.importorskip("numpy", reason="Triton's interpreter needs numpy")
    program = (
        "from envaudit.checks import registry, trial\n"
        "from envaudit.checks.device import facts_of\n"
        "facts = facts_of('cpu')\n"
        "for case in registry.cases(facts, ['triton_kernels']):\n"
        "    outcome = trial.attempt(case, facts, 5)\n"
        "    print(case.name, outcome.status, outcome.reason)\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(PACKAGE_HOME), "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environ)
    wanted = ["triton_kernels/int32/add ok", "triton_kernels/fp32/dot ok", "triton_kernels/fp16/dot ok"]
    assert wanted == [line.strip() for line in done.stdout.splitlines()], done.stderr


class _Unbuilt:
    """In the place of a Triton kernel, on a machine where Triton cannot build what launches it."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return self._launch

    def _launch(self, *arguments: object, **sizes: int) -> None:
        raise self._error


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        # As Triton 2.0 to 3.8 say it, the second with gcc and without Python.h.
        (
            RuntimeError("Failed to find C compiler. Please specify via CC environment variable."),
            NOT_RUN,
            "needs a C compiler, for Triton: there is none",
        ),
        (
            subprocess.CalledProcessError(1, ["/usr/bin/gcc", "/tmp/tmpb9/cuda_utils.c", "-O3"]),
            NOT_RUN,
            "needs a C compiler and Python's headers, for Triton: gcc ended with exit status 1",
        ),
        (
            FileNotFoundError(2, "No such file or directory", "gcc-13"),
            NOT_RUN,
            "needs a C compiler, for Triton: there is no gcc-13",
        ),
        (
            subprocess.CalledProcessError(-11, ["/opt/triton/backends/nvidia/bin/ptxas", "--version"]),
            ERROR,
            "CalledProcessError: Command",
        ),
        (RuntimeError("Triton Error [CUDA]: an illegal memory access"), ERROR, "RuntimeError: Triton Error"),
    ],
)
def test_triton_without_a_c_compiler_says_so_and_its_other_failures_are_errors(
    monkeypatch: pytest.MonkeyPatch, error: Exception, status: str, words: str
) -> None:
    """Images that run CUDA have often no compiler, and their GPUs are sound."""
    kernels = SimpleNamespace(add=_Unbuilt(error), multiply=_Unbuilt(error))
    monkeypatch.setattr(triton_kernels, "_kernels", lambda facts: kernels)
    for case in registry.cases(CPU, ["triton_kernels"]):
        outcome = attempt(case, CPU, 5)
        assert status == outcome.status, case.name
        assert outcome.reason.startswith(words)


@pytest.mark.kernels
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("name", ["compiled/fp32/epilogue", "compiled/bf16/epilogue"])
def test_compiled_product_is_right(name: str) -> None:
    """Compiled for the CPU, which needs a C++ compiler and a minute."""
    (case,) = registry.cases(CPU, [name])
    outcome = attempt(case, CPU, 6)
    assert (OK, "") == (outcome.status, outcome.reason)
