"""The real worker, its torch and its operations, with operations beside them that fail (`armed/`)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Dict, List

import pytest

from envaudit.checks import worker
from envaudit.checks.outcome import ERROR, NOT_RUN, OK, TIMEOUT, WRONG
from envaudit.checks.plan import Plan
from envaudit.checks.supervise import DeviceRun, Started, supervise

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch: nox -s checks")

ARMED = Path(__file__).with_name("armed")


def armed_environ(tmp_path: Path) -> Dict[str, str]:
    """Variables under which the interpreter finds the failing operations beside the others."""
    arming = tmp_path / "armed"
    arming.write_text(str(ARMED / "operations"))
    return {
        **os.environ,
        "PYTHONPATH": str(ARMED),
        "ENVAUDIT_TEST_ARMED": str(arming),
        "OMP_NUM_THREADS": "1",
    }


def supervised(environ: Dict[str, str], **plan: Any) -> List[DeviceRun]:
    """The outcomes under this interpreter."""
    return supervise(Started(sys.executable, environ), Plan(**plan))


def test_every_way_to_fail_costs_its_operation_and_is_named(tmp_path: Path) -> None:
    """A flipped bit, an exception, hunger, an exit, a crash and a hang, and then the rest."""
    began = time.monotonic()
    (run,) = supervised(armed_environ(tmp_path), ops=("faulty",), budget_s=60)
    found = {name: outcome.status for name, outcome in run.outcomes.items()}
    assert {
        "faulty/flip": WRONG,
        "faulty/fine": OK,
        "faulty/raise": ERROR,
        "faulty/hunger": ERROR,
        "faulty/exit": ERROR,
        "faulty/segfault": ERROR,
        "faulty/hang": TIMEOUT,
        "faulty/after": OK,
    } == found
    assert 60 > time.monotonic() - began
    mismatch = run.outcomes["faulty/flip"].mismatch
    assert mismatch is not None
    assert (1, (1, 2), (9,)) == (mismatch.wrong, mismatch.first_index, mismatch.flipped_bits)
    reasons = {
        name: run.outcomes[f"faulty/{name}"].reason for name in ("raise", "hunger", "exit", "segfault")
    }
    assert "illegal memory access" in reasons["raise"]
    assert "MemoryError" in reasons["hunger"]
    assert "exit status 3" in reasons["exit"]
    assert "SIGSEGV" in reasons["segfault"]
    assert run.outcomes["faulty/fine"].digest == run.outcomes["faulty/after"].digest != ""


SETTINGS = """\
import torch
torch.set_default_dtype(torch.float64)
if hasattr(torch, "set_default_device"):
    torch.set_default_device("meta")
torch.set_float32_matmul_precision("medium")
torch.set_flush_denormal(True)
torch.use_deterministic_algorithms(True)
torch.autocast("cpu").__enter__()
print("environment ready", flush=True)
"""


def test_settings_of_the_environment_accuse_no_device(tmp_path: Path) -> None:
    """Other types, another device and less precision by default are its user's choice."""
    (tmp_path / "sitecustomize.py").write_text(SETTINGS)
    environ = {**os.environ, "PYTHONPATH": str(tmp_path), "ONEDNN_DEFAULT_FPMATH_MODE": "BF16"}
    ops = ("attention", "convolution", "elementwise/fp32", "reductions", "sorting", "gemm/fp32")
    (run,) = supervised(environ, ops=ops, budget_s=120)
    assert run.outcomes
    assert {} == {
        name: (outcome.status, outcome.reason)
        for name, outcome in run.outcomes.items()
        if outcome.status not in (OK, NOT_RUN)
    }


PRECISIONS = """\
import torch
from envaudit.checks.precision import full_precision
from envaudit.checks.readiness import set_back_defaults
backends = torch.backends
for owner, words in (
    (backends, "tf32"),
    (backends, "ieee"),
    (backends.cuda.matmul, "tf32"),
    (backends.cuda.matmul, "ieee"),
    (backends.cudnn, "tf32"),
    (backends.cudnn.conv, "ieee"),
    (backends.cudnn.rnn, "ieee"),
):
    torch.set_float32_matmul_precision("high" if words == "ieee" else "highest")
    owner.fp32_precision = words
    set_back_defaults(torch)
    for tf32 in (False, True):
        with full_precision(tf32):
            said = backends.cuda.matmul.fp32_precision, backends.cudnn.conv.fp32_precision
            print(*("tf32" if each == "tf32" else "full" for each in said))
"""


def test_tf32_of_the_environment_neither_hides_fp32_nor_keeps_tf32_from_being_tried() -> None:
    """Asked for in the words of torch 2.9, which its older words can then neither read nor set."""
    import torch

    if not hasattr(torch.backends, "fp32_precision"):
        pytest.skip("needs torch 2.9: fp32_precision")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PRECISIONS], capture_output=True, text=True, check=False
    )
    assert "full full\ntf32 tf32\n" * 7 == done.stdout, done.stderr


def test_operations_of_the_product_are_all_there_without_being_armed(tmp_path: Path) -> None:
    """The folder on the path alone changes nothing."""
    environ = {**os.environ, "PYTHONPATH": str(ARMED), "OMP_NUM_THREADS": "1"}
    (run,) = supervised(environ, ops=("faulty", "gemm/int8/*"), budget_s=60)
    assert {"gemm/int8/spread", "gemm/int8/adjacent"} == set(run.outcomes)
    assert "cpu" == run.facts["name"]


def test_folder_of_the_package_is_not_on_the_path_of_the_worker(tmp_path: Path) -> None:
    """A module beside envaudit does not hide one of the environment."""
    spy = tmp_path / "sitecustomize.py"
    log = tmp_path / "path"
    spy.write_text(
        "import atexit, sys\n"
        "class Spy:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == 'torch': open({str(log)!r}, 'w').write('\\n'.join(sys.path))\n"
        "sys.meta_path.insert(0, Spy())\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    supervised(environ, ops=("none",), budget_s=60)
    package = str(Path(sys.modules["envaudit"].__path__[0]).parent)
    said = log.read_text().split("\n")
    own = [path for path in sys.path if path == package]
    assert str(tmp_path) in said
    # An editable installation has it there by itself, once.
    assert said.count(package) <= len(own)


@pytest.mark.parametrize(
    "name", ["ONEDNN_MAX_CPU_ISA", "CUBLASLT_WORKSPACE_SIZE", "TORCH_BLAS_PREFER_CUBLASLT", "MKL_CBWR"]
)
def test_variable_that_chooses_kernels_is_part_of_what_must_agree(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two nodes that are set otherwise neither is wrong for its last bits."""
    import torch

    before = worker.describe(torch, "cpu", 0)
    monkeypatch.setenv(name, "1")
    assert before != worker.describe(torch, "cpu", 0)


def test_repeats_that_there_is_no_time_for_leave_no_operation_out() -> None:
    """Each has its share of what is left of the budget, and says how often it ran."""
    from envaudit.checks import registry
    from envaudit.checks.device import facts_of

    facts = facts_of("cpu")
    cases = registry.cases(facts, ["elementwise"])
    said: List[Any] = []
    ends = time.monotonic() + 3
    for place, case in enumerate(cases):
        plan = Plan(repeats=9_999_999)
        assert worker._run(case, facts, plan, ends, said.append, len(cases) - place)
    outcomes = [each["outcome"] for each in said if "outcome" in each]
    assert [OK] * len(cases) == [outcome["status"] for outcome in outcomes]
    assert all(2 < outcome["repeats"] < 9_999_999 for outcome in outcomes)


def test_copy_to_or_from_a_busy_gpu_is_not_run() -> None:
    """Nothing is launched where somebody works, by another GPU's worker neither."""
    busy = {"3": "the GPU is busy: process 1 (train)"}
    why = [worker.busy_end(f"copies/peer/{pair}", busy) for pair in ("0-3", "3-0", "0-13", "1-2")]
    assert [busy["3"], busy["3"], "", ""] == why
