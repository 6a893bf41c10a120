"""Copies of full bit patterns: within a device, between host and device, and between any two devices.

The pattern is a stream of the counter hash of its own for each source and target, so that data of another
copy, or of an earlier one, is never taken for the right data; the target is cleared before each copy.
"""

from __future__ import annotations

import time
from statistics import median_low
from typing import Any, Callable, List

from envaudit.checks.bits import compare
from envaudit.checks.counterhash import derive, words
from envaudit.checks.device import CPU, DeviceFacts
from envaudit.checks.operations import Case, not_runnable
from envaudit.checks.outcome import OK, WRONG, Outcome, milli_gbps

_GPU_WORDS = 2**25
_CPU_WORDS = 2**21
# Of what arrived on a device, so much is looked at by the host as well.
_SEEN_BY_HOST_WORDS = 2**20
_MOST_REPEATS = 8
_HOST = "cpu"


def CASES(facts: DeviceFacts) -> List[Case]:  # noqa: N802
    """Within this device, to and from the host, and from every device to every other."""
    if facts.kind == CPU:
        needs = "needs a GPU: host and device are one"
        return [
            _case("copies/local", _HOST, _HOST, _CPU_WORDS, "16 MiB"),
            not_runnable("copies/host-to-device", "int64", needs),
            not_runnable("copies/device-to-host", "int64", needs),
        ]
    return [
        _case("copies/local", facts.device, facts.device, _GPU_WORDS, "256 MiB"),
        _case("copies/host-to-device", _HOST, facts.device, _GPU_WORDS, "256 MiB"),
        _case("copies/device-to-host", facts.device, _HOST, _GPU_WORDS, "256 MiB"),
        *_between_devices(),
    ]


def _between_devices() -> List[Case]:
    import torch

    found = []
    count = torch.cuda.device_count()
    for source in range(count):
        for target in range(count):
            if source != target:
                direct = torch.cuda.can_device_access_peer(source, target)
                way = "256 MiB, peer access" if direct else "256 MiB, through the host"
                name = f"copies/peer/{source}-{target}"
                found.append(_case(name, f"cuda:{source}", f"cuda:{target}", _GPU_WORDS, way))
    return found


def _case(name: str, source: str, target: str, count: int, shape: str) -> Case:
    prepare = not_runnable(name, "int64", "a test of its own kind").prepare

    def copied(facts: DeviceFacts, seed: int, effort: Any, clock: Callable[[], float]) -> Outcome:
        return _copied(name, source, target, count, derive(seed, name), effort, clock)

    return Case(name, "int64", shape, True, prepare, own=copied)


def _copied(
    name: str, source: str, target: str, count: int, seed: int, effort: Any, clock: Callable[[], float]
) -> Outcome:
    import torch

    pinned = _HOST in (source, target) and source != target
    data = words(count, seed, source)
    if pinned and source == _HOST:
        data = data.pin_memory()
    arrived = torch.empty(count, dtype=torch.int64, device=target, pin_memory=pinned and target == _HOST)
    wanted = words(count, seed, target)
    times_ns: List[int] = []
    wrong, first = 0, None
    while len(times_ns) < min(effort.repeats, _MOST_REPEATS) and (not times_ns or clock() < effort.deadline):
        arrived.zero_()
        _wait(source, target)
        began = time.perf_counter_ns()
        arrived.copy_(data)
        _wait(source, target)
        times_ns.append(time.perf_counter_ns() - began)
        found = compare(wanted, arrived)
        wrong += found is not None
        first = first or found
    reason = f"{wrong} of {len(times_ns)} copies differ" if wrong else ""
    if not wrong and target != _HOST:
        first = compare(words(_SEEN_BY_HOST_WORDS, seed, _HOST), arrived[:_SEEN_BY_HOST_WORDS].cpu())
        wrong = int(first is not None)
        reason = "differs on the host, where the device's own comparison saw nothing" if wrong else ""
    middle = median_low(times_ns[1:] or times_ns)
    return Outcome(
        case=name,
        status=WRONG if wrong else OK,
        reason=reason,
        repeats=len(times_ns),
        wrong_repeats=wrong,
        mismatch=first,
        median_ns=middle,
        milli_gbps=milli_gbps(data.numel() * data.element_size(), middle),
        tested_bytes=data.numel() * data.element_size(),
    )


def _wait(*devices: str) -> None:
    import torch

    for device in devices:
        if device != _HOST:
            torch.cuda.synchronize(torch.device(device))
