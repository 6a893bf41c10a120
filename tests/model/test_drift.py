"""Drifts: their paths, and which nodes stand out."""

from __future__ import annotations

from typing import Tuple

import pytest

from envaudit.model import Drift, Group, join_path, split_path

DRIFT = Drift(
    path="conda/packages/numpy/build",
    kind="changed",
    groups=(Group("py311_0", ("node01", "node02")), Group("py311_1", ("node03",))),
    reference=("node01", "node02"),
    basis="majority 2/3",
)


def test_drift_of_a_fact_lies_in_the_first_segment() -> None:
    """The section is the start of the path."""
    assert "conda" == DRIFT.section


def test_drift_with_a_reference_names_the_others() -> None:
    """The nodes of the reference group are no outliers."""
    assert ("node03",) == DRIFT.outliers


def test_drift_on_a_tie_names_all_nodes() -> None:
    """Without a reference nobody is right."""
    tie = Drift("host/kernel", "changed", (Group("a", ("n1",)), Group("b", ("n2",))), (), "none")
    assert ("n1", "n2") == tie.outliers


@pytest.mark.parametrize(
    ("segments", "path"),
    [
        (("gpu", "driver"), "gpu/driver"),
        (("packages", "a/b"), "packages/a~1b"),
        (("packages", "~1"), "packages/~01"),
        (("packages", ""), "packages/"),
    ],
)
def test_path_of_any_key_is_escaped_and_read_back(segments: Tuple[str, ...], path: str) -> None:
    """A slash in a name does not make another path of it (RFC 6901)."""
    assert path == join_path(*segments)
    assert segments == split_path(path)
