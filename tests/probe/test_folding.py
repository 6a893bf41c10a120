"""Devices folded: one row for what they share, one difference for one that deviates."""

from __future__ import annotations

from envaudit.probe.folding import fold


def test_fold_takes_the_majority_and_the_lowest_ordinal_of_equals() -> None:
    """One of three deviates; of two halves the first is what the second deviates from."""
    assert ({"a": 1}, {"1": {"a": 2}}) == fold({0: {"a": 1}, 1: {"a": 2}, 2: {"a": 1}})
    assert ({"a": 2}, {"1": {"a": 1}}) == fold({0: {"a": 2}, 1: {"a": 1}})
    assert ({}, {"1": {"a": 5}}) == fold({0: {"a": None}, 1: {"a": 5}, 2: {"a": None}})
    assert ({}, {}) == fold({})


def test_fold_never_shares_a_state() -> None:
    """Cards that are all lost are each said to be: that is no way for a card to be."""
    assert ({}, {"0": {"state": "lost"}, "1": {"state": "lost"}}) == fold(
        {0: {"state": "lost"}, 1: {"state": "lost"}}
    )
