"""What a check came to, in a line: how much ran, and what it cannot have seen."""

from __future__ import annotations

from typing import List, Optional, Sequence

from envaudit.checks.plan import COPIES, MEMORY, Plan
from envaudit.model.checked import CheckedDevice
from envaudit.model.collective import DONE, NOT_TESTED, Collectives
from envaudit.report import Stage

# Below this a card is not warm, and its clocks are those of a cold one.
_SOAK_S = 60
# At how much certainty the report names the fault that would have been seen.
_CERTAINTY = 0.95


def outcome_words(devices: Sequence[CheckedDevice], run: Optional[Collectives]) -> str:
    """`16 GPUs on 2 nodes, 41 operations ok; 16 ranks, 130 collectives ok`."""
    parts = [checked_words(devices)] if devices else []
    if run is not None:
        parts.append(collective_words(run))
    return "; ".join(parts) or "nothing was run"


def checked_words(devices: Sequence[CheckedDevice]) -> str:
    """`16 GPUs on 2 nodes, 41 operations ok, 4 not run`."""
    gpus = sum(device.kind == "cuda" for device in devices)
    what = _count(gpus, "GPU") if gpus else _count(len(devices), "CPU")
    ran = [sum(case.status == "ok" for case in device.cases.values()) for device in devices]
    left = [sum(case.status == "not_run" for case in device.cases.values()) for device in devices]
    text = f"{what} on {_count(len({device.node for device in devices}), 'node')}"
    if ran:
        many = str(ran[0]) if len(set(ran)) == 1 else f"{min(ran)} to {max(ran)}"
        text += f", {many} operations ok"
    return text + (f", {max(left)} not run" if any(left) else "")


def collective_words(run: Collectives) -> str:
    """`16 ranks, 130 collectives ok, 4 not run`."""
    if not run.asked:
        return f"path MTU between {_count(len(run.mtu), 'node')}" if run.mtu else "nothing was tried"
    if run.ended.kind == NOT_TESTED:
        return "collectives: NOT TESTED"
    if run.ended.kind != DONE:
        return f"collectives: {run.ended.text}"
    counts = {
        status: sum(case.status == status for case in run.cases.values()) for status in ("ok", "not_run")
    }
    text = f"{_count(run.world, 'rank')}, {_count(counts['ok'], 'collective')} ok"
    return text + (f", {counts['not_run']} not run" if counts["not_run"] else "")


def limits_of(devices: Sequence[CheckedDevice], plan: Plan) -> List[Stage]:
    """What the run cannot have seen."""
    repeats = [
        case.repeats
        for device in devices
        for case in device.cases.values()
        # A memory test counts its patterns; it is no operation that is repeated, and nor is a copy.
        if case.status == "ok" and case.exact and case.repeats and _family(case.name) not in (MEMORY, COPIES)
    ]
    stages = []
    if repeats:
        stages.append(Stage("bound", bound_in_words(min(repeats))))
    if any(device.kind == "cuda" for device in devices) and plan.budget_s < _SOAK_S:
        stages.append(Stage("heat", f"no thermal soak below {_SOAK_S} s"))
    return stages


def _family(case: str) -> str:
    return case.split("/", 1)[0]


def bound_in_words(repeats: int) -> str:
    """Which fault so many repeats exclude: p is seen with 1 - (1 - p)**repeats."""
    excluded = 1 - (1 - _CERTAINTY) ** (1 / repeats)
    times = "once" if repeats == 1 else f"{repeats} times"
    return (
        f"each kernel ran at least {times}: a fault in {excluded * 100:.2g} % of its runs "
        f"would have been seen with {_CERTAINTY * 100:.0f} %, a rarer one may not"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
