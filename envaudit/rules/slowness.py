"""Which devices ran slower than those like them, beyond what their rates scatter anyway."""

from __future__ import annotations

from typing import Dict, Iterable, Iterator, List, NamedTuple, Sequence, Tuple

from envaudit.model.checked import CheckedCase, CheckedDevice

# Slow is a rate below the median by more than five robust standard deviations (1.4826 · MAD is σ of a
# normal distribution) and by more than this part of the median. One-sided: a fast card is no fault.
SLOW_PERCENT = 5
_SIGMAS = 5
_MAD_TO_SIGMA = 1.4826
# With fewer there is no telling who is slow.
LEAST_DEVICES = 4
# An operation shorter than this measures the launch, not the device.
LEAST_TIMED_NS = 50_000


class Slow(NamedTuple):
    """A case that ran slower on one device than on those like it; rates in thousandths."""

    device: CheckedDevice
    case: str
    rate: int
    median: int
    devices: int

    @property
    def percent(self) -> int:
        """How far below the median, in hundredths of it."""
        return (self.median - self.rate) * 100 // self.median


def slow_cases(devices: Iterable[CheckedDevice]) -> Iterator[Slow]:
    """Every case of every GPU that is slow against the GPUs of its model.

    A CPU is shared with whatever else runs there: its rates say nothing about it. So are the host's memory
    and the links to it, by all GPUs of a node at once: a copy to or from the host has what others leave.
    """
    rates: Dict[Tuple[str, str, str], List[Tuple[int, CheckedDevice]]] = {}
    for device in devices:
        for case in device.cases.values():
            is_own = device.kind == "cuda" and not _is_of_host(case)
            if is_own and case.rate and (case.median_ns or 0) >= LEAST_TIMED_NS:
                rates.setdefault((case.name, case.shape, device.model), []).append((case.rate, device))
    for (name, _, _), rows in rates.items():
        if len(rows) < LEAST_DEVICES:
            continue
        median = _median([rate for rate, _ in rows])
        scatter = _median([abs(rate - median) for rate, _ in rows])
        allowed = max(_SIGMAS * _MAD_TO_SIGMA * scatter, median * SLOW_PERCENT / 100)
        for rate, device in rows:
            if rate < median - allowed:
                yield Slow(device, name, rate, median, len(rows))


def _is_of_host(case: CheckedCase) -> bool:
    # As `checks/operations/copies.py` names them, and says of a copy between GPUs without peer access.
    return case.name in ("copies/host-to-device", "copies/device-to-host") or (
        case.name.startswith("copies/peer/") and case.shape.endswith("through the host")
    )


def _median(values: Sequence[int]) -> int:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]
