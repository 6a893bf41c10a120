"""Values side by side."""

from __future__ import annotations

from typing import List, Tuple

import pytest

from envaudit.model import Drift, Group
from envaudit.model.canonical import Fact
from envaudit.report.values import differences, value_text, value_texts


def drift_of(*values: Fact) -> Drift:
    """A drift of one node for each value."""
    groups = tuple(Group(value, (f"n{place}",)) for place, value in enumerate(values))
    return Drift("net/ports", "changed", groups, (), "none")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2.21.5", "2.21.5"),
        ("", '""'),
        (" x", '" x"'),
        (None, "null"),
        (True, "true"),
        (700000, "700000"),
        (["sm_80", 1], '["sm_80",1]'),
        ({"version": "1.0", "build": "py_0", "md5": "00"}, "1.0 py_0"),
        ({"version": "1.0"}, "1.0"),
        ({"version": 1}, '{"version":1}'),
        ({"value": "Ring", "origin": "environment"}, "Ring"),
        ({"value": ""}, '""'),
    ],
)
def test_value_text_is_one_clear_line(value: Fact, expected: str) -> None:
    """Text is bare where that is clear; packages and settings speak by their version or value."""
    assert expected == value_text(value)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", 1], ['"1"', "1"]),
        (["null", None], ['"null"', "null"]),
        (
            [{"version": "1", "md5": "0"}, {"version": "1", "md5": "1"}],
            ['{"md5":"0","version":"1"}', '{"md5":"1","version":"1"}'],
        ),
    ],
)
def test_value_texts_of_values_that_differ_differ(values: List[Fact], expected: List[str]) -> None:
    """Two equal texts side by side would be a riddle."""
    assert expected == value_texts(values)


def test_value_texts_keep_the_difference_of_long_values() -> None:
    """What two walls of text share goes first."""
    long = "/opt/lib:" * 20
    one, other = value_texts([f"{long}a:{long}", f"{long}bc:{long}"], 30)
    assert 20 < len(one) <= len(other) <= 30
    assert ":a:" in one
    assert ":bc:" in other


def test_value_texts_leave_the_short_one_of_two_whole() -> None:
    """Only what is long is cut."""
    assert "Ring" == value_texts(["Ring", "x" * 100], 40)[0]


def test_value_texts_keep_both_ends_of_a_long_value_alone() -> None:
    """Where the other nodes have none, it does not differ from anything: its beginning says what it is."""
    (text,) = value_texts([{"sitecustomize": "0" * 64}], limit=40)
    assert '{"sitecustomize":"00…' == text[:21]
    assert '00"}' == text[-4:]
    assert 40 == len(text)


def test_value_texts_without_limit_are_whole() -> None:
    """--verbose."""
    assert ["x" * 5000, "y"] == value_texts(["x" * 5000, "y"])


def test_value_texts_that_no_cut_tells_apart_stay_whole() -> None:
    """Better a long line than two equal ones."""
    one, other = f"{'a' * 50}1{'b' * 50}1{'c' * 50}", f"{'a' * 50}2{'b' * 50}2{'c' * 50}"
    texts = value_texts([one, other], 20)
    assert texts[0] != texts[1]


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        (
            [[{"mtu": 1}, {"mtu": 1}, {"mtu": 1}], [{"mtu": 2}, {"mtu": 1}, {"mtu": 2}]],
            [("net/ports[0,2]/mtu", ("1", "2"))],
        ),
        (
            [[{"mtu": 1, "up": True}], [{"mtu": 2, "up": None}]],
            [("net/ports[0]/mtu", ("1", "2")), ("net/ports[0]/up", ("true", "null"))],
        ),
        ([[{"a": 1}], [{"a": 1}, {"a": 1}]], [("net/ports", ("1 entry", "2 entries"))]),
        ([[{"a": 1}], ["a"]], [("net/ports", ('[{"a":1}]', '["a"]'))]),
        ([[{"a/b": 1}], [{"a/b": 2}]], [("net/ports[0]/a~1b", ("1", "2"))]),
    ],
)
def test_differences_of_tables_are_their_cells(
    tables: List[Fact], expected: List[Tuple[str, Tuple[str, ...]]]
) -> None:
    """Rows that differ alike stand together; tables of other lengths are counted."""
    assert expected == [tuple(each) for each in differences(drift_of(*tables), 0)]


def test_differences_of_tables_show_a_null_cell_that_is_absent_elsewhere() -> None:
    """Null and not there are two things also inside a table."""
    (cell,) = differences(drift_of([{"a": None, "b": 1}], [{"b": 1}]), 0)
    assert ("net/ports[0]/a", ("null", "absent")) == tuple(cell)


def test_differences_of_presence_alone_say_present_and_absent() -> None:
    """A whole map that is there is not printed whole."""
    drift = Drift("conda", "missing", (Group(None, ("a",)), Group(None, ("b",), "absent")), (), "none")
    assert [("conda", ("present", "absent"))] == [tuple(each) for each in differences(drift, 0)]
