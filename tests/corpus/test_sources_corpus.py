"""Public reports, whole and cut, and what is known from each of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envaudit.cli.foreign import every_kind, setting_of
from envaudit.errors import InputError
from envaudit.model.section import Section
from envaudit.sources import recognised, sections_of
from envaudit.sources.decoding import decoded

LINUX = setting_of("linux-64", "3.11.7")

# File of collect_env/ to some of its facts; a section that is not there is None.
PASTES: dict[str, dict[str, Any]] = {
    "01-rocm37-torch17-source.txt": {
        "torch/version": "1.7.0a0+9ddd3df",
        "torch/hip": "3.7.20315-077bcfa0",
        "torch/cuda": None,
        "packages/distributions/torch/version": "1.7.0a0+a9603c7",
        "gpu/driver": None,
        "python/version": None,
        "host/glibc": None,
    },
    "01_linux_h100x8_torch251_cu124_vllm_indented.txt": {
        "torch/version": "2.5.1+cu124",
        "torch/cuda": "12.4",
        "gpu/count": 8,
        "gpu/each/product": "NVIDIA H100 80GB HBM3",
        "gpu/driver": "550.90.12",
        "cuda/nvcc/version": "12.2.140",
        "host/cpu/threads": 208,
        "host/cpu/cores": 104,
        "packages/distributions/nvidia-nccl-cu12/version": "2.21.5",
        "packages/distributions/torch/version": "2.5.1",
        "conda": None,
    },
    "02-cpuonly-linux-260.txt": {
        "torch/version": "2.6.0+cpu",
        "torch/architectures": [],
        "gpu": "absent",
        "host/distribution/name": "Ubuntu 24.10",
        "python/version": "3.12.9",
        "packages": None,
    },
    "03_wsl2_rx7900xtx_torch251_rocm62_conda_pypi_rows.txt": {
        "torch/hip": "6.2.41133-dd7f95766",
        "host/virtualisation": "wsl",
        "gpu/count": None,
        "packages/distributions/torchaudio/version": "2.5.1+rocm6.2",
        "conda": None,
    },
    "04-windows-torch150-old-format.txt": {
        "torch/debug": False,
        "gpu/each/product": "Quadro P1000",
        "gpu/driver": "426.25",
        "host/distribution": None,
        "python/version": None,
        "packages": None,
    },
    "05_linux_torch213_cu130_no_gpu_allocator_config.txt": {
        "torch/cuda": "13.0",
        "torch/architectures": None,
        "gpu": "absent",
        "host/cpu/cores": 16,
        "packages/distributions/torch/version": "2.13.0",
    },
    "06-jetson-orin-nv-build-200a0.txt": {
        "torch/version": "2.0.0a0+ec3941ad.nv23.02",
        "host/architecture": "aarch64",
        "host/kernel": "5.10.120-tegra",
        "host/glibc": "2.31",
        "gpu": None,
        "cuda/nvcc/version": "11.4.315",
    },
    "07_rhel74_p100x2_py27_torch_missing_issue16318.txt": {
        "torch": "error",
        "gpu/count": 2,
        "cuda/nvcc/version": "9.1.85",
        "conda/packages/numpy": {"version": "1.9.3", "build": "py27_p0"},
        "conda/packages/magma-cuda91/channel": "pytorch",
        "packages/distributions/torch/version": "1.0.0a0+db5d313",
    },
    "08-mig-a100-two-slices-250dev.txt": {
        "gpu/count": 1,
        "gpu/each/mig_instances": {"3g.40gb": 2},
        "gpu/driver": "535.161.08",
        "host/kernel": "5.15.0-1055-nvidia",
    },
    "10-8xH100-two-cudnn-majors-280dev.txt": {
        "torch/version": "2.8.0.dev20250327+cu126",
        "gpu/count": 8,
        "host/kernel": "6.4.3-0_vendor_2830",
        "libraries/cudnn": None,
    },
    "12-h100-torch291-cu126-blank-field.txt": {
        "gpu/count": 1,
        "gpu/driver": "580.126.09",
        "host/kernel": "6.8.0-106-generic",
        "libraries": None,
    },
    "16-cu13-tail-mixed-cu12-cu13.txt": {
        "packages/distributions/nvidia-cublas/version": "13.4.0.1",
        "packages/distributions/nvidia-cublas-cu12/version": "12.9.1.4",
        "packages/distributions/torch/version": "2.12.1+cu132",
        "torch": None,
        "gpu": None,
    },
    "18-mixed-gpu-models-old-pip-prefix.txt": {
        "gpu/count": 8,
        "gpu/each/product": "TITAN X (Pascal)",
        "gpu/devices": {"1": {"product": "GeForce GTX 1080 Ti"}, "5": {"product": "GeForce GTX 1080 Ti"}},
        "packages/distributions/numpydoc/version": "0.8.0",
        "conda/packages/blas/build": "mkl",
    },
}
# File to its kind, how many conda packages and distributions it has for linux-64, and one fact.
LISTS: dict[str, tuple[str, int, int, str, Any]] = {
    "samples/conda/pangeo-pytorch-explicit-md5.lock": (
        *("conda list --explicit", 885, 0),
        *("conda/packages/pytorch/version", "2.10.0"),
    ),
    "samples/conda/env-export-linux-mic.yml": (
        *("conda env export", 56, 202),
        *("conda/packages/cudatoolkit/build", "h2bc3f7f_2"),
    ),
    "samples/pip/pip-docs-inspect-example.json": (
        *("pip inspect", 0, 3),
        *("packages/distributions/pyparsing/version", "3.0.9"),
    ),
    "environments/17-raven-utf16.yml": ("conda env export", 17, 62, "conda/name", "RAVEN"),
    "environments/18-aiops-winexport.yml": (
        *("conda env export", 39, 44),
        *("conda/packages/pytorch/build", "py3.7_cuda11.3_cudnn8_0"),
    ),
    "environments/20-mic-prefix.yml": (
        *("conda env export", 56, 202),
        *("conda/prefix", "/home/user/anaconda3/envs/nlp"),
    ),
    "locks/01-bertchen-linux64-pytorch-cuda.yml": (
        *("conda-lock.yml", 218, 7),
        *("conda/packages/pytorch/build", "py3.10_cuda11.8_cudnn8.7.0_0"),
    ),
    # For linux-ppc64le alone, so that nothing of it is expected here.
    "locks/02-bertchen-ppc64le.yml": ("conda-lock.yml", 0, 0, "conda/packages/pytorch", None),
    "locks/04-pangeo-pytorch-notebook.yml": (
        *("conda-lock.yml", 885, 0),
        *("conda/packages/nccl/version", "2.29.2.1"),
    ),
    "locks/05-condalock-zlib-multiplatform.yml": (
        *("conda-lock.yml", 6, 0),
        *("conda/packages/zlib/channel", "conda-forge"),
    ),
    "locks/06-condalock-pip-linux64-aarch64.yml": (
        *("conda-lock.yml", 24, 4),
        *("packages/distributions/certifi/installer", None),
    ),
    "locks/08-condalock-categories.yml": ("conda-lock.yml", 20, 0, "conda/name", None),
    "locks/10-mamba-missing-category.yml": ("conda-lock.yml", 0, 0, "conda/name", None),
}


def read(path: Path) -> tuple[str, dict[str, Section]]:
    """The kind of a file, and what it says."""
    text = decoded(path.read_bytes(), path.name)
    kind = recognised(text, path.name, every_kind())
    return kind.KIND, sections_of(kind, text, path.name, LINUX)


def fact(sections: dict[str, Section], path: str) -> Any:
    """A fact by its path; of a section alone its status; None where it is not said."""
    name, _, rest = path.partition("/")
    if name not in sections:
        return None
    value: Any = sections[name].facts if rest else sections[name].status
    for key in filter(None, rest.split("/")):
        value = value.get(key) if isinstance(value, dict) else None
    return value


@pytest.mark.parametrize("name", sorted(PASTES))
def test_public_paste_says_what_is_known_of_it(corpus: Path, name: str) -> None:
    """Facts, and what must not become one."""
    kind, sections = read(corpus / "collect_env" / name)
    assert "collect_env" == kind
    assert PASTES[name] == {path: fact(sections, path) for path in PASTES[name]}


def test_every_public_paste_is_looked_at(corpus: Path) -> None:
    """A new one needs an expectation."""
    assert sorted(PASTES) == sorted(path.name for path in (corpus / "collect_env").iterdir())


@pytest.mark.parametrize("name", sorted(LISTS))
def test_public_list_is_of_its_kind_and_whole(corpus: Path, name: str) -> None:
    """The numbers of its packages and distributions, and one fact."""
    expected_kind, conda, pip, path, value = LISTS[name]
    kind, sections = read(corpus / name)
    counts = [len(fact(sections, table) or {}) for table in ("conda/packages", "packages/distributions")]
    assert (expected_kind, [conda, pip], value) == (kind, counts, fact(sections, path))


@pytest.mark.parametrize("name", ["12-INVALID-missing-package.yml", "14-INVALID-metadata-type.yml"])
def test_public_lock_that_is_broken_is_refused(corpus: Path, name: str) -> None:
    """By its key path."""
    with pytest.raises(InputError, match=r"(package|metadata): expected a"):
        read(corpus / "locks" / name)


@pytest.mark.parametrize(
    ("name", "driver", "product"),
    [
        ("telegraf-a100-sxm4-v12.xml", "535.54.03", "NVIDIA A100-SXM4-80GB"),
        ("telegraf-a10g.xml", "515.105.01", "NVIDIA A10G"),
        ("telegraf-gtx-1070-ti.xml", None, "GeForce GTX 1070 Ti"),
        ("telegraf-rtx-4000-sff-ada-v13.xml", "595.84", "NVIDIA RTX 4000 SFF Ada Generation"),
        ("telegraf-tesla-t4.xml", "515.105.01", "Tesla T4"),
    ],
)
def test_public_output_of_nvidia_smi_is_read(
    corpus: Path, name: str, driver: str | None, product: str
) -> None:
    """Of every layout from version 10 to 13."""
    kind, sections = read(corpus / "samples" / "nvidia_smi_xml" / name)
    assert ("nvidia-smi -q -x", driver) == (kind, fact(sections, "gpu/driver"))
    assert product == fact(sections, "gpu/each/product")


@pytest.mark.parametrize("folder", ["environments", "samples", "condalock_failures", "channel"])
def test_every_other_public_file_is_read_or_refused(corpus: Path, folder: str) -> None:
    """Outputs of other programs are of no kind, and nothing breaks on them."""
    for path in sorted((corpus / folder).rglob("*")):
        if path.is_file():
            try:
                read(path)
            except InputError:
                continue
