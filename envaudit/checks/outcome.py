"""What one operation came to on one device."""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Optional

from envaudit.checks.bits import Mismatch

# The right bits, every time.
OK = "ok"
# Other bits than the right ones.
WRONG = "wrong"
# Two runs on the same data, other bits; what is right is not known for this operation.
UNSTABLE = "unstable"
# An exception; `reason` has its text.
ERROR = "error"
# Ended from outside, because it did not return in time.
TIMEOUT = "timeout"
# Not tried; `reason` says why. Never a pass.
NOT_RUN = "not_run"

STATUSES = (OK, WRONG, UNSTABLE, ERROR, TIMEOUT, NOT_RUN)


class Outcome(NamedTuple):
    """One case's result; JSON of strings and integers alone, no floats.

    Attributes:
        case: its name, `gemm/bf16/spread`.
        status: one of STATUSES.
        reason: why, for every status but `ok`; empty there.
        digest: of the last result's bits, 16 hexadecimal digits (`counterhash.digest`); of several
            results, their digests mixed. Equal on all devices where the case is exact, and within one
            group of alike nodes where it is not.
        exact: whether the right answer is known to the bit.
        repeats: how often it ran and was compared.
        wrong_repeats: how many of those differed.
        mismatch: how the first of them differed.
        median_ns: of the repeats, the operation alone.
        milli_tflops: 10⁹ operations a second, from the median, where the case counts them.
        milli_gbps: 10⁶ bytes a second, likewise; of the memory and copy tests, what they moved.
        tested_bytes: how much memory was tested, or copied at once.
    """

    case: str
    status: str
    reason: str = ""
    digest: str = ""
    exact: bool = True
    repeats: int = 0
    wrong_repeats: int = 0
    mismatch: Optional[Mismatch] = None
    median_ns: Optional[int] = None
    milli_tflops: Optional[int] = None
    milli_gbps: Optional[int] = None
    tested_bytes: Optional[int] = None

    def to_json(self) -> Dict[str, Any]:
        """A row for one line of JSON."""
        row = dict(self._asdict())
        row["mismatch"] = self.mismatch.to_json() if self.mismatch else None
        return row

    @classmethod
    def from_json(cls, row: Dict[str, Any]) -> Outcome:
        """The inverse of `to_json`.

        Raises:
            KeyError, TypeError, ValueError: the row was not written by it.
        """
        if row["status"] not in STATUSES:
            raise ValueError(f"status {row['status']!r} is none of {', '.join(STATUSES)}")
        return cls(
            case=str(row["case"]),
            status=str(row["status"]),
            reason=str(row["reason"]),
            digest=str(row["digest"]),
            exact=bool(row["exact"]),
            repeats=int(row["repeats"]),
            wrong_repeats=int(row["wrong_repeats"]),
            mismatch=Mismatch.from_json(row["mismatch"]) if row["mismatch"] else None,
            median_ns=_optional(row["median_ns"]),
            milli_tflops=_optional(row["milli_tflops"]),
            milli_gbps=_optional(row["milli_gbps"]),
            tested_bytes=_optional(row.get("tested_bytes")),
        )


def milli_tflops(operations: int, duration_ns: int) -> int:
    """Operations in a time as thousandths of 10¹² a second."""
    return operations // max(1, duration_ns)


def milli_gbps(count_bytes: int, duration_ns: int) -> int:
    """Bytes in a time as thousandths of 10⁹ a second."""
    return count_bytes * 1000 // max(1, duration_ns)


def _optional(value: Any) -> Optional[int]:
    return None if value is None else int(value)
