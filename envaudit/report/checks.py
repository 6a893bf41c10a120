"""Checked devices as lines: those alike folded, one row for each operation and dtype."""

from __future__ import annotations

from typing import Dict, Iterator, List, Sequence, Tuple

from envaudit.model.checked import STATUSES, CheckedCase, CheckedDevice, map_in
from envaudit.model.nodeset import fold
from envaudit.report.lines import Line, Span, line
from envaudit.report.screen import printable

_BAD = ("wrong", "unstable", "timeout", "error")
_WORDS = {"not_run": "not run"}
_REASON_CHARACTERS = 100


def check_lines(devices: Sequence[CheckedDevice], verbose: bool) -> List[Line]:
    """A block for each kind of device and of result; with `verbose` a row for each case."""
    lines: List[Line] = []
    # What could not be tried at all is no row: a finding says why.
    for together in _alike([device for device in devices if device.kind]):
        if lines:
            lines.append(())
        lines.append(line(Span(printable(_head(together)), "head")))
        rows = list(_rows(together, verbose))
        widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
        for *cells, style in rows:
            text = "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths)).rstrip()
            lines.append(line(Span(f"  {printable(text)}", style)))
        readings = _readings(together)
        if readings:
            lines.append(line(Span(f"  {printable(readings)}", "dim")))
    return lines


def _alike(devices: Sequence[CheckedDevice]) -> List[List[CheckedDevice]]:
    """Devices of one kind with the same results; the bad ones come first, and of these each alone."""
    found: Dict[Tuple[object, ...], List[CheckedDevice]] = {}
    for device in devices:
        statuses = tuple((case.name, case.status) for case in device.cases.values())
        single = (device.node, device.ordinal) if is_bad(device) else ()
        found.setdefault((single, device.kind, device.model, statuses), []).append(device)
    return sorted(found.values(), key=lambda together: not is_bad(together[0]))


def is_bad(device: CheckedDevice) -> bool:
    """Whether an operation of the device came out badly."""
    return any(case.status in _BAD for case in device.cases.values())


def _head(together: Sequence[CheckedDevice]) -> str:
    """`8 x NVIDIA H200 on node[01-02], torch 2.13.0+cu130`."""
    first = together[0]
    nodes = fold(sorted({device.node for device in together}))
    torch = first.card.get("torch")
    tail = f", torch {torch}" if isinstance(torch, str) else ""
    if first.kind == "cpu":
        return f"{nodes}: device: cpu, no GPU ({first.model or 'CPU'}{tail})"
    if len(together) == 1:
        return f"{nodes}: {first.words}, {first.model or 'GPU'}{tail}"
    return f"{nodes}: {len(together)} x {first.model or 'GPU'}{tail}"


def _rows(together: Sequence[CheckedDevice], verbose: bool) -> Iterator[Tuple[str, str, str, str]]:
    """Operation, result, rate, style."""
    families: Dict[str, List[str]] = {}
    for name in together[0].cases:
        families.setdefault(name if verbose else "/".join(name.split("/")[:2]), []).append(name)
    for family, names in families.items():
        cases = [device.cases[name] for device in together for name in names if name in device.cases]
        statuses = [together[0].cases[name].status for name in names]
        worst = next((status for status in STATUSES if status in statuses), "ok")
        style = "error" if worst in _BAD else "incomplete" if worst == "not_run" else ""
        yield family, _counts(statuses), _detail(cases, worst), style


def _counts(statuses: Sequence[str]) -> str:
    """`ok`, `2 ok`, `1 wrong, 2 ok`."""
    counts = {status: statuses.count(status) for status in STATUSES}
    told = [(count, _WORDS.get(status, status)) for status, count in counts.items() if count]
    if len(told) == 1 and told[0][0] == 1:
        return told[0][1]
    return ", ".join(f"{count} {word}" for count, word in told)


def _detail(cases: Sequence[CheckedCase], worst: str) -> str:
    """Why not, or the rate: the fastest case of each device, from the slowest device to the fastest."""
    if worst != "ok":
        bad = next(case for case in cases if case.status == worst)
        reason = bad.reason[:_REASON_CHARACTERS]
        if worst == "not_run" or reason:
            return reason
    for name, unit in (("milli_tflops", "TFLOP/s"), ("milli_gbps", "GB/s")):
        by_case: Dict[str, List[int]] = {}
        for case in cases:
            value = getattr(case, name)
            if value:
                by_case.setdefault(case.name, []).append(value)
        if by_case:
            values = max((sorted(rates) for rates in by_case.values()), key=_middle)
            text = f"{_thousandths(_middle(values))} {unit}"
            if len(values) > 1 and values[0] != values[-1]:
                text += f" ({_thousandths(values[0])} to {_thousandths(values[-1])})"
            return text
    return ""


def _middle(ordered: Sequence[int]) -> int:
    return ordered[len(ordered) // 2]


def _thousandths(value: int) -> str:
    """Four digits of it: `712.3`, `4.311`, `0.089`."""
    for digits, least in ((0, 1_000_000), (1, 100_000), (2, 10_000)):
        if value >= least:
            return f"{value / 1000:.{digits}f}"
    return f"{value / 1000:.3f}"


def _readings(together: Sequence[CheckedDevice]) -> str:
    """`SM clock 1755 to 1980 MHz, up to 690 W, up to 61 °C, throttled: sw_power_cap`."""
    parts = []
    clocks = _limits(together, "sm_clock_mhz")
    if clocks:
        parts.append(f"SM clock {clocks[0]} to {clocks[1]} MHz")
    power = _limits(together, "power_mw")
    if power:
        parts.append(f"up to {power[1] // 1000} W")
    heat = _limits(together, "temperature_c")
    if heat:
        parts.append(f"up to {heat[1]} °C")
    seen = [device.readings.get("throttle") for device in together]
    reasons = sorted({str(reason) for each in seen if isinstance(each, (list, tuple)) for reason in each})
    if reasons:
        parts.append(f"throttled: {', '.join(reasons)}")
    return ", ".join(parts)


def _limits(together: Sequence[CheckedDevice], name: str) -> Tuple[int, ...]:
    rows = [map_in(device.readings, name) for device in together]
    least = [row["least"] for row in rows if isinstance(row.get("least"), int)]
    most = [row["most"] for row in rows if isinstance(row.get("most"), int)]
    return (min(least), max(most)) if least and most else ()
