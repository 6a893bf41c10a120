"""Numbers: what the operations of known answer came to, on every device (`envaudit check`).

A wrong bit is wrong whoever else has it. What has no known answer is held against the devices that must
agree with it to the bit: the same card, driver, torch and libraries.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Mapping, Sequence, Tuple

from envaudit.model.checked import (
    SECTION,
    CheckedCase,
    CheckedDevice,
    checked_devices,
    map_in,
    section_of,
    text_in,
)
from envaudit.model.drift import join_path
from envaudit.model.nodeset import fold
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Evidence, Found, Threshold, rule, threshold
from envaudit.rules.slowness import Slow, slow_cases
from envaudit.rules.untried import asked_in_vain, not_run

# Digests of so many devices have a majority; of two, one of them is wrong and nobody knows which.
_LEAST_VOTERS = 3
_NAMED_CASES = 8
# Copies between two GPUs are run by the first of all, which need not be one of them.
_BETWEEN = "copies/peer/"

# What throttling is a fault of the machine: cooling and supply. A software power cap is a setting.
_FAULTS = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake", "sw_thermal_slowdown")

# What a worker says that finds no torch begins so (`checks/worker.py`).
_NO_TORCH = "torch is not installed"
_NAME_TORCH = "Name the Python that has torch with --python or in envaudit.toml; start envaudit.pyz with it."

Chosen = Callable[[CheckedCase], bool]


@rule(
    "EA500",
    severity="error",
    scope="node",
    title="wrong result",
    why="The right answer is known to the bit: this device computes wrong numbers.",
    how_to_fix="Take the node out of the pool, run 'envaudit check --repeats 1000' on it alone, and have "
    "the device replaced if it stays.",
    needs=(SECTION,),
)
def wrong_result(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """One finding a device."""
    yield from _by_device(evidence, "gives wrong results", lambda case: case.status == "wrong")


@rule(
    "EA501",
    severity="error",
    scope="node",
    title="other bits when run again",
    why="The same operation on the same data gave two results on one device: one of them is wrong, or "
    "nothing that this device trains can be repeated.",
    needs=(SECTION,),
)
def unstable_result(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """One finding a device."""
    yield from _by_device(evidence, "gives other bits when run again", lambda case: case.status == "unstable")


@rule(
    "EA502",
    severity="error",
    scope="node",
    title="operation failed",
    why="A rank that runs it ends there, or hangs the others.",
    needs=(SECTION,),
)
def operation_failed(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """An exception, a crash, or no return in time; one finding a device."""
    yield from _by_device(evidence, "fails at operations", lambda case: case.status in ("error", "timeout"))


@rule(
    "EA503",
    severity="error",
    scope="node",
    title="torch cannot use the device",
    why="A training run on this node ends, or computes on the CPU, before its first step.",
    needs=(SECTION,),
)
def torch_unusable(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """One finding a reason."""
    nodes: Dict[str, List[str]] = {}
    for fingerprint in evidence.fingerprints:
        section = section_of(fingerprint)
        usable = text_in(section.facts, "usable") if section else ""
        if usable not in ("", "ok"):
            nodes.setdefault(usable, []).append(fingerprint.node)
    for reason, names in nodes.items():
        yield Found("torch cannot use the device", tuple(names), join_path(SECTION, "usable"), (reason,))


@rule(
    "EA504",
    severity="incomplete",
    scope="node",
    title="not tested",
    why="What was asked for and did not run is no pass.",
)
def not_tested(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """No torch, a busy GPU, a budget that was over; what this torch or card cannot do is EA505's."""
    if evidence.sections is None or SECTION not in evidence.sections:
        return
    without: Dict[str, List[str]] = {}
    told = {device.node for device in checked_devices(evidence.fingerprints)}
    sections = [(one.node, one.sections.get(SECTION)) for one in evidence.fingerprints]
    whys = {node: text_in(one.notes, "why") for node, one in sections if one and one.status == "absent"}
    # A node of a launch that says the same as the first one sends no notes.
    usual = next(filter(None, whys.values()), "there is no torch")
    for node, why in whys.items():
        without.setdefault(why or usual, []).append(node)
    for fingerprint in evidence.fingerprints:
        if section_of(fingerprint) is not None and fingerprint.node not in told:
            without.setdefault("its answer tells of no device", []).append(fingerprint.node)
    for why, names in without.items():
        hint = _NAME_TORCH if why.startswith(_NO_TORCH) else ""
        yield Found("no kernel was run", tuple(names), SECTION, (why,), hint=hint)
    for (reason, cases), devices in not_run(evidence, of_kind=False).items():
        nodes, lines = _where(devices)
        yield Found(f"{_cases(cases)} not run: {reason}", nodes, SECTION, (", ".join(cases), *lines))
    for what, devices in asked_in_vain(evidence).items():
        nodes, lines = _where(devices)
        yield Found(what, nodes, SECTION, lines)


@rule(
    "EA505",
    severity="info",
    scope="node",
    title="operations that do not exist there",
    why="This torch or this card has no such operation; nothing is said about it.",
    needs=(SECTION,),
)
def not_supported(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """One finding a reason."""
    for (reason, cases), devices in not_run(evidence, of_kind=True).items():
        nodes, _ = _where(devices)
        yield Found(f"{_cases(cases)} not run: {reason}", nodes, SECTION, (", ".join(cases),))


@rule(
    "EA506",
    severity="error",
    scope="cross",
    title="a device has other bits than all like it",
    why="The same card with the same driver, torch and libraries gives the same bits for the same data.",
    how_to_fix="Run 'envaudit check --repeats 1000' on that node alone.",
    needs=(SECTION,),
)
def minority_of_bits(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """A minority among three or more; one finding a device."""
    bad: Dict[Tuple[str, str], Tuple[CheckedDevice, List[str]]] = {}
    for case, digests in _disagreeing(evidence):
        ranked = sorted(digests.values(), key=len, reverse=True)
        if sum(map(len, ranked)) < _LEAST_VOTERS or len(ranked[0]) == len(ranked[1]):
            continue
        for devices in ranked[1:]:
            for device in devices:
                bad.setdefault((device.node, device.ordinal), (device, []))[1].append(case)
    for device, cases in bad.values():
        yield Found(
            f"{device.words} has other bits than all like it",
            (device.node,),
            join_path(SECTION, "devices", device.ordinal),
            (_named(cases),),
        )


@rule(
    "EA507",
    severity="warning",
    scope="cross",
    title="devices disagree, and there is no majority",
    why="One of them is wrong, and the others are too few to say which.",
    how_to_fix="Check them together with a third of the same kind.",
    needs=(SECTION,),
)
def bits_without_majority(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """One finding a set of devices."""
    torn: Dict[Tuple[str, ...], Tuple[List[CheckedDevice], List[str]]] = {}
    for case, digests in _disagreeing(evidence):
        ranked = sorted(digests.values(), key=len, reverse=True)
        devices = [device for group in ranked for device in group]
        if len(devices) >= _LEAST_VOTERS and len(ranked[0]) != len(ranked[1]):
            continue
        key = tuple(sorted(f"{device.node} {device.ordinal}" for device in devices))
        torn.setdefault(key, (devices, []))[1].append(case)
    for devices, cases in torn.values():
        nodes, lines = _where(devices)
        yield Found("devices that must agree disagree", nodes, SECTION, (_named(cases), *lines))


@rule(
    "EA510",
    severity="warning",
    scope="cross",
    title="device is slow",
    why="Every step waits for the slowest rank.",
    needs=(SECTION,),
)
def slow_device(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Below the median of its kind beyond what its kind scatters; one finding a device."""
    yield from _slow_found(evidence, policy, far=False)


@rule(
    "EA511",
    severity="error",
    scope="cross",
    title="device is far too slow",
    why="Every step waits for the slowest rank; this one has lost a fifth of its rate or more.",
    how_to_fix="Look for throttling, a wrong power limit or clock setting, and another process on it.",
    needs=(SECTION,),
    thresholds={"lost_percent": Threshold(20, "%", "of its kind's median rate are lost: an error")},
)
def far_too_slow(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """One finding a device."""
    yield from _slow_found(evidence, policy, far=True)


@rule(
    "EA512",
    severity="warning",
    scope="node",
    title="device throttled while it was checked",
    why="Its cooling or its supply does not carry the load, and every step waits for it.",
    needs=(SECTION,),
)
def throttled(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """One finding a device."""
    for device in checked_devices(evidence.fingerprints):
        seen = device.readings.get("throttle")
        reasons = [name for name in _FAULTS if isinstance(seen, (list, tuple)) and name in seen]
        if reasons:
            clock = map_in(device.readings, "sm_clock_mhz")
            lines = (f"SM clock {clock.get('least')} to {clock.get('most')} MHz",) if clock else ()
            yield Found(f"{device.words} throttled: {', '.join(reasons)}", (device.node,), SECTION, lines)


@rule(
    "EA513",
    severity="error",
    scope="node",
    title="uncorrected ECC errors while it was checked",
    why="Memory lost data under this load, within seconds.",
    needs=(SECTION,),
)
def ecc_errors(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """One finding a device."""
    for device in checked_devices(evidence.fingerprints):
        counts = map_in(device.readings, "ecc_uncorrected")
        before, after = counts.get("before"), counts.get("after")
        if isinstance(before, int) and isinstance(after, int) and after > before:
            yield Found(
                f"{device.words}: {after - before} uncorrected ECC errors during the check",
                (device.node,),
                SECTION,
                (f"{before} before, {after} after",),
            )


def _by_device(evidence: Evidence, what: str, chosen: Chosen) -> Iterator[Found]:
    for device in checked_devices(evidence.fingerprints):
        cases = [case for case in device.cases.values() if chosen(case)]
        own = tuple(_case_line(case) for case in cases if not case.name.startswith(_BETWEEN))
        between = tuple(_case_line(case) for case in cases if case.name.startswith(_BETWEEN))
        path = join_path(SECTION, "devices", device.ordinal)
        if own:
            yield Found(f"{device.words} {what}", (device.node,), path, own)
        if between:
            # `copies/peer/5-3` is the copy from GPU 5 to GPU 3.
            pairs = sorted({case.name[len(_BETWEEN) :] for case in cases if case.name.startswith(_BETWEEN)})
            yield Found(f"copying between GPUs {_named(pairs)} {what}", (device.node,), path, between)


def _case_line(case: CheckedCase) -> str:
    """`gemm/bf16/spread: 1 of 65536 elements, first at [3,17], flipped bit 12: 0x43a1 for ...`."""
    if not case.mismatch:
        return f"{case.name}: {case.reason or case.status}"
    found = case.mismatch
    bits = _numbers(found.get("flipped_bits"))
    parts = [f"{found.get('wrong')} of {found.get('compared')} elements"]
    parts.append(f"first at [{_numbers(found.get('first_index'))}]")
    if bits:
        parts.append(f"flipped bit {bits}")
    text = ", ".join(parts) + f": 0x{found.get('got_bits')} for 0x{found.get('expected_bits')}"
    return f"{case.name}: {text}; {case.wrong_repeats} of {case.repeats} repeats"


def _numbers(values: Any) -> str:
    if not isinstance(values, (list, tuple)):
        return ""
    return ",".join(str(value) for value in values[:_NAMED_CASES]) + (
        ",..." if len(values) > _NAMED_CASES else ""
    )


def _disagreeing(evidence: Evidence) -> Iterator[Tuple[str, Mapping[str, List[CheckedDevice]]]]:
    """Cases whose results differ among devices that must agree, with the devices by digest.

    What is known to be wrong or failed is said elsewhere, and has no vote.
    """
    voters: Dict[Tuple[str, str, str], Dict[str, List[CheckedDevice]]] = {}
    for device in checked_devices(evidence.fingerprints):
        for case in device.cases.values():
            if case.status == "ok" and case.digest:
                # A right answer is the same everywhere.
                group = "" if case.exact else device.group
                place = (case.name, case.shape, group)
                voters.setdefault(place, {}).setdefault(case.digest, []).append(device)
    for (name, _, _), digests in voters.items():
        if len(digests) > 1:
            yield name, digests


def _slow_found(evidence: Evidence, policy: Policy, *, far: bool) -> Iterator[Found]:
    far_percent = threshold("EA511", "lost_percent", policy)
    by_device: Dict[Tuple[str, str], List[Slow]] = {}
    for slow in slow_cases(checked_devices(evidence.fingerprints)):
        by_device.setdefault((slow.device.node, slow.device.ordinal), []).append(slow)
    for slows in by_device.values():
        worst = max(slows, key=lambda slow: slow.percent)
        if (worst.percent >= far_percent) != far:
            continue
        device = worst.device
        lines = tuple(
            f"{slow.case}: {slow.percent} % below the median of {slow.devices} devices" for slow in slows
        )
        yield Found(
            f"{device.words} is slow: {worst.percent} % below its kind", (device.node,), SECTION, lines
        )


def _where(devices: Sequence[CheckedDevice]) -> Tuple[Tuple[str, ...], Tuple[str, ...]]:
    """The nodes, and lines that name the devices where they are GPUs."""
    nodes: Dict[str, List[str]] = {}
    for device in devices:
        if device.kind != "cpu":
            nodes.setdefault(device.words, []).append(device.node)
    lines = tuple(f"{words} of {fold(names)}" for words, names in nodes.items())
    return tuple(dict.fromkeys(device.node for device in devices)), lines


def _named(cases: Sequence[str]) -> str:
    more = len(cases) - _NAMED_CASES
    return ", ".join(cases[:_NAMED_CASES]) + (f" and {more} more" if more > 0 else "")


def _cases(names: Sequence[str]) -> str:
    return "1 operation" if len(names) == 1 else f"{len(names)} operations"
