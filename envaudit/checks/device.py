"""A device as the operations see it: what it is, and what the torch beside it can do."""

from __future__ import annotations

import re
from typing import Any, NamedTuple, Optional, Tuple

CPU = "cpu"
CUDA = "cuda"


class DeviceFacts(NamedTuple):
    """What decides which cases there are on a device, and how large.

    Attributes:
        device: as torch names it, `cpu` or `cuda:0`.
        kind: `cpu` or `cuda` (ROCm's builds call their devices that, too).
        capability: the compute capability, (9, 0); None on a CPU and under ROCm.
        torch: the version's first two numbers, (2, 13).
        rocm: whether torch is a ROCm build.
        triton: whether a package triton can be imported.
        memory_bytes: all of the device's memory; None on a CPU.
    """

    device: str
    kind: str
    capability: Optional[Tuple[int, int]]
    torch: Tuple[int, int]
    rocm: bool
    triton: bool
    memory_bytes: Optional[int]


def facts_of(device: str) -> DeviceFacts:
    """The facts of `cpu` or `cuda:N`, from torch.

    Raises:
        RuntimeError: torch cannot use that device.
    """
    from importlib.util import find_spec

    import torch

    kind = torch.device(device).type
    rocm = bool(getattr(torch.version, "hip", None))
    capability = None
    memory_bytes = None
    if kind == CUDA:
        properties = torch.cuda.get_device_properties(torch.device(device))
        memory_bytes = int(properties.total_memory)
        capability = None if rocm else (int(properties.major), int(properties.minor))
    return DeviceFacts(
        device=device,
        kind=kind,
        capability=capability,
        torch=torch_release(torch),
        rocm=rocm,
        triton=find_spec("triton") is not None,
        memory_bytes=memory_bytes,
    )


def torch_release(torch: Any) -> Tuple[int, int]:
    """`2.13.0+cpu` as (2, 13); (0, 0) where the version says nothing."""
    found = re.match(r"(\d+)\.(\d+)", str(torch.__version__))
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)
