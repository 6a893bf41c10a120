"""The libraries whose copy and version decide a training run, and how each tells its version.

A version is read, best first, from the library's own version call, made more exact by the name of
the file or the wheel's record where these agree with it (the call says 13.0, the file 13.0.96). A
call that costs much (cuBLASLt initialises for 60 ms) is made only when nothing else tells. A copy
that is not the loaded one is never called. `--deep` makes the same calls where torch is loaded.
"""

from __future__ import annotations

import ctypes
import os
import re
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from envaudit.probe.context import ChildFailed, Context
from envaudit.probe.elf import NotElf, texts

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


def libfabric_version(code: int) -> Optional[str]:
    """X·65536 + Y (FI_VERSION in rdma/fabric.h), of 32 bits: 65555 is 1.19."""
    return f"{code >> 16 & 0xFFFF}.{code & 0xFFFF}" if code & 0xFFFFFFFF >= 1 << 16 else None


class Call(NamedTuple):
    """A library's own version call.

    Attributes:
        symbol: the function.
        form: its shape, of those that `deepchild.call_version` knows.
        decode: what an integer means; lists of numbers and texts need none.
    """

    symbol: str
    form: str
    decode: Callable[[int], Optional[str]] = str

    def read(self, said: Any) -> Optional[str]:
        """The version in what the call gave, None where it gave none."""
        if isinstance(said, int):
            return self.decode(said)
        if isinstance(said, list):
            return ".".join(map(str, said))
        match = re.search(r"\d+(\.\d+)+", said or "")
        return match.group(0) if match else None


class Family(NamedTuple):
    """One library and its versions.

    Attributes:
        name: its key among the facts.
        stem: the file is called lib<stem>.so.N, or lib<stem>-<hash>.so.N where a wheel bundles it.
        call: its version call; None where there is no usable one.
        cheap: whether the call costs less than about 10 ms, so that it is always made.
        wheel: the distribution that brings it, without a `_cu12` at the end.
        words: the text before the version in the file's read-only data.
    """

    name: str
    stem: str
    call: Optional[Call] = None
    cheap: bool = False
    wheel: str = ""
    words: bytes = b""


_CUDNN = Call("cudnnGetVersion", "returned", cudnn_version)
_NCCL = Call("ncclGetVersion", "pointer", nccl_version)
_CUDART = Call("cudaRuntimeGetVersion", "pointer", cuda_version)
_CUBLASLT = Call("cublasLtGetVersion", "returned", cublas_version)
_CUFFT = Call("cufftGetVersion", "pointer", cufft_version)
_NVSHMEM = Call("nvshmemx_vendor_get_version_info", "3")
_LIBFABRIC = Call("fi_version", "returned", libfabric_version)

FAMILIES: Tuple[Family, ...] = (
    Family("cudnn", "cudnn", _CUDNN, cheap=True, wheel="nvidia_cudnn"),
    Family("nccl", "nccl", _NCCL, cheap=True, wheel="nvidia_nccl", words=b"NCCL version "),
    Family("cudart", "cudart", _CUDART, cheap=True, wheel="nvidia_cuda_runtime"),
    Family("cublas", "cublas", Call("cublasGetProperty", "property"), wheel="nvidia_cublas"),
    Family("cublaslt", "cublasLt", _CUBLASLT, wheel="nvidia_cublas"),
    Family("cufft", "cufft", _CUFFT, wheel="nvidia_cufft"),
    Family("curand", "curand", Call("curandGetProperty", "property"), wheel="nvidia_curand"),
    Family("cusolver", "cusolver", Call("cusolverGetProperty", "property"), wheel="nvidia_cusolver"),
    Family("cusparse", "cusparse", Call("cusparseGetProperty", "property"), wheel="nvidia_cusparse"),
    Family("cusparselt", "cusparseLt", Call("cusparseLtGetProperty", "property"), wheel="nvidia_cusparselt"),
    Family("nvrtc", "nvrtc", Call("nvrtcVersion", "2"), wheel="nvidia_cuda_nvrtc"),
    Family("nvjitlink", "nvJitLink", Call("nvJitLinkVersion", "2"), wheel="nvidia_nvjitlink"),
    Family("nvshmem", "nvshmem_host", _NVSHMEM, wheel="nvidia_nvshmem"),
    Family("rccl", "rccl", _NCCL, cheap=True),
    Family("miopen", "MIOpen"),
    Family("hip", "amdhip64"),
    Family("mpi", "mpi", Call("MPI_Get_library_version", "buffer"), words=b"Open MPI v"),
    Family("ucx", "ucp", Call("ucp_get_version_string", "text")),
    Family("libfabric", "fabric", _LIBFABRIC),
    Family("nccl_net", "nccl-net", words=b"aws-ofi-nccl "),
)
BY_NAME: Dict[str, Family] = {family.name: family for family in FAMILIES}

_BY_STEM: Dict[str, Family] = {family.stem: family for family in FAMILIES}
# libnccl-net-ofi.so is a plugin beside libnccl-net.so; RCCL looks for librccl-net.so first.
_PLUGIN = re.compile(r"(?:nccl|rccl)-net(?:-[\w-]+)?")
_BUNDLED = re.compile(r"([\w-]+)-[0-9a-f]{8}")
_LIBFABRIC_RELEASE = re.compile(r"[12]\.\d{1,3}\.\d{1,3}")
# Their file names carry libtool's interface age, not the release: libmpi.so.40.30.5 is Open MPI 4.1.5.
_NAMES_THAT_LIE = ("mpi", "ucx", "libfabric", "rccl", "miopen", "hip", "nccl_net")


def family_of(file_name: str) -> Optional[Family]:
    """The family a file belongs to by its name, such as libcudart-a7b20f20.so.11.0."""
    # Without a regular expression for the rest: all names of /etc/ld.so.cache come by here.
    stem, dot_so, rest = file_name[3:].partition(".so")
    if not dot_so or rest[:1] not in ("", ".") or not file_name.startswith("lib"):
        return None
    family = _BY_STEM.get(stem)
    if family is None and "-" in stem:
        if _PLUGIN.fullmatch(stem):
            return BY_NAME["nccl_net"]
        bundled = _BUNDLED.fullmatch(stem)
        return _BY_STEM.get(bundled.group(1)) if bundled else None
    return family


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
    if told is None and (family.words or family.name == "libfabric"):
        told = version_in_text(context, family, path)
    return _three_parts(told)


def version_in_text(context: Context, family: Family, path: str) -> Optional[str]:
    """The version after the family's own words in the read-only data of the file at `path`."""
    try:
        if family.name == "nccl":
            nccl = nccl_in(context, path)
            return nccl[0] if nccl else None
        if family.name == "libfabric":
            return libfabric_in(context, path)
        for text in texts(context.real(path), family.words):
            match = re.match(r"\d+(\.\d+)+", text.partition(family.words.decode("ascii"))[2])
            if match:
                return match.group(0)
    except (OSError, NotElf):
        pass
    return None


def nccl_in(context: Context, path: str) -> Optional[Tuple[str, Optional[str]]]:
    """The version of the NCCL in the file at `path` and the CUDA it was built for; None where none is.

    The file is libnccl.so.2, or the libtorch_cuda.so that it is linked into. Which CUDA is NCCL's own
    suffix, not torch's: a driver that is too old for it fails although it is new enough for torch.

    Raises:
        OSError, NotElf: it cannot be read.
    """
    for text in texts(context.real(path), b"NCCL version "):
        found = nccl_text(text)
        if found:
            return found
    return None


def libfabric_in(context: Context, path: str) -> Optional[str]:
    """The release of the libfabric in the file at `path`; None where more than one text could be it.

    It is the text that `fi_tostr` gives for FI_TYPE_VERSION, and stands by itself. A load would start
    every provider, which takes 0.2 s where nobody has such a network.

    Raises:
        OSError, NotElf: it cannot be read.
    """
    found = {
        text
        for first in (b"1.", b"2.")
        for text in texts(context.real(path), first)
        if _LIBFABRIC_RELEASE.fullmatch(text)
    }
    return found.pop() if len(found) == 1 else None


def nccl_text(text: str) -> Optional[Tuple[str, Optional[str]]]:
    """Version and CUDA of a text `NCCL version X.Y.Z+cudaA.B` that NCCL was built with, else None."""
    match = re.match(r"NCCL version (\d+\.\d+\.\d+)(?:\+cuda(\d+\.\d+))?\s*$", text)
    return (match.group(1), match.group(2)) if match else None


def loaded_version(
    context: Context, family: Family, path: str, told: Optional[str], *, trusted: bool
) -> Tuple[Optional[str], List[str]]:
    """The version of the copy that is loaded, and what went wrong while asking it.

    The library is loaded in a child process: a damaged one may crash or never return.
    """
    version_call = family.call
    if version_call is None or not context.live or not trusted or (told and not family.cheap):
        return told, []
    from envaudit.probe.deepchild import call_version

    def call() -> Any:
        return call_version(ctypes.CDLL(path), version_call.symbol, version_call.form)

    try:
        said = version_call.read(context.call(call, CALL_TIMEOUT_S))
    except ChildFailed as error:
        return told, [f"{path}: version call: {error}"]
    if said is None:
        return told, [f"{path}: its version call gave no version"]
    return (told if told and f"{told}.".startswith(f"{said}.") else said), []


def _three_parts(version: Optional[str]) -> Optional[str]:
    """Cut a wheel's build number: 9.10.2.21 is 9.10.2."""
    return ".".join(version.split(".")[:3]) if version else None
