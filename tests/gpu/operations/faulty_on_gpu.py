"""Operations that fail as only a GPU lets them: an error that stays, a kernel that never ends, no memory."""

from __future__ import annotations

from typing import Any, Callable, List

from envaudit.checks.device import CPU, DeviceFacts
from envaudit.checks.operations import Case, NotRunnable, Prepared, gemm


def CASES(facts: DeviceFacts) -> List[Case]:
    """In the order in which a worker meets them."""
    real = next(case for case in gemm.CASES(facts) if case.name == "gemm/fp32/spread")
    ends = {
        "flip": _flip,
        "assert": _device_side_assert,
        "after-assert": lambda result: result,
        "memory": _more_than_there_is,
        "after-memory": lambda result: result,
        "hang": _never_ending,
        "after-hang": lambda result: result,
    }
    return [_spoilt(f"faulty_on_gpu/{name}", act, real, facts) for name, act in ends.items()]


def _spoilt(name: str, act: Callable[[Any], Any], real: Case, facts: DeviceFacts) -> Case:
    def prepare(device: Any, seed: int, scaled: bool) -> Prepared:
        if facts.kind == CPU:
            raise NotRunnable("needs a GPU")
        prepared = real.prepare(device, seed, scaled)
        return prepared._replace(run=lambda: (act(prepared.run()[0]),))

    return real._replace(name=name, prepare=prepare)


def _flip(result: Any) -> Any:
    import torch

    result.view(torch.int32)[1, 2] ^= 1 << 9
    return result


def _device_side_assert(result: Any) -> Any:
    import torch

    # An index out of range trips an assertion in the kernel; the context is of no use from then on.
    result.index_select(0, torch.full((1,), 10**6, dtype=torch.int64, device=result.device))
    # Of the right shape, so that nothing else is wrong with it.
    return result


def _more_than_there_is(result: Any) -> Any:
    import torch

    torch.empty(1 << 45, dtype=torch.uint8, device=result.device)
    return result


def _never_ending(result: Any) -> Any:
    import torch

    for _ in range(100):
        torch.cuda._sleep(1 << 40)
    return result
