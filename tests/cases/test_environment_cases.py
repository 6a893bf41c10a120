"""Public cases S08 to S14 and S16: builds of torch, and the libraries that it is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict

import pytest

from envaudit.model import Verdict
from tests.cases.nodes import A100, RTX_4090, T4, USUAL, findings, node, said
from tests.cli.conftest import Folder

SYSTEM = "/usr/lib/x86_64-linux-gnu"


def test_nccl_built_for_a_newer_cuda_than_the_driver_fails_by_its_suffix() -> None:
    """NVIDIA/nccl-tests 98: nvcc 10.1, driver 440.33.01, and libnccl2 2.8.3-1+cuda11.x."""
    facts: Dict[str, Any] = {
        "gpu/cuda": "10.2",
        "gpu/driver": "440.33.01",
        "cuda/libcuda/version": "440.33.01",
        "cuda/nvcc": {"path": "/usr/local/cuda-10.1/bin/nvcc", "version": "10.1.243"},
        "torch/version": "1.7.1",
        "torch/cuda": "10.1",
        "torch/architectures": ["sm_37", "sm_50", "sm_60", "sm_70", "sm_75"],
        "packages/distributions": {"torch": {"version": "1.7.1", "installer": "pip"}},
        "libraries/nccl": {
            "path": f"{SYSTEM}/libnccl.so.2",
            "version": "2.8.3",
            "origin": "system",
            "via": "ld.so.cache",
            "cuda": "11.0",
        },
        "libraries/cudnn": {
            "path": "{site}/torch/lib/libcudnn.so.7",
            "version": "7.6.3",
            "origin": "environment",
        },
        "libraries/torch/built_with": {},
    }
    found = findings(node("n1", USUAL._replace(card=T4), facts))
    assert [("error", "EA234", ("n1",))] == [each for each in said(found) if each[0] == "error"]
    assert "NCCL 2.8.3 was built for CUDA 11.0" in found[0].message
    assert "nvcc" not in found[0].message


def test_torch_without_code_for_the_gpu_fails_with_the_build_that_has_it() -> None:
    """pytorch/pytorch 167244: an RTX 5090 and 2.7.0.dev+cu124, whose list ends at sm_90."""
    card = RTX_4090._replace(product="NVIDIA GeForce RTX 5090", capability="12.0", memory_gib=32)
    facts = {
        "torch/version": "2.7.0.dev20250310+cu124",
        "torch/cuda": "12.4",
        "torch/architectures": ["sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"],
    }
    found = findings(node("n1", USUAL._replace(card=card, gpus=1), facts))
    assert [("error", "EA340", ("n1",))] == said(found)
    assert "cu128" in found[0].hint


ASKED = """name: edansa
channels:
  - conda-forge
dependencies:
  - python=3.11
  - pytorch>=2.6,<3
"""


def test_unpinned_torch_warns_in_the_file(tmp_path: Path) -> None:
    """speechLabBcCuny/EDANSA 2: 'pytorch>=2.6,<3' from conda-forge may be any variant."""
    (tmp_path / "environment.yml").write_text(ASKED)
    ended = Folder(tmp_path).run("lint", "environment.yml", "--format", "json")
    assert (0, "PASS") == (ended.code, ended.json["verdict"])
    (finding,) = ended.json["findings"]
    assert ("EA030", "warning", "environment.yml:6:5") == (
        finding["rule"],
        finding["severity"],
        finding["path"],
    )
    assert "pytorch-gpu" in finding["hint"]
    assert "cuda" in finding["hint"]


def test_cpu_build_on_a100_nodes_fails_on_each_of_them() -> None:
    """The same thread: what was installed was a CPU build."""
    shape = USUAL._replace(card=A100, gpus=4, manager="conda", torch="2.6.0")
    facts: Dict[str, Any] = {
        "torch/cuda": None,
        "torch/architectures": [],
        "conda/packages/pytorch/build": "cpu_generic_py311_h6fe2f1e_0",
        "libraries": {"missing": [], "copies": {}, "torch": {"library": "{site}/torch/lib/libtorch_cpu.so"}},
    }
    found = findings(node("n1", shape, facts), node("n2", shape, facts))
    assert [("error", "EA240", ("n1", "n2"))] == said(found)
    assert "pytorch-gpu" in found[0].hint


def test_nccl_of_two_cuda_majors_in_one_environment_fails() -> None:
    """pytorch/pytorch 186591: undefined ncclCommResume, with NCCL wheels of cu12 and cu13."""
    facts: Dict[str, Any] = {
        "torch/version": "2.12.1",
        "packages/distributions/nvidia-nccl-cu12": {"version": "2.29.3", "installer": "pip"},
        "packages/distributions/nvidia-nccl-cu13": {"version": "2.29.7", "installer": "pip"},
        "libraries/nccl/version": "2.29.3",
    }
    found = findings(node("n1", USUAL._replace(torch="2.12.1", driver="580.95.05"), facts))
    assert [("error", "EA245", ("n1",))] == said(found)
    assert "nvidia-nccl-cu12 2.29.3" in found[0].message
    assert "Remove nvidia-nccl-cu12" in found[0].hint


@pytest.mark.parametrize("seen_by", ["libraries", "deep/libraries"])
def test_cudnn_from_two_folders_fails_though_its_versions_are_right(seen_by: str) -> None:
    """pytorch/pytorch 185512: six libraries of the wheel, a seventh from the system."""
    stray = "/lib/x86_64-linux-gnu/libcudnn_engines_tensor_ir.so.9"
    parts: Dict[str, Any] = dict.fromkeys(
        ["adv", "cnn", "engines_precompiled", "graph", "heuristic", "ops"], "beside"
    )
    row = {
        "path": "{site}/nvidia/cudnn/lib/libcudnn.so.9",
        "version": "9.5.1",
        "parts": {**parts, "engines_tensor_ir": {"path": stray, "version": "9.5.1"}},
    }
    if seen_by != "libraries":
        row["parts"] = {**parts, "engines_tensor_ir": "/lib/x86_64-linux-gnu"}
    found = findings(node("n1", facts={f"{seen_by}/cudnn": row}))
    assert [("error", "EA231", ("n1",))] == [each for each in said(found) if each[1] != "EA250"]
    assert stray.rpartition("/")[0] in " ".join(found[0].evidence)


def test_cudnn_of_the_system_that_torch_does_not_load_is_no_finding() -> None:
    """pytorch/pytorch 78489: a report showed the system's 8.9.7 while torch said 90100."""
    facts: Dict[str, Any] = {
        "libraries/cudnn/version": "9.1.0",
        "libraries/torch/built_with/cudnn": "9.1.0.70",
        "libraries/copies/cudnn": {f"{SYSTEM}/libcudnn.so.8": "8.9.7"},
        "packages/distributions/nvidia-cudnn-cu12": {"version": "9.1.0.70", "installer": "pip"},
        "deep/torch/cudnn": "9.1.0",
        "deep/import": "ok",
    }
    shape = USUAL._replace(torch="2.5.1")
    assert [] == findings(node("n1", shape, facts))


def test_nvcc_of_another_cuda_passes_and_is_said_to_matter_for_extensions() -> None:
    """pytorch/pytorch 21399, 51840, 136845: 'the CUDA runtime' of a report is the compiler on PATH."""
    facts: Dict[str, Any] = {
        "torch/version": "2.7.1+cu118",
        "torch/cuda": "11.8",
        "libraries/nccl/cuda": "11.8",
        "cuda/nvcc": {"path": "/usr/local/cuda-12.6/bin/nvcc", "version": "12.6.85"},
        "cuda/toolkits": {"/usr/local/cuda-12.6": "12.6.3"},
    }
    found = findings(node("n1", facts=facts))
    assert [("info", "EA242", ("n1",))] == said(found)
    assert "extension" in found[0].message
    assert "PASS" == Verdict.of(found).name


def test_torchvision_of_another_build_than_torch_fails_though_versions_match() -> None:
    """NVIDIA-NeMo/Automodel 3279: torch 2.10.0+cu130 and the default index's torchvision 0.25.0."""
    facts: Dict[str, Any] = {
        "torch/version": "2.10.0+cu130",
        "torch/cuda": "13.0",
        "torch/torchvision": "0.25.0",
        "packages/distributions/torch": {"version": "2.10.0+cu130", "installer": "pip"},
        "packages/distributions/torchvision": {"version": "0.25.0", "installer": "pip"},
    }
    found = findings(node("n1", USUAL._replace(torch="2.10.0", driver="580.95.05"), facts))
    assert [("error", "EA246", ("n1",))] == said(found)
    assert "torchvision" in found[0].message
