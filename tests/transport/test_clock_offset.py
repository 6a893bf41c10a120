"""The arithmetic of pings: the smallest round trip, its bound, and what is not taken for a pong."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from typing import List, Tuple, Union

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envaudit.model.clockoffset import NOTE, Offset, offset_of
from envaudit.model.fingerprint import Fingerprint
from envaudit.model.section import Section
from envaudit.transport.boot import PONG
from envaudit.transport.clockoffset import (
    MAX_HEARD_BYTES,
    PASSING,
    PATIENCE_NS,
    Effort,
    Measure,
    Sample,
    Timebase,
    noted,
)

EPOCH_NS = 1_700_000_000_000_000_000
MS_NS = 1_000_000


@dataclass(frozen=True)
class Hand(Timebase):
    """A timebase that is moved by hand."""

    at: List[int] = None  # type: ignore[assignment]

    def now_ns(self) -> int:
        """What it was moved to."""
        return self.at[0]


def hand() -> Hand:
    """At the beginning of time."""
    return Hand("run", 0, 0, [EPOCH_NS])


def pong(time_ns: Union[int, str], word: bytes) -> bytes:
    """What an honest node says to a ping."""
    return PONG + f"{time_ns} ".encode() + word


def play(trips: List[Tuple[int, int]], ahead_ns: int = 0, effort: Effort = PASSING) -> Measure:
    """A measure of a node that is ahead, whose pings take these times there and back."""
    base = hand()
    measure = Measure(base, effort)
    ping = measure.begin()
    for there_ns, back_ns in trips:
        said = pong(base.at[0] + there_ns + ahead_ns, ping)
        base.at[0] += there_ns + back_ns
        ping = measure.hear(said, base.at[0])
        if measure.done:
            break
    return measure


TRIPS = st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), min_size=1, max_size=70)


@given(trips=TRIPS, ahead_ns=st.integers(-(10**17), 10**17))
def test_offset_is_never_further_from_the_truth_than_its_bound(
    trips: List[Tuple[int, int]], ahead_ns: int
) -> None:
    """However the way there and the way back differ."""
    outcome = play(trips, ahead_ns, Effort(64, 64, 0)).outcome()
    assert isinstance(outcome, Sample)
    assert abs(outcome.offset_ns - ahead_ns) <= outcome.bound_ns


def test_smallest_round_trip_wins() -> None:
    """Two slow pings and a quick one between them."""
    measure = play([(9 * MS_NS, MS_NS), (50_000, 50_000), (MS_NS, 9 * MS_NS)], 3_200 * MS_NS)
    outcome = measure.outcome()
    assert isinstance(outcome, Sample)
    assert (100_000, 3_200 * MS_NS, 50_001) == (outcome.round_trip_ns, outcome.offset_ns, outcome.bound_ns)


@pytest.mark.parametrize(
    ("trip_ns", "expected"), [(100_000, PASSING.least), (2 * MS_NS, PASSING.most), (PATIENCE_NS, 2)]
)
def test_pings_are_as_many_as_are_of_use(trip_ns: int, expected: int) -> None:
    """Few over a quick channel, more over a slow one, and no more once patience is over."""
    measure = play([(trip_ns // 2, trip_ns // 2)] * 20)
    assert (True, expected) == (measure.done, measure.count)


def test_clock_that_is_set_between_two_pings_is_not_known() -> None:
    """No offset is true of both."""
    base = hand()
    measure = Measure(base, Effort(2, 2, 0))
    ping = measure.begin()
    for ahead_ns in (0, 5 * MS_NS):
        base.at[0] += MS_NS
        ping = measure.hear(pong(base.at[0] + ahead_ns, ping), base.at[0])
    assert "the clock was set while it was measured" == measure.outcome()


def test_clocks_that_drift_as_clocks_may_are_known() -> None:
    """Two clocks that are disciplined by 500 ppm each may move by half a millisecond in half a second."""
    base = hand()
    measure = Measure(base, Effort(2, 2, 0))
    ping = measure.begin()
    for ahead_ns in (0, 499_000):
        base.at[0] += 500 * MS_NS if ahead_ns else 0
        ping = measure.hear(pong(base.at[0] + ahead_ns, ping), base.at[0])
    assert isinstance(measure.outcome(), Sample)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"Welcome to the cluster\n",
        PONG + b"5 \n",
        PONG + b"5 0011223344556677\n",
        PONG + b"5 {word} again\n",
        PONG + b"{word} 5\n",
        b"{word}\n",
        PONG + b"5 {word}",
        b"\0" * 1000 + b"\n",
    ],
)
def test_what_is_no_pong_counts_for_nothing(said: bytes) -> None:
    """Noise, guesses and halves; the node is still waited for."""
    base = hand()
    measure = Measure(base, PASSING)
    word = measure.begin().strip()
    assert b"" == measure.hear(said.replace(b"{word}", word), base.at[0])
    assert (0, False) == (measure.count, measure.done)


@pytest.mark.parametrize("time", ["-1", "1e18", "9" * 19, "9" * 400, "0x10", "١٢"])
def test_absurd_time_ends_the_measure(time: str) -> None:
    """A node that says it once is not asked again."""
    base = hand()
    measure = Measure(base, PASSING)
    assert b"" == measure.hear(pong(time, measure.begin()), base.at[0])
    assert (True, "no answer to a ping") == (measure.done, measure.outcome())


def test_pong_that_is_said_twice_or_early_counts_once() -> None:
    """Its word is spent; a guess at the next one is none."""
    base = hand()
    measure = Measure(base, PASSING)
    first = measure.begin()
    base.at[0] += MS_NS
    second = measure.hear(pong(1, first) * 3 + pong(2, b"00" * 8 + b"\n"), base.at[0])
    assert (1, True) == (measure.count, bool(second.strip()))
    assert b"" == measure.hear(pong(3, first), base.at[0])
    assert 1 == measure.count
    assert measure.hear(pong(4, second), base.at[0])
    assert 2 == measure.count


def test_pong_in_pieces_behind_a_prompt_is_one() -> None:
    """A pipe may break a line anywhere, and a shell may leave a prompt before it."""
    base = hand()
    measure = Measure(base, PASSING)
    said = b"[user@node ~]$ " + pong(7, measure.begin())
    assert not any(measure.hear(said[place : place + 1], base.at[0]) for place in range(len(said) - 1))
    assert measure.hear(said[-1:], base.at[0])


def test_flood_ends_the_measure_and_is_not_kept() -> None:
    """A node that babbles instead is let go."""
    measure = Measure(hand(), PASSING)
    measure.begin()
    for _ in range(MAX_HEARD_BYTES // 1000 + 1):
        measure.hear(b"x" * 1000, EPOCH_NS)
    assert measure.done
    assert len(measure._partial) <= 1000


def test_setting_this_machines_clock_moves_nothing() -> None:
    """What counts is the time since the beginning, on the clock that nobody sets."""
    timebase = Timebase("run", EPOCH_NS)
    before = timebase.now_ns()
    assert 0 <= timebase.now_ns() - before < 10**9


@given(st.lists(st.integers(0, 2 * MS_NS), min_size=3, max_size=60))
def test_start_put_aside_between_its_readings_stays_inside_its_bound(pauses: List[int]) -> None:
    """Whatever passes between any two readings of the clocks, the truth is no further away than is said."""
    pause = itertools.cycle(pauses)
    passed = [0]

    def reading(ahead_ns: int) -> int:
        now_ns = passed[0] + ahead_ns
        passed[0] += next(pause)
        return now_ns

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: reading(EPOCH_NS))
        patch.setattr(time, "monotonic_ns", lambda: reading(0))
        timebase = Timebase.start()
    assert abs(timebase.ahead_ns - EPOCH_NS) <= timebase.bound_ns
    assert timebase.bound_ns <= max(pauses) + 1


def test_bound_of_the_timebase_is_part_of_every_offset() -> None:
    """All nodes of a run are held against it."""
    base = Hand("run", 0, 700, [EPOCH_NS])
    found = [noted(clock_of(), each, play([(50_000, 50_000)] * 3)) for each in (hand(), base)]
    exact, wide = (offset_of(each) for each in found)
    assert isinstance(exact, Offset)
    assert Offset(exact.offset_ns, exact.bound_ns + 700) == wide


def clock_of(**notes: object) -> Fingerprint:
    """A node's answer with its section clock."""
    section = Section("clock", 1, "ok", {"service": "chrony"}, dict(notes))  # type: ignore[arg-type]
    return Fingerprint("node01", "probe", "2026-11-30T10:00:00Z", "0.1.0", {"clock": section})


def test_note_of_a_measure_leaves_facts_and_digest_alone() -> None:
    """Two healthy nodes differ in it."""
    before = clock_of(stratum=3)
    after = noted(before, hand(), play([(50_000, 50_000)] * 3, 70))
    assert before.digest == after.digest
    offset = offset_of(after)
    assert offset is not None
    assert (70, True) == (offset.offset_ns, 50_000 < offset.bound_ns < 50_100)
    assert 3 == after.sections["clock"].notes["stratum"]


def test_nodes_own_words_about_its_offset_are_dropped() -> None:
    """It cannot say that it is right, nor that nobody may know."""
    lie = {"run": "run", "offset_ns": 0, "bound_ns": 1}
    after = noted(clock_of(against_controller=lie), hand(), "no way to it")
    assert {"run": "run"} == after.sections["clock"].notes[NOTE]
    assert {NOTE: "no way to it"} == after.sections["clock"].notes["not_examined"]
    assert offset_of(after) is None


@pytest.mark.parametrize(
    ("resolution", "wider_ns"), [(4 * MS_NS, 4 * MS_NS), (-5, 1), (10**18, 1), ("much", 1), (None, 1)]
)
def test_coarse_clock_widens_its_bound(resolution: object, wider_ns: int) -> None:
    """By its own word, which can do no more than that."""
    offset = offset_of(noted(clock_of(resolution_ns=resolution), hand(), play([(50_000, 50_000)] * 3)))
    assert offset is not None
    assert 50_001 + wider_ns == offset.bound_ns - 1  # the monotonic clock of this machine: 1 ns


@pytest.mark.parametrize(
    "note",
    [{}, {"offset_ns": 5}, {"offset_ns": "5", "bound_ns": 1}, {"offset_ns": 5, "bound_ns": -1}, [], None],
)
def test_note_that_is_none_is_no_offset(note: object) -> None:
    """A stored snapshot may say anything."""
    assert offset_of(clock_of(against_controller=note)) is None


def test_fingerprint_without_the_section_stays_as_it_is() -> None:
    """Nobody asked for the clock."""
    bare = Fingerprint("node01", "probe", "2026-11-30T10:00:00Z", "0.1.0", {})
    assert bare is noted(bare, hand(), "whatever")


def test_offset_says_what_is_certain() -> None:
    """Beyond the bound, and up to it."""
    assert (70, 130) == (Offset(-100, 30).at_least_ns, Offset(-100, 30).at_most_ns)
    assert (0, 40) == (Offset(10, 30).at_least_ns, Offset(10, 30).at_most_ns)
