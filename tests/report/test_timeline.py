"""The history of a node: what changed stands out among what did not."""

from __future__ import annotations

from typing import List

import pytest

from envaudit.report import Moment
from envaudit.report.lines import plain_text
from envaudit.report.timeline import timeline_lines

FIRST = Moment("n1", "2026-11-30T00:00:00Z", (), (), first=True)
LAST = Moment("n1", "2026-11-30T23:00:00Z", ("good",), (), first=False)


def quiet(count: int) -> List[Moment]:
    """Snapshots of an hour each of which nothing is to be said."""
    return [
        Moment("n1", f"2026-11-30T{hour:02d}:00:00Z", (), (), first=False) for hour in range(1, count + 1)
    ]


@pytest.mark.parametrize(
    ("count", "verbose", "expected"),
    [
        (3, False, [f"  2026-11-30T{hour:02d}:00:00Z  unchanged" for hour in (1, 2, 3)]),
        (4, False, ["  4 more until 2026-11-30T04:00:00Z  unchanged"]),
        (4, True, [f"  2026-11-30T{hour:02d}:00:00Z  unchanged" for hour in (1, 2, 3, 4)]),
    ],
)
def test_many_snapshots_without_a_change_take_one_line(
    count: int, verbose: bool, expected: List[str]
) -> None:
    """Whoever looks for the day on which it broke need not read a month of hours."""
    lines = [plain_text(each) for each in timeline_lines([FIRST, *quiet(count), LAST], verbose)]
    assert ["n1", "  2026-11-30T00:00:00Z  first snapshot", *expected] == lines[:-1]
    assert "  2026-11-30T23:00:00Z  [good]  unchanged" == lines[-1]
