"""Node sets in their plain form: what is folded, and what is no node set."""

from __future__ import annotations

import tracemalloc
from typing import List

import pytest

from envaudit.errors import UsageError
from envaudit.model import nodeset
from envaudit.model.nodeset import expand, fold, natural_key


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], ""),
        (["login"], "login"),
        (["node03", "node01", "node02"], "node[01-03]"),
        (["node01", "node02", "node04"], "node[01-02,04]"),
        (["node08", "node09", "node10", "node11"], "node[08-11]"),
        (["node1", "node2", "node10"], "node[1-2,10]"),
        (["node1", "node01"], "node01,node1"),
        (["n1-ib", "n2-ib", "n1"], "n1,n[1-2]-ib"),
        (["r1n1", "r1n2", "r2n1"], "r1n[1-2],r2n1"),
        (["node01", "node01"], "node01"),
        (["10.0.0.1", "10.0.0.2"], "10.0.0.[1-2]"),
        (["10.0.0.1", "10.0.1.1", "10.0.1.2"], "10.0.0.1,10.0.1.[1-2]"),
        (["gpu09-ib0", "gpu10-ib0", "gpu1-ib0"], "gpu1-ib0,gpu[09-10]-ib0"),
        (["ip-10-0-1-7.ec2.internal", "ip-10-0-1-8.ec2.internal"], "ip-10-0-1-[7-8].ec2.internal"),
        (["n1@2026-11-30", "n2@2026-11-30"], "n[1-2]@2026-11-30"),
    ],
)
def test_fold_of_names_is_the_short_text(names: List[str], expected: str) -> None:
    """Fifty healthy nodes take one line."""
    assert expected == fold(names)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("node[01-03]", ["node01", "node02", "node03"]),
        ("node[1,3],login", ["login", "node1", "node3"]),
        ("node[9-11]", ["node9", "node10", "node11"]),
        (" a , b ", ["a", "b"]),
    ],
)
def test_expand_of_a_text_names_every_node(text: str, expected: List[str]) -> None:
    """What a report printed can be read back."""
    assert tuple(expected) == expand(text)


@pytest.mark.parametrize(
    "text",
    ["node[", "node]", "node[]", "node[2-1]", "node[a]", "node[1-]", "a[1]b[2]", "n[1-99999999]", "n[1--2]"],
)
def test_expand_of_no_node_set_is_refused(text: str) -> None:
    """A typing error is a usage error, not an empty set and not a full memory."""
    with pytest.raises(UsageError, match="not a node set"):
        expand(text)


def test_expand_of_many_ranges_stops_where_they_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once all of them have been made: a text of a megabyte has ranges for all the memory there is."""
    monkeypatch.setattr(nodeset, "_MAX_NODES", 1000)
    text = f"node[{','.join(['0-999'] * 300)}]"
    tracemalloc.start()
    try:
        with pytest.raises(UsageError, match="more than 1000 nodes"):
            expand(text)
        assert 2 << 20 > tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_natural_order_puts_two_before_ten() -> None:
    """Nodes are listed as a reader counts."""
    assert ["n1", "n2", "n10", "x"] == sorted(["n10", "x", "n2", "n1"], key=natural_key)
