"""What the hub takes from members and workers, and what it must not reckon with."""

from __future__ import annotations

from typing import Any

import pytest

from envaudit.checks.collectives import sound
from envaudit.checks.collectives.dealing import Here
from envaudit.checks.collectives.layout import Layout

NAME = "all_gather/fp32/1021+0"
EVIDENCE = {
    "wrong": 9,
    "mismatch": None,
    "sources": {"2": 9},
    "residual": {"kind": "", "ranks": []},
    "guards": 0,
}
OUTCOME = {
    "item": NAME,
    "status": "wrong",
    "reason": "9 elements wrong",
    "digest": "0123456789abcdef",
    "shortest_ns": 1000,
    "median_ns": 1000,
    "size_bytes": 4084,
    "wrong": EVIDENCE,
}
HERE = {"facts": {}, "layout": Layout().to_json(), "before_s": 0, "own": "10.0.0.1", "hub": "10.0.0.2"}


def test_outcome_of_a_worker_is_taken_as_it_is() -> None:
    """But for the bits of the first wrong element, which name nobody."""
    told = {**EVIDENCE}
    del told["mismatch"]
    assert {**OUTCOME, "wrong": told} == sound.outcome(OUTCOME, {NAME}, 4)


@pytest.mark.parametrize(
    "change",
    [
        {"item": "all_gather/fp32/1022+0"},
        {"item": []},
        {"status": "fine"},
        {"status": None},
        {"shortest_ns": "fast"},
        {"shortest_ns": -1},
        {"shortest_ns": 10**30},
        {"median_ns": None},
        {"size_bytes": 0.5},
        {"size_bytes": True},
        {"wrong": None},
        {"wrong": {}},
        {"wrong": {**EVIDENCE, "sources": {"4": 1}}},
        {"wrong": {**EVIDENCE, "sources": {"-1": 1}}},
        {"wrong": {**EVIDENCE, "sources": ["2"]}},
        {"wrong": {**EVIDENCE, "residual": {"kind": "dropped", "ranks": [4]}}},
        {"wrong": {**EVIDENCE, "residual": None}},
    ],
)
def test_outcome_that_no_worker_tells_is_refused(change: dict[str, Any]) -> None:
    """It would end in a figure or in a name."""
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        sound.outcome({**OUTCOME, **change}, {NAME}, 4)


@pytest.mark.parametrize(
    "change",
    [
        {"layout": {**Layout().to_json(), "devices": ["cuda:x"]}},
        {"layout": {**Layout().to_json(), "devices": ["cuda:-7"]}},
        {"layout": {**Layout().to_json(), "devices": ["tpu:0"]}},
        {"facts": {"gpus": 5}},
        {"facts": {"gpus": [5]}},
        {"facts": {"torch": ["2.9.0"]}},
        {"facts": {"interface": "eth0"}},
        {"facts": {"interface": {"name": "eth0", "address": "node01"}}},
        {"facts": {"busy": {"who": 1}}},
        {"own": "node01"},
        {"own": "no such host\0"},
        {"hub": None},
    ],
)
def test_first_word_that_no_supervisor_says_is_refused(change: dict[str, Any]) -> None:
    """The hub would fail over it, or wait for a resolver."""
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        Here.from_json({**HERE, **change})


def test_first_word_is_cut_where_it_is_long() -> None:
    """It is said again in a result that goes to everybody."""
    here = Here.from_json({**HERE, "facts": {"torch": "2" * 10**5, "other": "x" * 10**5}})
    assert "2" * sound.TEXT_MAX == here.facts["torch"]
    assert "other" not in here.facts


def test_first_word_of_a_node_with_a_scoped_address_is_taken() -> None:
    """A link-local address names its interface."""
    here = Here.from_json({**HERE, "own": "fe80::1%eth0", "facts": {"interface": None}})
    assert "fe80::1%eth0" == here.own


@pytest.mark.parametrize("number", [0, -1, 65536, 10**30, "80", True, 1.5, None])
def test_port_that_cannot_be_connected_to_is_refused(number: Any) -> None:
    """Connecting to it would raise on every node that is told it."""
    with pytest.raises(ValueError, match="a port that is none"):
        sound.port(number)


def test_device_is_told_in_words_and_numbers_alone() -> None:
    """However much of it there is."""
    told = sound.device({"name": "cpu", "flags": {"A": 1}, "deep": [[{}]], "cuda": None, "count": 0})
    assert {"name": "cpu", "flags": {"A": "1"}, "deep": "[[{}]]", "cuda": None, "count": 0} == told
    assert len(sound.device({str(place): place for place in range(10**4)})) < 100
