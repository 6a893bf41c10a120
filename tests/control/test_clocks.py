"""Offsets with bounds that hold, whatever a member says about its clock."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envaudit.control.clocks import Pings, Sample, pong


def measured(offset_ns: int, *, set_by_ns: int = 0) -> Pings:
    """Pings answered by this machine's clock, shifted, and set once between."""
    pings = Pings(time.time_ns() - time.monotonic_ns())
    count = 0
    while not pings.done:
        word, said_ns, step_ns = pong(pings.ping())
        assert pings.pong([word, said_ns + offset_ns + (set_by_ns if count else 0), step_ns])
        count += 1
    assert 3 <= count <= 8
    return pings


@pytest.mark.parametrize("offset_ns", [0, 3_000_000_000, -3_600_000_000_000, 1])
def test_offset_is_known_to_its_bound(offset_ns: int) -> None:
    """However far the clock is off."""
    pings = measured(offset_ns)
    assert pings.offset_ns is not None
    assert pings.bound_ns is not None
    # This machine's own clock may be slewed meanwhile, at most by 500 parts per million.
    assert abs(pings.offset_ns - offset_ns) <= pings.bound_ns + 1_000_000
    assert pings.bound_ns < 1_000_000_000


def test_clock_that_is_set_meanwhile_is_not_known() -> None:
    """Rather than wrong."""
    pings = measured(0, set_by_ns=5_000_000_000)
    assert pings.offset_ns is None
    assert pings.bound_ns is None


def test_crowd_is_measured_with_the_fewest_pings() -> None:
    """Among a thousand that join at once more of them say no more."""
    pings = Pings(time.time_ns() - time.monotonic_ns(), members=1024)
    for _ in range(3):
        assert not pings.done
        word = pings.ping()
        time.sleep(0.002)
        assert pings.pong(pong(word))
    assert pings.done
    assert pings.bound_ns is not None
    assert pings.bound_ns > 1_000_000


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**9), st.integers(-(10**12), 10**12))
def test_truth_is_within_the_bound_however_the_ways_differ(
    left_ns: int, way_there_ns: int, way_back_ns: int, offset_ns: int
) -> None:
    """The law of the method."""
    read_ns = left_ns + way_there_ns
    sample = Sample(left_ns, read_ns + offset_ns, read_ns + way_back_ns)
    assert abs(sample.offset_ns - offset_ns) <= sample.bound_ns


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        "word",
        ["another word", 1, 1],
        ["WORD", 1],
        ["WORD", "1", 1],
        ["WORD", 1.5, 1],
        ["WORD", True, 1],
        ["WORD", 1, None],
        ["WORD", 0, 1],
        ["WORD", -1, 1],
        ["WORD", 2**63, 1],
    ],
)
def test_pong_that_is_none_counts_for_nothing(body: Any) -> None:
    """Of another ping, without a time, with one that no clock says."""
    pings = Pings(0)
    word = pings.ping()
    if isinstance(body, list) and body and body[0] == "WORD":
        body = [word, *body[1:]]
    assert not pings.pong(body)


def test_pong_counts_once_and_never_before_its_ping() -> None:
    """A member cannot look more precise than it is."""
    pings = Pings(0)
    assert not pings.pong(["", 1, 1])
    word = pings.ping()
    assert pings.pong(pong(word))
    assert not pings.pong(pong(word))


def test_coarse_clock_widens_the_bound_up_to_a_second() -> None:
    """A member's word about its clock makes the bound wider, never narrower."""
    bounds = []
    for step_ns in (-5, 1, 4_000_000, 10**18):
        pings = Pings(time.time_ns() - time.monotonic_ns())
        while not pings.done:
            word, said_ns, _ = pong(pings.ping())
            pings.pong([word, said_ns, step_ns])
        assert pings.bound_ns is not None
        bounds.append(pings.bound_ns)
    assert min(bounds) >= 1
    assert bounds[2] >= 4_000_000
    assert 1_000_000_000 <= bounds[3] < 2_000_000_000
