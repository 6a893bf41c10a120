"""What the files say of a real CUDA build of torch, against what torch says once it is imported.

Runs where ENVAUDIT_CUDA_PYTHON names the Python of a virtual environment that holds a CUDA build of
torch; no GPU is needed. `pytest -m cuda -s` prints the times.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest

from envaudit.model.codec import fingerprint_of_answer
from envaudit.probe.context import Context
from envaudit.probe.families import cublas_version, cuda_version, cudnn_version, nccl_in, nccl_version
from envaudit.rules import Evidence, judge
from tests.conftest import PROJECT
from tests.probe import fakelibs

pytestmark = pytest.mark.cuda

PYTHON = os.environ.get("ENVAUDIT_CUDA_PYTHON", "")

STATIC = """
import json, sys, time
start = time.perf_counter()
from envaudit.probe.runner import probe
answer = probe({"sections": ["torch", "libraries"], "tool": "1"})
took_s = time.perf_counter() - start
assert "torch" not in sys.modules
print(json.dumps({"took_s": took_s, "answer": answer, **{row["name"]: row for row in answer["sections"]}}))
"""

DEEP = """
import json
from envaudit.probe.runner import probe
answer = probe({"sections": ["torch", "libraries"], "also": ["deep"], "tool": "1"})
print(json.dumps({"answer": answer, **{row["name"]: row for row in answer["sections"]}}))
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


@pytest.fixture(scope="module")
def deep() -> Dict[str, Any]:
    """What the probe says with `--deep`: the files, and a process that has imported torch."""
    return said(DEEP)


def raised(answer: Dict[str, Any]) -> List[str]:
    """The rules that fire on this one node, about torch and what is loaded."""
    one = fingerprint_of_answer(answer, node="n", source="probe", where="answer")
    asked = tuple(row["name"] for row in answer["sections"])
    found = judge(Evidence((one,), sections=asked, comparing=False))
    return [" | ".join([each.rule, each.message, *each.evidence]) for each in found]


def test_deep_is_what_torch_says(truth: Dict[str, Any], deep: Dict[str, Any]) -> None:
    """Import, convolution and collective end well, and what is told is what torch tells a user."""
    facts = deep["deep"]["facts"]
    assert ("ok", []) == (deep["deep"]["status"], deep["deep"]["errors"])
    assert ("ok", "ok", {"backend": "gloo", "outcome": "ok"}) == (
        facts["import"],
        facts["convolution"],
        facts["collective"],
    )
    assert {
        "version": truth["version"],
        "cuda": truth["cuda"],
        "cudnn": cudnn_version(truth["cudnn"]),
        "nccl": truth["nccl_built"],
        "architectures": truth["architectures"],
    } == facts["torch"]


def test_static_is_what_deep_finds(deep: Dict[str, Any]) -> None:
    """Path and version of each family agree, the architectures too, and so no rule fires."""
    static, loaded = deep["libraries"]["facts"], deep["deep"]["facts"]["libraries"]
    assert {"cudnn", "nccl", "cudart", "cublas", "cublaslt", "cufft", "nvrtc", "cusparse"} <= set(loaded)
    assert {name: static[name]["path"] for name in loaded} == {name: loaded[name]["path"] for name in loaded}
    assert [] == [
        (name, static[name]["version"], row["version"])
        for name, row in loaded.items()
        if not f"{static[name]['version']}.".startswith(f"{row['version']}.")
    ]
    assert {"graph": "beside"} == loaded["cudnn"]["parts"]
    assert deep["torch"]["facts"]["architectures"] == deep["deep"]["facts"]["torch"]["architectures"]
    assert [] == raised(deep["answer"])


def test_static_nccl_tells_its_own_cuda_and_torch_what_it_was_built_with(
    truth: Dict[str, Any], static: Dict[str, Any]
) -> None:
    """NCCL of this release was built for another CUDA than torch; torch's own record pins both libraries."""
    facts = static["libraries"]["facts"]
    assert ("13.0", "13.3") == (truth["cuda"], facts["nccl"]["cuda"])
    assert {"cudnn": "9.24.0", "nccl": truth["nccl_built"]} == facts["torch"]["built_with"]
    assert "2.28" == facts["torch"]["glibc"]


@pytest.fixture(scope="module")
def other_nccl(static: Dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> str:
    """Another NCCL with every function that this torch asks for."""
    torch = static["libraries"]["notes"]["places"]["{site}"] + "/torch/lib/libtorch_cuda.so"
    listed = subprocess.run(["nm", "-D", "-u", torch], capture_output=True, text=True, check=True).stdout
    wanted = [name for name in listed.split() if name.startswith("nccl")]
    return fakelibs.build_nccl(str(tmp_path_factory.mktemp("other")), "2.18.5", exports=wanted)


def test_second_nccl_in_preload_is_named_with_both_paths(other_nccl: str) -> None:
    """The preloaded one is taken, by the files as by torch, and torch's own stands among the copies."""
    environ = {"LD_PRELOAD": other_nccl}
    found = said(DEEP, environ)
    nccl = found["libraries"]["facts"]["nccl"]
    assert (other_nccl, "2.18.5", "LD_PRELOAD") == (nccl["path"], nccl["version"], nccl["via"])
    copies = found["libraries"]["facts"]["copies"]["nccl"]
    assert {"{site}/nvidia/nccl/lib/libnccl.so.2": "2.30.7"} == copies
    loaded = found["deep"]["facts"]["libraries"]["nccl"]
    assert (other_nccl, "2.18.5") == (loaded["path"], loaded["version"])
    assert "2.18.5" == nccl_version(said(TRUTH, environ)["nccl"])
    assert [] == raised(found["answer"])


def test_second_nccl_that_the_loader_does_not_take_raises_nothing(
    other_nccl: str, static: Dict[str, Any]
) -> None:
    """First on LD_LIBRARY_PATH, behind the RPATH of this build: it stands among the copies, no more."""
    environ = {"LD_LIBRARY_PATH": os.path.dirname(other_nccl)}
    found = said(DEEP, environ)
    facts, without = found["libraries"]["facts"], static["libraries"]["facts"]
    assert {other_nccl: "2.18.5"} == facts["copies"]["nccl"]
    assert {**without, "copies": None} == {**facts, "copies": None}
    assert without["nccl"]["path"] == found["deep"]["facts"]["libraries"]["nccl"]["path"]
    assert "2.30.7" == nccl_version(said(TRUTH, environ)["nccl"])
    assert [] == raised(found["answer"])


def test_nccl_that_a_start_up_file_loads_is_found_by_deep_alone(other_nccl: str, tmp_path: Path) -> None:
    """A sitecustomize loads another NCCL before torch: the files cannot know, and both paths are named."""
    text = f"import ctypes\nctypes.CDLL({other_nccl!r}, mode=ctypes.RTLD_GLOBAL)\n"
    (tmp_path / "sitecustomize.py").write_text(text)
    found = said(DEEP, {"PYTHONPATH": f"{PROJECT}:{tmp_path}"})
    assert [
        "EA250 | nccl is not the one that the files say"
        " | files:  2.30.7, {site}/nvidia/nccl/lib/libnccl.so.2 | loaded: 2.18.5, " + other_nccl
    ] == raised(found["answer"])


def test_static_nccl_is_found_in_a_library_of_this_size(static: Dict[str, Any], tmp_path: Path) -> None:
    """The text of an NCCL that is linked in, last in the read-only data of this torch's own library."""
    torch = static["libraries"]["notes"]["places"]["{site}"] + "/torch/lib/libtorch_cuda.so"
    copy = str(shutil.copyfile(torch, tmp_path / "libtorch_cuda.so"))
    context = Context(environ={}, workdir="/", launch="local", interpreter={})
    assert nccl_in(context, copy) is None
    printed = subprocess.run(["readelf", "-SW", copy], capture_output=True, text=True, check=True).stdout
    place = re.search(r" \.rodata +PROGBITS +\w+ (\w+) (\w+)", printed)
    assert place
    text = b"\0NCCL version 2.20.5+cuda12.4\0"
    with open(copy, "r+b") as stream:
        stream.seek(int(place.group(1), 16) + int(place.group(2), 16) - len(text))
        stream.write(text)
    start = time.perf_counter()
    assert ("2.20.5", "12.4") == nccl_in(context, copy)
    took_s = time.perf_counter() - start
    print(f"\nNCCL found in {os.path.getsize(copy) >> 20} MiB: {took_s * 1000:.1f} ms")
    assert took_s < 0.5
    os.unlink(copy)


def test_static_reading_costs_a_fraction_of_the_import(truth: Dict[str, Any], static: Dict[str, Any]) -> None:
    """Both sections together, in processes already started, against the import alone."""
    print(f"\nstatic: {static['took_s'] * 1000:.0f} ms; import torch: {truth['took_s'] * 1000:.0f} ms")
    assert static["took_s"] < truth["took_s"] / 4
