"""Versions: integers of version calls, file names, wheels, and the order in which they count."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Optional

import pytest

from envaudit.probe import families
from envaudit.probe.context import Context
from envaudit.probe.families import family_of, loaded_version, told_version, version_in_name, wheel_version
from tests.probe import fakelibs

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "compat" / "version_encodings.json"
DECODERS = {
    "nccl": families.nccl_version,
    "cudnn": families.cudnn_version,
    "cudart": families.cuda_version,
    "cublas": families.cublas_version,
    "cufft": families.cufft_version,
    "libfabric": families.libfabric_version,
}


def live(**environ: str) -> Context:
    """This machine, with a prepared environment."""
    return Context(environ=environ, workdir="/", launch="local", interpreter={})


@pytest.mark.parametrize(
    ("library", "code", "version"),
    [
        ("nccl", 2408, "2.4.8"),
        ("nccl", 2804, "2.8.4"),
        ("nccl", 20900, "2.9.0"),
        ("nccl", 21805, "2.18.5"),
        ("nccl", 23007, "2.30.7"),
        ("nccl", 2900, None),
        ("nccl", 0, None),
        ("cudnn", 7605, "7.6.5"),
        ("cudnn", 8902, "8.9.2"),
        ("cudnn", 90100, "9.1.0"),
        ("cudnn", 91002, "9.10.2"),
        ("cudnn", 92400, "9.24.0"),
        ("cudnn", 5, None),
        ("cudart", 11080, "11.8"),
        ("cudart", 12040, "12.4"),
        ("cudart", 13000, "13.0"),
        ("cudart", 0, None),
        ("cublas", 130101, "13.1.1"),
        ("cufft", 12000, "12.0.0"),
        ("cufft", 11002, "11.0.2"),
        ("libfabric", 65555, "1.19"),
        ("libfabric", 2**40 + 65555, "1.19"),
        ("libfabric", 5, None),
    ],
)
def test_version_code_reads_as_its_header_makes_it(library: str, code: int, version: Optional[str]) -> None:
    """Each library's own macro, undone; codes that it cannot make have no version."""
    assert version == DECODERS[library](code)


@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS.exists(), reason="../shared/compat is not here")
def test_version_code_agrees_with_the_corpus() -> None:
    """All recorded encodings read as recorded."""
    rows = json.loads(CORPUS.read_text())
    assert rows == [[library, code, DECODERS[library](code)] for library, code, _ in rows]


@pytest.mark.parametrize(
    ("file_name", "name"),
    [
        ("libnccl.so.2", "nccl"),
        ("libnccl.so.2.18.5", "nccl"),
        ("libcudart-a7b20f20.so.11.0", "cudart"),
        ("libcublasLt.so.12", "cublaslt"),
        ("libcublas.so", "cublas"),
        ("libnccl-net.so", "nccl_net"),
        ("libnccl-net-ofi.so", "nccl_net"),
        ("librccl-net.so.0", "nccl_net"),
        ("libnvshmem_host.so.3", "nvshmem"),
        ("libcusparseLt.so.0", "cusparselt"),
        ("libcudnn_ops.so.9", None),
        ("libnccl_static.a", None),
        ("libncclfoo.so.2", None),
        ("nccl.py", None),
    ],
)
def test_family_is_told_by_the_file_name(file_name: str, name: Optional[str]) -> None:
    """Sonames, real names and the names with a hash that wheels bundle belong to one family."""
    family = family_of(file_name)
    assert name == (family.name if family else None)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("NCCL version 2.20.5+cuda12.4", ("2.20.5", "12.4")),
        ("NCCL version 2.20.5", ("2.20.5", None)),
        ("NCCL version 2.30.7 compiled with CUDA 13.3", None),
        ("NCCL version %s, but is running with", None),
        ("ProcessGroupNCCL requires NCCL version 2.27.0 or later", None),
        ("NCCL version 2.27.0 or later. Found version: ", None),
    ],
)
def test_nccl_text_is_told_from_messages_about_nccl(text: str, told: object) -> None:
    """libtorch_cuda.so speaks of NCCL versions it requires; only NCCL's own text is a version."""
    assert told == families.nccl_text(text)


def test_version_in_name_needs_more_than_the_soname_number() -> None:
    """libnccl.so.2 tells an interface, libnccl.so.2.18.5 a release."""
    names = ("libnccl.so.2.18.5", "libcublas.so.12.4.5.8", "libnccl.so.2", "libnccl.so")
    assert ["2.18.5", "12.4.5.8", None, None] == [version_in_name(name) for name in names]


def test_wheel_version_of_two_stacks_is_that_of_the_soname() -> None:
    """With cu11 and cu12 wheels side by side the soname's major decides, and nothing else guesses."""
    cudart, nccl = family_of("libcudart.so"), family_of("libnccl.so")
    assert cudart
    assert nccl
    names = [
        "nvidia_cuda_runtime_cu11-11.8.89.dist-info",
        "nvidia_cuda_runtime_cu12-12.4.127.dist-info",
        "nvidia_nccl_cu11-2.20.5.dist-info",
        "nvidia_nccl_cu12-2.21.5.dist-info",
    ]
    path = "/env/lib/python3.11/site-packages/nvidia/cuda_runtime/lib/libcudart.so.12"
    assert "12.4.127" == wheel_version(cudart, path, names)
    assert (
        wheel_version(nccl, "/env/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2", names) is None
    )
    assert wheel_version(nccl, "/usr/lib/libnccl.so.2", names[3:]) is None


def test_version_call_overrules_a_record_that_disagrees(tmp_path: Path) -> None:
    """A library that was replaced under its wheel's record is what it says itself."""
    nccl = family_of("libnccl.so")
    assert nccl
    path = fakelibs.build_nccl(str(tmp_path / "nvidia" / "nccl" / "lib"), "2.26.2")
    told = wheel_version(nccl, path, ["nvidia_nccl_cu13-2.27.7.dist-info"])
    assert "2.27.7" == told
    assert ("2.26.2", []) == loaded_version(live(), nccl, path, told, trusted=True)


def test_version_call_takes_the_finer_text_that_agrees(tmp_path: Path) -> None:
    """The call says 12.4; a file name that says 12.4.127 adds what the call cannot."""
    cudart = family_of("libcudart.so")
    assert cudart
    path = fakelibs.build_cudart(str(tmp_path), "12.4.127", real_name=True)
    told = told_version(live(), cudart, path, os.path.realpath(path), ())
    assert ("12.4.127", []) == loaded_version(live(), cudart, path, told, trusted=True)


@pytest.mark.parametrize(
    ("behaviour", "cause"),
    [
        ("crashes", "ended by SIG"),
        ("hangs", "no answer within"),
        ("exits", "ended with exit status 0 and no answer"),
    ],
)
def test_version_call_that_fails_leaves_the_text(tmp_path: Path, behaviour: str, cause: str) -> None:
    """A library that crashes, hangs or exits costs its own call; its text still tells a version."""
    nccl = family_of("libnccl.so")
    assert nccl
    path = fakelibs.build_nccl(str(tmp_path), "2.21.5", behaviour=behaviour)
    told = told_version(live(), nccl, path, path, ())
    version, errors = loaded_version(live(), nccl, path, told, trusted=True)
    assert "2.21.5" == version
    assert [True] == [cause in error for error in errors], errors


def test_version_call_is_not_made_where_it_is_not_trusted(tmp_path: Path) -> None:
    """A library that somebody else can write is read, never run: this one would crash."""
    nccl = family_of("libnccl.so")
    assert nccl
    path = fakelibs.build_nccl(str(tmp_path), "2.21.5", behaviour="crashes")
    told = told_version(live(), nccl, path, path, ())
    assert ("2.21.5", []) == loaded_version(live(), nccl, path, told, trusted=False)


def test_version_of_a_library_that_does_not_load_is_unknown(tmp_path: Path) -> None:
    """Garbage under a library's name is an error with the loader's own words, and no version."""
    nccl = family_of("libnccl.so")
    assert nccl
    path = tmp_path / "libnccl.so.2"
    path.write_bytes(b"not a library")
    assert told_version(live(), nccl, str(path), str(path), ()) is None
    version, errors = loaded_version(live(), nccl, str(path), None, trusted=True)
    assert version is None
    assert "OSError" in errors[0]
