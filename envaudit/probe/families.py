"""The libraries whose copy and version decide a training run, and how each tells its version.

A version is read, best first, from the library's own version call, made more exact by the name of
the file or the wheel's record where these agree with it (the call says 13.0, the file 13.0.96). A
call that costs much (cuBLASLt initialises for 60 ms) is made only when nothing else tells. A copy
that is not the loaded one is never called.
"""

from __future__ import annotations

import ctypes
import os
import re
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from envaudit.probe.context import ChildFailed, Context
from envaudit.probe.elf import NotElf, texts
from envaudit.probe.torchfiles import nccl_version_in

CALL_TIMEOUT_S = 2.5


def nccl_version(code: int) -> Optional[str]:
    """X·1000 + Y·100 + Z up to 2.8, X·10000 + Y·100 + Z after (NCCL_VERSION in nccl.h).

    None for what the macro cannot give: 2804 is 2.8.4, 21805 is 2.18.5, 2900 is neither.
    """
    if code >= 10000:
        return f"{code // 10000}.{code // 100 % 100}.{code % 100}"
    major, minor, patch = code // 1000, code // 100 % 10, code % 100
    return f"{major}.{minor}.{patch}" if 1 <= major <= 2 and (major, minor) <= (2, 8) else None


def cudnn_version(code: int) -> Optional[str]:
    """X·10000 + Y·100 + Z from 9 on, X·1000 + Y·100 + Z before (CUDNN_VERSION in cudnn_version.h)."""
    if code >= 90000:
        return f"{code // 10000}.{code // 100 % 100}.{code % 100}"
    return f"{code // 1000}.{code // 100 % 10}.{code % 100}" if 1000 <= code < 10000 else None


def cuda_version(code: int) -> Optional[str]:
    """X·1000 + Y·10 (CUDART_VERSION): 12040 is 12.4."""
    return f"{code // 1000}.{code % 1000 // 10}" if code >= 1000 else None


def cublas_version(code: int) -> Optional[str]:
    """X·10000 + Y·100 + Z (CUBLAS_VERSION from 11 on): 130101 is 13.1.1."""
    return f"{code // 10000}.{code // 100 % 100}.{code % 100}" if code >= 10000 else None


def cufft_version(code: int) -> Optional[str]:
    """X·1000 + Y·100 + Z (CUFFT_VERSION): 11002 is 11.0.2."""
    return f"{code // 1000}.{code // 100 % 10}.{code % 100}" if code >= 1000 else None


def _int_pointer(symbol: str, decode: Callable[[int], Optional[str]]) -> Callable[[Any], Optional[str]]:
    def ask(library: Any) -> Optional[str]:
        code = ctypes.c_int()
        return None if getattr(library, symbol)(ctypes.byref(code)) else decode(code.value)

    return ask


def _returned(symbol: str, decode: Callable[[int], Optional[str]]) -> Callable[[Any], Optional[str]]:
    def ask(library: Any) -> Optional[str]:
        function = getattr(library, symbol)
        function.restype = ctypes.c_size_t
        return decode(function())

    return ask


def _two_pointers(symbol: str) -> Callable[[Any], Optional[str]]:
    def ask(library: Any) -> Optional[str]:
        major, minor = ctypes.c_int(), ctypes.c_int()
        failed = getattr(library, symbol)(ctypes.byref(major), ctypes.byref(minor))
        return None if failed else f"{major.value}.{minor.value}"

    return ask


def _text(symbol: str) -> Callable[[Any], Optional[str]]:
    def ask(library: Any) -> Optional[str]:
        function = getattr(library, symbol)
        function.restype = ctypes.c_char_p
        match = re.match(rb"\d+(\.\d+)+", function() or b"")
        return match.group(0).decode("ascii") if match else None

    return ask


class Family(NamedTuple):
    """One library and its versions.

    Attributes:
        name: its key among the facts.
        stem: the file is called lib<stem>.so.N, or lib<stem>-<hash>.so.N where a wheel bundles it.
        ask: makes the version call on a ctypes library; None where there is no usable one.
        cheap: whether the call costs less than about 10 ms, so that it is always made.
        wheel: the distribution that brings it, without a `_cu12` at the end.
    """

    name: str
    stem: str
    ask: Optional[Callable[[Any], Optional[str]]] = None
    cheap: bool = True
    wheel: str = ""


FAMILIES: Tuple[Family, ...] = (
    Family("cudnn", "cudnn", _returned("cudnnGetVersion", cudnn_version), wheel="nvidia_cudnn"),
    Family("nccl", "nccl", _int_pointer("ncclGetVersion", nccl_version), wheel="nvidia_nccl"),
    Family(
        "cudart", "cudart", _int_pointer("cudaRuntimeGetVersion", cuda_version), wheel="nvidia_cuda_runtime"
    ),
    Family("cublas", "cublas", wheel="nvidia_cublas"),
    Family("cublaslt", "cublasLt", _returned("cublasLtGetVersion", cublas_version), False, "nvidia_cublas"),
    Family("cufft", "cufft", _int_pointer("cufftGetVersion", cufft_version), False, "nvidia_cufft"),
    Family("nvrtc", "nvrtc", _two_pointers("nvrtcVersion"), False, "nvidia_cuda_nvrtc"),
    Family("nvjitlink", "nvJitLink", _two_pointers("nvJitLinkVersion"), False, "nvidia_nvjitlink"),
    Family("rccl", "rccl", _int_pointer("ncclGetVersion", nccl_version)),
    Family("miopen", "MIOpen"),
    Family("hip", "amdhip64"),
    Family("mpi", "mpi"),
    Family("ucx", "ucp", _text("ucp_get_version_string")),
    Family("libfabric", "fabric"),
    Family("nccl_net", "nccl-net"),
)


_BY_STEM: Dict[str, Family] = {family.stem: family for family in FAMILIES}
# Their file names carry libtool's interface age, not the release: libmpi.so.40.30.5 is Open MPI 4.1.5.
_NAMES_THAT_LIE = ("mpi", "ucx", "libfabric", "rccl", "miopen", "hip", "nccl_net")


def family_of(file_name: str) -> Optional[Family]:
    """The family a file belongs to by its name, such as libcudart-a7b20f20.so.11.0."""
    match = re.match(r"lib([\w-]+?)(?:-[0-9a-f]{8})?\.so(?:\.|$)", file_name)
    return _BY_STEM.get(match.group(1)) if match else None


def version_in_name(file_name: str) -> Optional[str]:
    """The version at the end of a real file name: libcudnn.so.9.1.0 is 9.1.0; one number is none."""
    match = re.search(r"\.so\.(\d+(?:\.\d+)+)$", file_name)
    return match.group(1) if match else None


def wheel_version(family: Family, path: str, site_names: Sequence[str]) -> Optional[str]:
    """The version of the wheel that brought `path`, from the names of the dist-info folders beside it.

    None when no wheel, or more than one (two CUDA stacks in one environment), could have.
    """
    if not family.wheel or "/nvidia/" not in path:
        return None
    form = re.compile(re.escape(family.wheel) + r"(?:_cu\d+)?-(\d+(?:\.\d+)+)\.dist-info")
    versions = {match.group(1) for match in map(form.fullmatch, site_names) if match}
    if len(versions) > 1:
        major = re.search(r"\.so\.(\d+)", path)
        versions = {v for v in versions if major and v.split(".")[0] == major.group(1)}
    return versions.pop() if len(versions) == 1 else None


def told_version(
    context: Context, family: Family, path: str, real: str, site_names: Sequence[str]
) -> Optional[str]:
    """What file name, wheel and text say, without running anything of the library."""
    told = version_in_name(os.path.basename(real)) if family.name not in _NAMES_THAT_LIE else None
    told = told or wheel_version(family, path, site_names)
    if told is None and family.name in ("nccl", "rccl"):
        try:
            found = texts(context.real(path), b"CCL version ")
            told = next(filter(None, map(nccl_version_in, found)), None)
        except (OSError, NotElf):
            told = None
    return _three_parts(told)


def loaded_version(
    context: Context, family: Family, path: str, told: Optional[str], *, trusted: bool
) -> Tuple[Optional[str], List[str]]:
    """The version of the copy that is loaded, and what went wrong while asking it.

    The library is loaded in a child process: a damaged one may crash or never return.
    """
    ask = family.ask
    if ask is None or not context.live or not trusted or (told and not family.cheap):
        return told, []

    def call() -> Optional[str]:
        return ask(ctypes.CDLL(path))

    try:
        said = context.call(call, CALL_TIMEOUT_S)
    except ChildFailed as error:
        return told, [f"{path}: version call: {error}"]
    if said is None:
        return told, [f"{path}: its version call gave no version"]
    return (told if told and _agrees(told, said) else said), []


def _agrees(told: str, said: str) -> bool:
    return told == said or told.startswith(said + ".")


def _three_parts(version: Optional[str]) -> Optional[str]:
    """Cut a wheel's build number: 9.10.2.21 is 9.10.2."""
    return ".".join(version.split(".")[:3]) if version else None
