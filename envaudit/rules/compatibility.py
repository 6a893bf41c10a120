"""Which versions work together: CUDA and drivers, torch and what its wheels bring. Data, with its sources.

Versions are compared by their parts as integers: driver 570.26 is older than 570.124. Where one
version has fewer parts than the other, it is compared as far as both go, so that a version that is
told in brief is never called older.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Mapping, NamedTuple, Optional, Tuple

# The oldest Linux driver that runs programs of any minor version of a CUDA major.
# NVIDIA, CUDA Compatibility, "Minor Version Compatibility".
MAJOR_FLOORS: Mapping[int, str] = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}

# Before CUDA 11 each toolkit has a floor of its own.
# NVIDIA, CUDA Toolkit Release Notes, "CUDA Toolkit and Corresponding Driver Versions".
MINOR_FLOORS: Mapping[str, str] = {
    "9.0": "384.81",
    "9.1": "390.46",
    "9.2": "396.26",
    "10.0": "410.48",
    "10.1": "418.39",
    "10.2": "440.33",
}

# The Linux driver that comes with each toolkit, oldest first.
# NVIDIA, CUDA Toolkit Release Notes, Table 3, up to 13.2 Update 2; 13.3 from copies of later notes.
TOOLKIT_DRIVERS: Mapping[str, str] = {
    "11.0.1": "450.36.06",
    "11.0.2": "450.51.05",
    "11.0.3": "450.51.06",
    "11.1.0": "455.23",
    "11.1.1": "455.32",
    "11.2.0": "460.27.03",
    "11.2.1": "460.32.03",
    "11.2.2": "460.32.03",
    "11.3.0": "465.19.01",
    "11.3.1": "465.19.01",
    "11.4.0": "470.42.01",
    "11.4.1": "470.57.02",
    "11.4.2": "470.57.02",
    "11.4.3": "470.82.01",
    "11.4.4": "470.82.01",
    "11.5.0": "495.29.05",
    "11.5.1": "495.29.05",
    "11.5.2": "495.29.05",
    "11.6.0": "510.39.01",
    "11.6.1": "510.47.03",
    "11.6.2": "510.47.03",
    "11.7.0": "515.43.04",
    "11.7.1": "515.48.07",
    "11.8.0": "520.61.05",
    "12.0.0": "525.60.13",
    "12.0.1": "525.85.12",
    "12.1.0": "530.30.02",
    "12.1.1": "530.30.02",
    "12.2.0": "535.54.03",
    "12.2.1": "535.86.09",
    "12.2.2": "535.104.05",
    "12.3.0": "545.23.06",
    "12.3.1": "545.23.08",
    "12.4.0": "550.54.14",
    "12.4.1": "550.54.15",
    "12.5.0": "555.42.02",
    "12.5.1": "555.42.06",
    "12.6.0": "560.28.03",
    "12.6.1": "560.35.03",
    "12.6.2": "560.35.03",
    "12.6.3": "560.35.05",
    "12.8.0": "570.26",
    "12.8.1": "570.124.06",
    "12.9.0": "575.51.03",
    "12.9.1": "575.57.08",
    "13.0.0": "580.65.06",
    "13.0.1": "580.82.07",
    "13.0.2": "580.95.05",
    "13.1.0": "590.44.01",
    "13.1.1": "590.48.01",
    "13.2.0": "595.45.04",
    "13.2.1": "595.58.03",
    "13.2.2": "595.71.05",
    "13.3.0": "610.43.02",
    "13.3.1": "610.43.02",
}


class TorchDefault(NamedTuple):
    """What the default wheel of a torch release asks for.

    Attributes:
        cuda: it was built for.
        cudart, cudnn, nccl, triton: the versions that it pins.
        glibc: of its platform tag.
    """

    cuda: str
    cudart: str
    cudnn: str
    nccl: str
    triton: str
    glibc: str


# Metadata of the default wheels for Python 3.11 on x86_64, read on 2026-11-30. An installed torch may
# be another build: what its own distribution says comes first, this only names what is unusual.
TORCH_DEFAULTS: Mapping[str, TorchDefault] = {
    "2.0.1": TorchDefault("11.7", "11.7.99", "8.5.0.96", "2.14.3", "2.0.0", "2.17"),
    "2.1.2": TorchDefault("12.1", "12.1.105", "8.9.2.26", "2.18.1", "2.1.0", "2.17"),
    "2.2.2": TorchDefault("12.1", "12.1.105", "8.9.2.26", "2.19.3", "2.2.0", "2.17"),
    "2.3.1": TorchDefault("12.1", "12.1.105", "8.9.2.26", "2.20.5", "2.3.1", "2.17"),
    "2.4.1": TorchDefault("12.1", "12.1.105", "9.1.0.70", "2.20.5", "3.0.0", "2.17"),
    "2.5.1": TorchDefault("12.4", "12.4.127", "9.1.0.70", "2.21.5", "3.1.0", "2.17"),
    "2.6.0": TorchDefault("12.4", "12.4.127", "9.1.0.70", "2.21.5", "3.2.0", "2.17"),
    "2.7.1": TorchDefault("12.6", "12.6.77", "9.5.1.17", "2.26.2", "3.3.1", "2.28"),
    "2.8.0": TorchDefault("12.8", "12.8.90", "9.10.2.21", "2.27.3", "3.4.0", "2.28"),
    "2.9.1": TorchDefault("12.8", "12.8.90", "9.10.2.21", "2.27.5", "3.5.1", "2.28"),
    "2.10.0": TorchDefault("12.8", "12.8.90", "9.10.2.21", "2.27.5", "3.6.0", "2.28"),
    "2.11.0": TorchDefault("13.0", "13.0.96", "9.19.0.56", "2.28.9", "3.6.0", "2.28"),
    "2.12.1": TorchDefault("13.0", "13.0.96", "9.20.0.48", "2.29.7", "3.7.1", "2.28"),
    "2.13.0": TorchDefault("13.0", "13.0.96", "9.20.0.48", "2.29.7", "3.7.1", "2.28"),
    "2.14.0": TorchDefault("13.0", "13.0.96", "9.24.0.43", "2.30.7", "3.8.0", "2.28"),
}

_NUMBERS = re.compile(r"\d{1,9}(?:\.\d{1,9})*")


def numbers(version: object) -> Tuple[int, ...]:
    """The parts that a version begins with: 2.14.1+cu130 is 2, 14, 1; nothing for what is no version."""
    return _numbers(version) if isinstance(version, str) else ()


# A fleet has few versions, and each rule asks for them on each node.
@lru_cache(maxsize=4096)
def _numbers(version: str) -> Tuple[int, ...]:
    match = _NUMBERS.match(version)
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def is_older(version: object, than: object) -> bool:
    """Whether one version is known to be older than another, as far as both go; unknown ones never are."""
    one, other = numbers(version), numbers(than)
    shared = min(len(one), len(other))
    return one[:shared] < other[:shared]


def driver_floor(cuda: object) -> Optional[str]:
    """The oldest Linux driver that runs programs built for a CUDA, `12.4`; None where nobody has said."""
    parts = numbers(cuda)
    if not parts:
        return None
    if parts[0] < 11:
        return MINOR_FLOORS.get(".".join(map(str, parts[:2])))
    return MAJOR_FLOORS.get(parts[0])


def toolkit_driver(cuda: object) -> Optional[str]:
    """The Linux driver that came with a toolkit; of `12.4` that of its first release."""
    return _toolkit_driver(cuda) if isinstance(cuda, str) else None


@lru_cache(maxsize=256)
def _toolkit_driver(cuda: str) -> Optional[str]:
    parts = numbers(cuda)
    if len(parts) < 2:
        return None
    exact = TOOLKIT_DRIVERS.get(".".join(map(str, parts[:3]))) if len(parts) > 2 else None
    if exact is not None:
        return exact
    own = (driver for release, driver in TOOLKIT_DRIVERS.items() if numbers(release)[:2] == parts[:2])
    return next(own, None) or MINOR_FLOORS.get(".".join(map(str, parts[:2])))


def newest_cuda(driver: object) -> Optional[str]:
    """The newest CUDA, by major and minor, that a Linux driver supports by itself: 550.54.15 is 12.4."""
    newest = None
    for release, needed in (*MINOR_FLOORS.items(), *TOOLKIT_DRIVERS.items()):
        if numbers(driver) and not is_older(driver, needed):
            newest = ".".join(release.split(".")[:2])
    return newest


def torch_default(version: object) -> Optional[TorchDefault]:
    """What the default wheel of a torch release asks for, `2.9.1` or `2.9.1+cu128`; None where not listed."""
    return TORCH_DEFAULTS.get(".".join(map(str, numbers(version))))


def torch_default_of_minor(version: object) -> Optional[TorchDefault]:
    """The same of a listed release of the same minor: its CUDA and glibc stay within a minor."""
    own = numbers(version)[:2]
    rows = (row for release, row in TORCH_DEFAULTS.items() if numbers(release)[:2] == own)
    return torch_default(version) or next(rows, None)
