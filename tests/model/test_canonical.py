"""Canonical JSON: one text per value, and what is no fact is refused with its key path."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from envaudit.errors import InputError
from envaudit.model.canonical import MAX_DEPTH, MAX_INTEGER, MAX_TEXT, canonical_json, check_fact, digest_of


def test_canonical_json_of_a_map_is_sorted_and_ascii() -> None:
    """Keys are sorted, nothing is indented, and what is not ASCII is escaped."""
    assert '{"a":[true,null,-1],"b":"\\u00e4\\udcff"}' == canonical_json(
        {"b": "ä\udcff", "a": [True, None, -1]}
    )


def test_digest_of_a_value_is_the_sha256_of_its_text() -> None:
    """The digest can be recomputed with any tool that knows sha256."""
    assert hashlib.sha256(b'{"a":1}').hexdigest() == digest_of({"a": 1})


def test_digest_of_true_and_one_differ() -> None:
    """Python calls True and 1 equal; a node that says `true` is not one that says `1`."""
    assert digest_of({"a": True}) != digest_of({"a": 1})


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "fact",
    [None, True, "", "x" * MAX_TEXT, MAX_INTEGER, -MAX_INTEGER, [], {}, _nested(MAX_DEPTH)],
    ids=["null", "true", "empty", "long", "largest", "smallest", "list", "map", "deep"],
)
def test_check_fact_at_the_limit_accepts(fact: Any) -> None:
    """Every type of fact is taken, up to its limit."""
    check_fact(fact, "facts")


@pytest.mark.parametrize(
    ("fact", "expected"),
    [
        ({"a": [0, 1.5]}, "facts.a[1]: expected str, int, bool, null, list or map, got float."),
        ({"a": {2: 1}}, "facts.a: expected a str key, got int."),
        ({"a": (1,)}, "facts.a: expected str, int, bool, null, list or map, got tuple."),
        (b"x", "facts: expected str, int, bool, null, list or map, got bytes."),
        (MAX_INTEGER + 1, "facts: integer out of range."),
        (-MAX_INTEGER - 1, "facts: integer out of range."),
        ("x" * (MAX_TEXT + 1), "facts: text of 65537 characters, at most 65536 are taken."),
        (_nested(MAX_DEPTH + 1), f"facts{'[0]' * MAX_DEPTH}: nested deeper than {MAX_DEPTH}."),
    ],
    ids=["float", "key", "tuple", "bytes", "huge", "negative", "long", "deep"],
)
def test_check_fact_beyond_the_limit_names_the_key_path(fact: Any, expected: str) -> None:
    """What is no fact is refused, and the message leads to it."""
    with pytest.raises(InputError) as caught:
        check_fact(fact, "facts")
    assert expected == str(caught.value)
