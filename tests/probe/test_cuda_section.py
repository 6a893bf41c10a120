"""The node's own CUDA: toolkits, nvcc and the driver library, on fake nodes and this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Callable, Dict

import pytest

from envaudit.probe.context import Answer, Context
from envaudit.probe.sections import cuda
from tests.probe import fakelibs

MakeNode = Callable[..., Context]
INTERPRETER = {"executable": "/usr/bin/python3", "prefix": "/usr", "base_prefix": "/usr", "path": []}
NVCC = """nvcc: NVIDIA (R) Cuda compiler driver
Copyright (c) 2005-2024 NVIDIA Corporation
Built on Thu_Mar_28_02:18:24_PDT_2024
Cuda compilation tools, release 12.4, V12.4.131
Build cuda_12.4.r12.4/compiler.34097967_0
"""
MANIFEST = '{"cuda": {"name": "CUDA SDK", "version": "12.4.1"}, "cuda_nvcc": {"version": "12.4.131"}}'
TOOLKIT: Dict[str, Any] = {
    "/usr/local/cuda-12.4/bin/nvcc": "",
    "/usr/local/cuda-12.4/version.json": MANIFEST,
}


def toolkit_node(make_node: MakeNode, said: Dict[str, Any], **files: str) -> Context:
    """A node with toolkit 12.4 on PATH, whose nvcc says something."""
    return make_node(
        {**TOOLKIT, **files},
        environ={"PATH": "relative:/usr/bin:/usr/local/cuda-12.4/bin", "CUDA_HOME": "/usr/local/cuda-12.4"},
        interpreter=INTERPRETER,
        commands={"/usr/local/cuda-12.4/bin/nvcc --version": said},
    )


def test_cuda_of_a_toolkit_is_told_by_its_manifest(make_node: MakeNode) -> None:
    """Nvcc's own version, the toolkit's release, and the variable that names it."""
    node = toolkit_node(make_node, {"rc": 0, "stdout": NVCC})
    os.symlink("cuda-12.4", os.path.join(node.root, "usr/local/cuda"))
    assert Answer(
        "ok",
        {
            "nvcc": {"path": "/usr/local/cuda-12.4/bin/nvcc", "version": "12.4.131"},
            "home": {"variable": "CUDA_HOME", "path": "/usr/local/cuda-12.4", "version": "12.4.1"},
            "default": "/usr/local/cuda-12.4",
            "toolkits": {"/usr/local/cuda-12.4": "12.4.1"},
            "libcuda": None,
            "compat": False,
        },
        {},
        [],
    ) == cuda.read(node)


def test_cuda_of_a_node_without_any_is_absent(make_node: MakeNode) -> None:
    """No toolkit, no compiler, no driver library."""
    node = make_node({"/usr/local/lib/x": ""}, environ={"PATH": "/usr/bin"}, interpreter=INTERPRETER)
    assert Answer("absent", {}) == cuda.read(node)


def test_cuda_with_a_hanging_nvcc_takes_the_manifest(make_node: MakeNode) -> None:
    """A compiler on a dead mount costs nothing where its toolkit tells the version."""
    answer = cuda.read(toolkit_node(make_node, {"hang": True}))
    assert ("ok", "12.4.131") == (answer.status, answer.facts["nvcc"]["version"])


@pytest.mark.parametrize(
    "said", [{"hang": True}, {"rc": 127, "stdout": "garbled\x00"}], ids=["hang", "garbled"]
)
@pytest.mark.parametrize("manifest", ["{", "[]", '{"cuda_nvcc": 3}', "[" * 100000], ids=list("abcd"))
def test_cuda_with_nothing_that_tells_nvcc_is_partial(
    make_node: MakeNode, said: Dict[str, Any], manifest: str
) -> None:
    """Where neither the compiler nor a sane manifest tells, the version is unknown and named so."""
    files = {"/usr/local/cuda-12.4/version.json": manifest}
    answer = cuda.read(toolkit_node(make_node, said, **files))
    assert "partial" == answer.status
    assert answer.errors[0].startswith("nvcc: ")
    assert {"/usr/local/cuda-12.4": None} == answer.facts["toolkits"]


@pytest.mark.parametrize(
    ("files", "version"),
    [
        ({"version.txt": "CUDA Version 10.2.89\n"}, "10.2.89"),
        ({"include/cuda.h": "#define  CUDA_VERSION 13000\n"}, "13.0"),
        ({"version.json": MANIFEST, "version.txt": "CUDA Version 1.0"}, "12.4.1"),
        ({"include/cuda.h": "garbled"}, None),
    ],
)
def test_cuda_toolkit_version_by_its_age(make_node: MakeNode, files: Dict[str, str], version: str) -> None:
    """version.json since 11.1, version.txt before, the header where a toolkit was put together by hand."""
    node = make_node(
        {f"/usr/local/cuda/{name}": text for name, text in files.items()}, interpreter=INTERPRETER
    )
    assert {"/usr/local/cuda": version} == cuda.read(node).facts["toolkits"]


def test_cuda_in_folders_that_may_not_be_read_says_nothing_of_them(make_node: MakeNode) -> None:
    """Permission denied on the toolkit: it is there, of unknown version."""
    node = make_node(TOOLKIT, interpreter=INTERPRETER, denied=["/usr/local/cuda-12.4/version.json"])
    assert {"/usr/local/cuda-12.4": None} == cuda.read(node).facts["toolkits"]


def here(environ: Dict[str, str]) -> Context:
    """This machine with a prepared environment."""
    interpreter = {"executable": sys.executable, "prefix": "/env", "base_prefix": "/env", "path": []}
    return Context(environ=environ, workdir="/", launch="local", interpreter=interpreter)


@pytest.mark.parametrize(
    ("folder", "origin", "compat"),
    [
        ("driver", "other", False),
        ("cuda-12.4/compat", "cuda-compat", True),
        ("cuda-compat", "cuda-compat", True),
    ],
)
def test_libcuda_is_the_one_the_loader_takes(tmp_path: Path, folder: str, origin: str, compat: bool) -> None:
    """The driver library's version stands in its real name; one from cuda-compat is told as such."""
    path = fakelibs.build_libcuda(str(tmp_path / folder), "550.54.15")
    facts = cuda.read(here({"LD_LIBRARY_PATH": os.path.dirname(path)})).facts
    expected = {"path": path, "version": "550.54.15", "origin": origin, "via": "LD_LIBRARY_PATH"}
    assert (expected, compat) == (facts["libcuda"], facts["compat"])
