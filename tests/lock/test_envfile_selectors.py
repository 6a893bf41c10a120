"""Comment selectors, against conda-lock's own reading of them."""

from __future__ import annotations

import logging

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from envaudit.lock.selectors import KNOWN, platforms_of, selector_in

COMMENTS = st.lists(
    st.sampled_from(["#", "[", "]", "(", ")", " ", "linux", "osx", "win", "not ", "a"]), max_size=12
).map("".join)


def taken_by_conda_lock(line: str, platform: str) -> bool:
    """Whether conda-lock keeps a line on a platform."""
    from conda_lock.src_parser.selectors import filter_platform_selectors

    logging.getLogger("conda_lock").setLevel(logging.CRITICAL)
    return bool(list(filter_platform_selectors(line, platform)))


@settings(max_examples=300, deadline=None)
@given(COMMENTS, st.sampled_from(["linux-64", "osx-arm64", "win-64"]))
@example("[linux]", "osx-arm64")
@example("[linux] (or so)", "osx-arm64")
@example("(see [1]) [linux]", "osx-arm64")
@example("[a] [linux] [", "osx-arm64")
def test_line_is_kept_where_conda_lock_keeps_it(comment: str, platform: str) -> None:
    """Any comment: a line without a selector counts everywhere, any other on its platforms."""
    selector = selector_in(f"  # {comment}")
    kept = selector is None or platform in platforms_of(selector)
    assert taken_by_conda_lock(f"  - a  # {comment}", platform) == kept


@pytest.mark.parametrize("selector", KNOWN)
def test_known_selector_means_some_platform(selector: str) -> None:
    """And no other word does."""
    assert platforms_of(selector)
    assert () == platforms_of(f"not {selector}")
