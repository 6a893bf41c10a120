"""What a check was asked for and did not do: for want of time or place, or because there is no such thing."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any, Dict, Iterable, List, Mapping, Tuple

from envaudit.model.checked import CheckedDevice, checked_devices, map_in, section_of, text_in
from envaudit.rules.registry import Evidence

# How reasons begin for which a run leaves out what the device could do (`checks/supervise.py`, `worker.py`,
# `operations/memory.py`).
_OF_THIS_RUN = (
    "the budget ",
    "the GPU is busy",
    "a new worker failed",
    "its worker left it out",
    "too little of the memory",
)
_TIME_WAS_OVER = "when the time for it was over"


def not_run(evidence: Evidence, *, of_kind: bool) -> Dict[Tuple[str, Tuple[str, ...]], List[CheckedDevice]]:
    """The devices on which some cases did not run for a reason."""
    found: Dict[Tuple[str, Tuple[str, ...]], List[CheckedDevice]] = {}
    said = {one.node: section_of(one) for one in evidence.fingerprints}
    devices = checked_devices(evidence.fingerprints)
    usual = _reasons(devices)
    for device in devices:
        section = said[device.node]
        usable = text_in(section.facts, "usable") if section else ""
        reasons: Dict[str, List[str]] = {}
        for case in device.cases.values():
            reason = case.reason or usual.get(case.name, "")
            # Why torch cannot use a device EA503 has said.
            known = bool(reason) and reason in usable
            if case.status == "not_run" and not known and _is_of_kind(reason) == of_kind:
                reasons.setdefault(reason, []).append(case.name)
        for reason, names in reasons.items():
            found.setdefault((reason, tuple(names)), []).append(device)
    return found


def _reasons(devices: Iterable[CheckedDevice]) -> Dict[str, str]:
    """Why a case did not run, as the first device says that tells it.

    A node of a launch that says the same as the first one sends no notes, and reasons are notes.
    """
    found: Dict[str, str] = {}
    for device in devices:
        for case in device.cases.values():
            if case.status == "not_run" and case.reason:
                found.setdefault(case.name, case.reason)
    return found


def _is_of_kind(reason: str) -> bool:
    """Whether a reason is one of this torch or card, as operations word it (`checks/operations`)."""
    return not reason.startswith(_OF_THIS_RUN) and not reason.endswith(_TIME_WAS_OVER)


def asked_in_vain(evidence: Evidence) -> Dict[str, List[CheckedDevice]]:
    """Devices on which nothing at all ran, and names of operations that none of a device has."""
    found: Dict[str, List[CheckedDevice]] = {}
    said = {one.node: section_of(one) for one in evidence.fingerprints}
    for device in checked_devices(evidence.fingerprints):
        section = said[device.node]
        facts: Mapping[str, Any] = section.facts if section else {}
        for pattern in _strings(map_in(facts, "asked").get("ops")):
            # Where nothing could be tried, the operations stand there by their families alone.
            wanted = (pattern, pattern.rstrip("/") + "/*")
            if device.card and not any(fnmatchcase(name, each) for name in device.cases for each in wanted):
                found.setdefault(f"no operation is called {pattern}", []).append(device)
        ran = [case for case in device.cases.values() if case.status != "not_run"]
        told = any(not _is_of_kind(case.reason) for case in device.cases.values() if case.status == "not_run")
        # Why torch cannot use a device EA503 says.
        if not ran and not told and text_in(facts, "usable") in ("", "ok"):
            found.setdefault("no operation was run", []).append(device)
    return found


def _strings(values: Any) -> List[str]:
    return [value for value in values if isinstance(value, str)] if isinstance(values, (list, tuple)) else []
