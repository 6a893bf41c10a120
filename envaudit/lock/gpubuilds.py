"""Which packages of a lock are built for a GPU, for which CUDA, and whether anybody asked for one.

Version numbers and build strings are all that a lock has of this; their forms are those of the
public channels: `py3.10_cuda11.8_cudnn8.7.0_0` (pytorch), `cuda126_mkl_py312_h...` and
`cpu_generic_py312_...` (conda-forge), `gpu_cuda118py310...` (defaults), `2.1.0+cu118` (wheels).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from envaudit.lock.entries import Entry
from envaudit.lock.lockfile import LockedPackage

CPU, CUDA, OTHER = "cpu", "cuda", "other"

# What trains: a CPU build of one of these is what people find out about after the job has started.
FRAMEWORKS = frozenset(
    {
        *(
            "pytorch",
            "libtorch",
            "pytorch-base",
            "torchvision",
            "torchvision-base",
            "torchaudio",
            "torchtext",
        ),
        *("tensorflow", "tensorflow-base", "libtensorflow", "libtensorflow_cc", "jaxlib"),
        *("torch", "cupy", "bitsandbytes", "xformers", "flash-attn"),
    }
)
# Packages whose version is that of the CUDA toolkit they belong to.
_TOOLKIT = re.compile(
    r"(?:cuda-version|cudatoolkit|pytorch-cuda|cuda-(?:toolkit|runtime|libraries|cudart|nvrtc|cupti|nvtx|nvcc)"
    r"|nvidia-cuda-(?:runtime|nvrtc|cupti)-cu\d+|nvidia-nvtx-cu\d+|nvidia-cuda-(?:runtime|nvrtc|cupti))\Z"
)
_BUILT_FOR = re.compile(r"(?:cuda|cu)(\d{1,2})\.?(\d{1,2})?(?![0-9])")
_WHEEL_SUFFIX = re.compile(r"-cu(\d{2})\Z")
_CPU_BUILD = re.compile(r"(?:^|[_.-])cpu(?:[_.-]|py\d|\Z)|(?:^|_)(?:mkl|eigen)_py\d")
_ASKS_BY_NAME = re.compile(
    r"(?:cudatoolkit|cudnn|nccl|pytorch-cuda|pytorch-gpu|tensorflow-gpu|cuda-.*|libcu(?:blas|dnn|dss|fft|file|rand|solver|sparse).*|nvidia-.*-cu\d+|.*-cuda[\d.]*"
    r"|magma-cuda.*|cupy-cuda.*|onnxruntime-gpu|faiss-gpu)\Z"
)
_INDEXES = ("--index-url", "--extra-index-url", "--find-links")
_NO_GPU = frozenset({"cuda-python", "nvidia-ml-py"})
_CPU_NAMES = frozenset({"cpuonly", "pytorch-cpu", "tensorflow-cpu"})


def variant_of(package: LockedPackage) -> str:
    """`cpu`, `cuda`, or `other` where neither its build nor its version says so."""
    if package.name == "cpuonly":
        return CPU
    if package.name == "pytorch-mutex":
        return CPU if package.build == CPU else CUDA if package.build.startswith(CUDA) else OTHER
    text = _variant_text(package)
    if _BUILT_FOR.search(text) or "gpu" in text:
        return CUDA
    if _CPU_BUILD.search(text):
        return CPU
    # The wheel of torch without a local version is the CUDA build on Linux x86-64, CPU elsewhere.
    if package.manager == "pip" and package.name == "torch":
        return CUDA if package.platform == "linux-64" else CPU
    return OTHER


def toolkit_version(package: LockedPackage) -> str | None:
    """The CUDA version, `12.4`, of a package that belongs to one toolkit; None for all others."""
    if not _TOOLKIT.match(package.name):
        return None
    parts = package.version.split(".")
    return ".".join(parts[:2]) if len(parts) > 1 and parts[0].isdigit() else None


def built_for(package: LockedPackage) -> str | None:
    """The CUDA version that a package was compiled for: `11.8`, `12`, or None."""
    suffix = _WHEEL_SUFFIX.search(package.name) if package.manager == "pip" else None
    if suffix:
        return suffix.group(1)
    match = _BUILT_FOR.search(_variant_text(package))
    if match is None:
        return None
    major, minor = match.groups()
    if minor is None and len(major) == 2 and int(major) > 20:  # `cu92`: CUDA 9.2
        major, minor = major[0], major[1]
    return major if minor is None else f"{major}.{minor}"


def requests(entries: Iterable[Entry]) -> tuple[list[Entry], list[Entry]]:
    """The entries that ask for CUDA, and those that ask for the CPU."""
    gpu, cpu = [], []
    for entry in entries:
        local = entry.version.partition("+")[2]
        place = entry.value if entry.option in _INDEXES else ""
        text = f"{entry.build} {f'+{local}' if local else ''} {place}".lower()
        if entry.key in _CPU_NAMES or re.search(r"(?:^|[*_/+ ])cpu(?:[*_/ ]|\Z)", text):
            cpu.append(entry)
        elif entry.key not in _NO_GPU and (
            _ASKS_BY_NAME.match(entry.key) or re.search(r"cuda|gpu|[+/]cu\d", text)
        ):
            gpu.append(entry)
    return gpu, cpu


def unused_cudatoolkit(packages: Sequence[LockedPackage]) -> list[LockedPackage]:
    """`cudatoolkit` where no other package depends on it: it takes 700 MB and nothing loads it."""
    wanted = {name for package in packages for name in package.dependencies}
    return [package for package in packages if package.name == "cudatoolkit" and package.name not in wanted]


def _variant_text(package: LockedPackage) -> str:
    """Where a package says what it was built for."""
    return package.build if package.manager == "conda" else package.version.partition("+")[2]
