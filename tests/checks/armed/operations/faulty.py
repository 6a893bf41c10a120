"""Operations that fail, each in its own way; the first one wraps a real one and flips a bit of its result."""

from __future__ import annotations

import ctypes
import os
import time
from typing import Any, Callable, List

from envaudit.checks.device import DeviceFacts
from envaudit.checks.operations import Case, Prepared, gemm

FLIPPED_BIT = 9


def CASES(facts: DeviceFacts) -> List[Case]:
    """In the order in which a worker meets them."""
    real = next(case for case in gemm.CASES(facts) if case.name == "gemm/fp32/spread")
    ends = {
        "fine": lambda: None,
        "raise": _raise,
        "hunger": lambda: bytearray(1 << 60),
        "exit": lambda: os._exit(3),
        "segfault": lambda: ctypes.string_at(0),
        "hang": lambda: time.sleep(600),
        "after": lambda: None,
    }
    return [_flipped(real), *(_ending(name, act, real) for name, act in ends.items())]


def _flipped(real: Case) -> Case:
    def prepare(device: Any, seed: int, scaled: bool) -> Prepared:
        import torch

        prepared = real.prepare(device, seed, scaled)

        def run() -> Any:
            (result,) = prepared.run()
            result.view(torch.int32)[1, 2] ^= 1 << FLIPPED_BIT
            return (result,)

        return prepared._replace(run=run)

    return real._replace(name="faulty/flip", prepare=prepare)


def _ending(name: str, act: Callable[[], Any], real: Case) -> Case:
    def prepare(device: Any, seed: int, scaled: bool) -> Prepared:
        prepared = real.prepare(device, seed, scaled)

        def run() -> Any:
            act()
            return prepared.run()

        return prepared._replace(run=run)

    return real._replace(name=f"faulty/{name}", prepare=prepare)


def _raise() -> None:
    raise RuntimeError("CUDA error: an illegal memory access was encountered")
