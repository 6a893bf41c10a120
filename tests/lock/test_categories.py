"""Categories of locked packages; conda-lock's own function is the second opinion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from conda_lock.lockfile import apply_categories
from conda_lock.lockfile.v2prelim.models import HashModel, LockedDependency
from conda_lock.models.lock_spec import VersionedDependency
from hypothesis import given, settings
from hypothesis import strategies as st

from envaudit.lock.categories import Key, Root, categories_of
from envaudit.lock.names import TABLE

Graph = Mapping[str, Sequence[str]]


def ours(graph: Graph, roots: Sequence[tuple[str, str]]) -> dict[str, set[str]]:
    """By `categories_of`."""
    needs = {Key("conda", name): [Key("conda", other) for other in others] for name, others in graph.items()}
    found = categories_of([Root(Key("conda", name), category) for name, category in roots], needs)
    return {key.name: set(categories) for key, categories in found.items()}


def theirs(graph: Graph, roots: Sequence[tuple[str, str]]) -> dict[str, set[str]]:
    """By conda-lock, which leaves out what no request leads to."""
    planned = {
        name: LockedDependency(
            name=name,
            version="1",
            manager="conda",
            platform="linux-64",
            dependencies=dict.fromkeys(others, ""),
            url="https://conda.example/x.conda",
            hash=HashModel(md5="0" * 32),
        )
        for name, others in graph.items()
    }
    requested = {
        name: VersionedDependency(name=name, version="", category=category) for name, category in roots
    }
    apply_categories(requested=requested, planned=planned, mapping_url=f"file://{TABLE}")
    return {name: each.categories or {"main"} for name, each in planned.items()}


@pytest.mark.parametrize(
    ("graph", "roots", "expected"),
    [
        ({"a": ["b"], "b": []}, [("a", "main")], {"a": {"main"}, "b": {"main"}}),
        ({"a": ["c"], "b": ["c"], "c": []}, [("a", "main"), ("b", "dev")], {"c": {"main"}, "b": {"dev"}}),
        ({"a": ["c"], "b": ["c"], "c": []}, [("a", "test"), ("b", "dev")], {"c": {"dev", "test"}}),
        ({"a": ["b"], "b": ["a"]}, [("a", "dev")], {"a": {"dev"}, "b": {"dev"}}),
        ({"a": [], "alone": []}, [("a", "dev")], {"alone": {"main"}}),
        ({"a": ["__glibc", "gone"]}, [("a", "dev"), ("missing", "dev")], {"a": {"dev"}}),
    ],
)
def test_package_has_the_categories_of_the_requests_that_lead_to_it(
    graph: Graph, roots: Sequence[tuple[str, str]], expected: dict[str, set[str]]
) -> None:
    """Main alone where one of them is main; what nothing leads to is main as well."""
    found = ours(graph, roots)
    assert expected == {name: found[name] for name in expected}


_NAMES = "abcdef"


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Without circles: conda-lock's function does not come back from one that leads to a request."""
    return {
        name: sorted(draw(st.sets(st.sampled_from(_NAMES[place + 1 :]), max_size=3))) if place < 5 else []
        for place, name in enumerate(_NAMES)
    }


@settings(max_examples=100, deadline=None)
@given(
    graph=graphs(),
    roots=st.dictionaries(st.sampled_from(_NAMES), st.sampled_from(["main", "dev", "test"]), min_size=1),
)
def test_categories_are_those_of_conda_lock(graph: Graph, roots: dict[str, str]) -> None:
    """On any graph of packages and any requests."""
    pairs = list(roots.items())
    assert theirs(graph, pairs) == ours(graph, pairs)
