"""What the files say of a real CUDA build of torch, against what torch says once it is imported.

Runs where ENVAUDIT_CUDA_PYTHON names the Python of a virtual environment that holds a CUDA build of
torch; no GPU is needed. `pytest -m cuda -s` prints the times.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Dict, Optional

import pytest

from envaudit.probe.families import cublas_version, cuda_version, cudnn_version, nccl_version
from tests.conftest import PROJECT
from tests.probe import fakelibs

pytestmark = pytest.mark.cuda

PYTHON = os.environ.get("ENVAUDIT_CUDA_PYTHON", "")

STATIC = """
import json, sys, time
start = time.perf_counter()
from envaudit.probe.runner import probe
answer = probe({"sections": ["torch", "libraries"]})
took_s = time.perf_counter() - start
assert "torch" not in sys.modules
print(json.dumps({"took_s": took_s, **{row["name"]: row for row in answer["sections"]}}))
"""

TRUTH = """
import ctypes, json, os, time
start = time.perf_counter()
import torch
took_s = time.perf_counter() - start
cudnn = torch.backends.cudnn.version()
nccl = torch.cuda.nccl.version()
maps = {line.split(None, 5)[5].strip() for line in open("/proc/self/maps") if ".so" in line}
cudart = ctypes.c_int()
ctypes.CDLL(next(p for p in maps if "libcudart" in p)).cudaRuntimeGetVersion(ctypes.byref(cudart))
# torch.cuda.nccl.version() is a constant of the build; what it calls is asked through its own library.
called = ctypes.c_int()
core = ctypes.CDLL(next(p for p in maps if p.endswith("libtorch_cuda.so")))
core.ncclGetVersion(ctypes.byref(called))
cublaslt = ctypes.CDLL(next(p for p in maps if "libcublasLt" in p)).cublasLtGetVersion
cublaslt.restype = ctypes.c_size_t
print(json.dumps({
    "took_s": took_s, "version": torch.__version__, "git_version": torch.version.git_version,
    "cuda": torch.version.cuda, "architectures": torch._C._cuda_getArchFlags().split(),
    "cudnn": cudnn, "nccl": called.value, "nccl_built": ".".join(map(str, nccl)),
    "cudart": cudart.value, "cublaslt": cublaslt(),
    "maps": sorted(maps),
}))
"""


def said(script: str, environ: Optional[Dict[str, str]] = None) -> Dict[str, Any]:
    """What a script prints under the Python of the CUDA environment."""
    assert PYTHON, "ENVAUDIT_CUDA_PYTHON must name the Python of an environment with a CUDA build of torch"
    ran = subprocess.run(
        [PYTHON, "-B", "-W", "ignore", "-c", script],
        env={"PATH": os.defpath, "PYTHONPATH": str(PROJECT), **(environ or {})},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert 0 == ran.returncode, ran.stderr
    answer: Dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return answer


@pytest.fixture(scope="module")
def truth() -> Dict[str, Any]:
    """What torch says after import."""
    said(TRUTH)  # so that neither side pays for a cold disk
    return said(TRUTH)


@pytest.fixture(scope="module")
def static() -> Dict[str, Any]:
    """What the probe reads."""
    said(STATIC)
    return said(STATIC)


def test_static_torch_is_what_torch_says(truth: Dict[str, Any], static: Dict[str, Any]) -> None:
    """Version, commit, CUDA and architectures, without an import."""
    facts = static["torch"]["facts"]
    assert "ok" == static["torch"]["status"], static["torch"]["errors"]
    names = ("version", "git_version", "cuda", "architectures")
    assert {name: truth[name] for name in names} == {name: facts[name] for name in names}


def test_static_versions_are_what_the_libraries_say(truth: Dict[str, Any], static: Dict[str, Any]) -> None:
    """cuDNN, NCCL, the CUDA runtime and cuBLASLt, as the copies that torch loaded tell them."""
    facts = static["libraries"]["facts"]
    assert "ok" == static["libraries"]["status"], static["libraries"]["errors"]
    assert (
        cudnn_version(truth["cudnn"]),
        nccl_version(truth["nccl"]),
        cublas_version(truth["cublaslt"]),
    ) == (
        facts["cudnn"]["version"],
        facts["nccl"]["version"],
        facts["cublaslt"]["version"],
    )
    assert truth["nccl_built"] == facts["nccl"]["version"]
    cudart = cuda_version(truth["cudart"])
    assert cudart == ".".join(facts["cudart"]["version"].split(".")[:2])


def paths(static: Dict[str, Any]) -> Dict[str, str]:
    """The real files that the probe says are loaded, by family."""
    files = static["libraries"]["notes"]["files"]
    return {name: row["real_path"] for name, row in files.items()}


def test_static_paths_are_mapped_after_import(truth: Dict[str, Any], static: Dict[str, Any]) -> None:
    """Every file that the probe names is mapped by a process that imported torch."""
    told = paths(static)
    assert {"cudnn", "nccl", "cudart", "cublas", "cublaslt", "cufft", "nvrtc", "nvjitlink"} <= set(told)
    assert {} == {name: path for name, path in told.items() if path not in truth["maps"]}


def test_static_cudnn_part_is_the_one_that_is_opened(truth: Dict[str, Any], static: Dict[str, Any]) -> None:
    """torch.backends.cudnn.version() makes libcudnn open its graph part: it is beside it, as told."""
    assert "beside" == static["libraries"]["facts"]["cudnn"]["parts"]["graph"]
    folder = os.path.dirname(paths(static)["cudnn"])
    assert [folder] == [os.path.dirname(path) for path in truth["maps"] if "libcudnn_graph" in path]


@pytest.mark.parametrize("variable", ["LD_LIBRARY_PATH", "LD_PRELOAD"])
def test_static_answer_with_another_nccl_is_what_torch_takes(
    static: Dict[str, Any], tmp_path: Path, variable: str
) -> None:
    """Another NCCL first on LD_LIBRARY_PATH, or preloaded: the probe says what the import then does."""
    torch = static["libraries"]["notes"]["places"]["{site}"] + "/torch/lib/libtorch_cuda.so"
    listed = subprocess.run(["nm", "-D", "-u", torch], capture_output=True, text=True, check=True).stdout
    wanted = [name for name in listed.split() if name.startswith("nccl")]
    other = fakelibs.build_nccl(str(tmp_path / "other"), "2.18.5", exports=wanted)
    environ = {variable: os.path.dirname(other) if variable == "LD_LIBRARY_PATH" else other}
    facts = said(STATIC, environ)["libraries"]["facts"]
    imported = said(TRUTH, environ)
    assert nccl_version(imported["nccl"]) == facts["nccl"]["version"]
    assert ("2.18.5" == facts["nccl"]["version"]) == (other == facts["nccl"]["path"])
    assert ("LD_PRELOAD" == variable) == (other == facts["nccl"]["path"])


def test_static_reading_costs_a_fraction_of_the_import(truth: Dict[str, Any], static: Dict[str, Any]) -> None:
    """Both sections together, in processes already started, against the import alone."""
    print(f"\nstatic: {static['took_s'] * 1000:.0f} ms; import torch: {truth['took_s'] * 1000:.0f} ms")
    assert static["took_s"] < truth["took_s"] / 4
