"""A torch that can be imported: the stand-in libraries of `fakelibs`, loaded in torch's own order.

It has what the probe's `--deep` asks of torch, and a place for what a test wants to go wrong.
"""

from __future__ import annotations

import os
from typing import Dict

from tests.probe import fakelibs

_INIT = """
import ctypes, glob, os, resource, sys, types
{first}
assert len(set(resource.getrlimit(resource.RLIMIT_DATA))) == 1, "memory is limited"
here = os.path.dirname(__file__)
ctypes.CDLL(here + "/lib/libtorch_global_deps.so", mode=ctypes.RTLD_GLOBAL)
core = ctypes.CDLL(glob.glob(here + "/_C.*.so")[0])

__version__ = "2.14.1+cu130"
version = types.SimpleNamespace(cuda="13.0", hip=None)
nccl = types.SimpleNamespace(version=lambda: (2, 30, 7))
cuda = types.SimpleNamespace(is_available=lambda: {available}, nccl=nccl)
_C = types.SimpleNamespace(_cuda_getArchFlags=lambda: "sm_80 sm_90")


def cudnn_version():
    return ctypes.CDLL("libcudnn.so.9").cudnnGetVersion()


backends = types.SimpleNamespace(cudnn=types.SimpleNamespace(version=cudnn_version))


class Tensor:
    def __init__(self, total):
        self.total = total

    def sum(self):
        return self

    def __float__(self):
        return float(self.total)

    def tolist(self):
        return [1.0] * 4


class no_grad:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


def ones(*shape, device):
    return Tensor(4)


def conv2d(image, kernel):
    {convolution}
    return Tensor(112896)


nn = types.SimpleNamespace(functional=types.SimpleNamespace(conv2d=conv2d))
"""
_DISTRIBUTED = """
import os

HashStore = dict


def is_available():
    return True


def is_nccl_available():
    return True


def init_process_group(backend, *, store, rank, world_size, timeout):
    assert (os.environ["GLOO_SOCKET_IFNAME"], os.environ["NCCL_SOCKET_IFNAME"]) == ("lo", "=lo")
    assert "NCCL_DEBUG_FILE" not in os.environ
    assert (store, rank, world_size) == ({{}}, 0, 1)


def all_reduce(tensor):
    {collective}
"""


def build(
    site: str,
    *,
    first: str = "",
    convolution: str = "pass",
    collective: str = "pass",
    available: bool = False,
    **stack: Dict[str, object],
) -> str:
    """The stack of `fakelibs.build_stack` with an importable torch; the arguments are Python statements."""
    folder = fakelibs.build_stack(site, **stack)  # type: ignore[arg-type]
    texts = {
        "__init__.py": _INIT.format(first=first, convolution=convolution, available=available),
        "distributed.py": _DISTRIBUTED.format(collective=collective),
    }
    for name, text in texts.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as stream:
            stream.write(text)
    return folder
