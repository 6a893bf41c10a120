"""Laws of foreign reports: read or refused, and what is cut off is never told as absent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envaudit.errors import InputError
from envaudit.sources import recognised, sections_of
from envaudit.sources.decoding import decoded
from tests.sources.samples import BY_KIND, LINUX, all_kinds, read

KINDS = all_kinds()
NAMES = st.sampled_from(sorted(BY_KIND))


@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """Nothing but an InputError leaves the room."""
    try:
        text = decoded(data, "x")
        sections_of(recognised(text, "x", list(KINDS.values())), text, "x", LINUX)
    except InputError:
        pass


@given(NAMES, st.data())
def test_report_cut_off_anywhere_is_read_or_refused(name: str, data: st.DataObject) -> None:
    """Heads, tails and middles."""
    text = BY_KIND[name]
    begin = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(begin, len(text)))
    for kind in KINDS.values():
        try:
            sections_of(kind, text[begin:end], "x", LINUX)
        except InputError:
            pass


@given(NAMES, NAMES, st.text(max_size=20), st.data())
def test_report_with_garbage_inside_is_read_or_refused_by_its_kind(
    name: str, other: str, garbage: str, data: st.DataObject
) -> None:
    """A few letters, anywhere; another report's text where it stands."""
    text = BY_KIND[name]
    place = data.draw(st.integers(0, len(text)))
    spoilt = text[:place] + garbage + text[place + data.draw(st.integers(0, 20)) :]
    try:
        sections_of(KINDS[name], spoilt, "x", LINUX)
        sections_of(KINDS[other], spoilt, "x", LINUX)
    except InputError:
        pass


@given(st.integers(0, BY_KIND["collect_env"].count("\n")))
def test_head_of_a_paste_says_nothing_that_the_whole_does_not(lines: int) -> None:
    """A cut leaves facts out; it makes none, and calls no subject absent."""
    whole = read(BY_KIND["collect_env"])
    head = "\n".join(BY_KIND["collect_env"].split("\n")[:lines])
    try:
        cut = read(head)
    except InputError:
        return
    for name, section in cut.items():
        assert "partial" == section.status
        missing = [key for key in section.facts if key not in whole[name].facts]
        assert [] == missing
        # Lists grow with the lines; everything else is as in the whole.
        for key in set(section.facts) - {"count", "each", "devices", "packages", "distributions", "cpu"}:
            assert whole[name].facts[key] == section.facts[key]


@pytest.mark.parametrize("name", sorted(BY_KIND))
def test_reading_twice_gives_equal_digests(name: str) -> None:
    """Nothing of the moment is among the facts."""
    digests = [{k: v.digest for k, v in read(BY_KIND[name]).items()} for _ in range(2)]
    assert digests[0] == digests[1]
