"""What a node's section `checks` says, device by device, with what is not of its type left out."""

from __future__ import annotations

import json
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from envaudit.model.fingerprint import Fingerprint
from envaudit.model.section import Section

SECTION = "checks"

# The statuses of a case, worst first; `not_run` is never a pass.
STATUSES = ("wrong", "unstable", "timeout", "error", "not_run", "ok")


class CheckedCase(NamedTuple):
    """One operation on one device.

    Attributes:
        name: `gemm/bf16/spread`.
        status: one of STATUSES.
        exact: whether the right answer is known to the bit.
        digest: of the result's bits; empty where there is none.
        dtype: the kind of arithmetic.
        shape: the sizes in words.
        reason: why, for every status but `ok`.
        repeats: how often it ran and was compared.
        wrong_repeats: how many of those differed.
        mismatch: how the first of them did; empty where none did.
        median_ns: of one run, None where it was not timed.
        milli_tflops: thousandths of 10¹² operations a second; None where the case does not count them.
        milli_gbps: thousandths of 10⁹ bytes a second, likewise.
    """

    name: str
    status: str
    exact: bool = True
    digest: str = ""
    dtype: str = ""
    shape: str = ""
    reason: str = ""
    repeats: int = 0
    wrong_repeats: int = 0
    mismatch: Mapping[str, Any] = {}
    median_ns: Optional[int] = None
    milli_tflops: Optional[int] = None
    milli_gbps: Optional[int] = None

    @property
    def rate(self) -> Optional[int]:
        """Operations where they are counted, else bytes; more is better."""
        return self.milli_tflops or self.milli_gbps


class CheckedDevice(NamedTuple):
    """One device of one node.

    Attributes:
        node: its node.
        ordinal: its number as torch counts.
        kind: `cuda` or `cpu`; empty where nothing was tried.
        card: what must agree before bits of inexact operations may be compared.
        uuid: `GPU-1234...`, empty where it is not known.
        cases: by name.
        readings: clocks, power, temperature and ECC (`checks/meter.py`); empty where there are none.
    """

    node: str
    ordinal: str
    kind: str
    card: Mapping[str, Any]
    uuid: str
    cases: Mapping[str, CheckedCase]
    readings: Mapping[str, Any]

    @property
    def words(self) -> str:
        """`GPU 3 (GPU-1234...)` or `the CPU`."""
        if self.kind == "cpu":
            return "the CPU"
        if not self.kind:
            return f"device {self.ordinal}"
        return f"GPU {self.ordinal}" + (f" ({self.uuid})" if self.uuid else "")

    @property
    def model(self) -> str:
        """`NVIDIA H200`; empty where it is not known."""
        return text_in(self.card, "model")

    @property
    def group(self) -> str:
        """Equal on devices whose inexact results must agree to the bit."""
        return json.dumps([self.kind, dict(self.card)], sort_keys=True)


def section_of(fingerprint: Fingerprint) -> Optional[Section]:
    """The section, where its facts say anything."""
    section = fingerprint.sections.get(SECTION)
    return section if section is not None and section.status in ("ok", "partial") else None


def checked_devices(fingerprints: Iterable[Fingerprint]) -> List[CheckedDevice]:
    """All devices of all nodes, in order."""
    found = []
    for fingerprint in fingerprints:
        section = section_of(fingerprint)
        if section is not None:
            found.extend(_devices(fingerprint.node, section))
    return found


def _devices(node: str, section: Section) -> List[CheckedDevice]:
    each, others = map_in(section.facts, "each"), map_in(section.facts, "devices")
    notes = map_in(section.notes, "devices")
    count = section.facts.get("count")
    names = sorted(notes, key=lambda name: (len(name), name)) or [
        str(ordinal) for ordinal in range(count if isinstance(count, int) and 0 <= count < 1000 else 0)
    ]
    kind = text_in(section.facts, "device")
    return [_device(node, name, kind, (each, map_in(others, name)), map_in(notes, name)) for name in names]


def _device(
    node: str,
    ordinal: str,
    kind: str,
    said: Tuple[Mapping[str, Any], Mapping[str, Any]],
    notes: Mapping[str, Any],
) -> CheckedDevice:
    each, other = said
    card = {**map_in(each, "card"), **map_in(other, "card")}
    rows = {**map_in(each, "cases"), **map_in(other, "cases")}
    figures = map_in(notes, "cases")
    cases: Dict[str, CheckedCase] = {
        name: _case(name, row, map_in(figures, name))
        for name, row in rows.items()
        if isinstance(row, Mapping)
    }
    return CheckedDevice(
        node,
        ordinal,
        kind,
        {key: value for key, value in card.items() if value is not None},
        text_in(notes, "uuid"),
        cases,
        map_in(notes, "readings"),
    )


def _case(name: str, row: Mapping[str, Any], figures: Mapping[str, Any]) -> CheckedCase:
    status = text_in(row, "status")
    return CheckedCase(
        name=name,
        status=status if status in STATUSES else "not_run",
        exact=row.get("exact") is not False,
        digest=text_in(row, "digest"),
        dtype=text_in(row, "dtype"),
        shape=text_in(row, "shape"),
        reason=text_in(figures, "reason"),
        repeats=_count(figures, "repeats") or 0,
        wrong_repeats=_count(figures, "wrong_repeats") or 0,
        mismatch=map_in(figures, "mismatch"),
        median_ns=_count(figures, "median_ns"),
        milli_tflops=_count(figures, "milli_tflops"),
        milli_gbps=_count(figures, "milli_gbps"),
    )


def map_in(table: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The map at a key, an empty one where there is none."""
    value = table.get(key)
    return value if isinstance(value, Mapping) else {}


def text_in(table: Mapping[str, Any], key: str) -> str:
    """The text at a key, an empty one where there is none."""
    value = table.get(key)
    return value if isinstance(value, str) else ""


def _count(table: Mapping[str, Any], key: str) -> Optional[int]:
    value = table.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
