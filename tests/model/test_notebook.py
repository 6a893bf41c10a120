"""A snapshot in a notebook."""

from __future__ import annotations

import re
from dataclasses import replace

from envaudit.model import Missing, Section, Snapshot
from tests.diff.nodes import training_node

SCRIPT = "<script>alert(1)</script>\u202e\u2028"


def rows_of(snapshot: Snapshot) -> list:
    """The cells of each row of the table."""
    rows = re.findall(r"<tr>(.*?)</tr>", snapshot._repr_html_())[1:]
    return [re.findall(r"<td>(.*?)</td>", row) for row in rows]


def test_alike_nodes_take_one_row_and_others_name_what_differs() -> None:
    """A thousand healthy nodes are one line."""
    nodes = [training_node(f"node{number:02d}") for number in range(1, 10)]
    snapshot = Snapshot((*nodes, training_node("node10", nccl="2.20.5")))
    (first, second) = rows_of(snapshot)
    assert ["node[01-09]", nodes[0].digest[:12], "7 sections", ""] == first
    assert ("node10", "libraries") == (second[0], second[3])


def test_unread_sections_and_missing_nodes_are_told() -> None:
    """What was not seen is never left out."""
    node = training_node("node01", gpu=Section("gpu", 1, "error", errors=("nvml",)))
    snapshot = Snapshot((node,), {"node02": Missing("timeout", "no answer in 60 s")})
    (first, second) = rows_of(snapshot)
    assert "7 sections, 1 not read whole" == first[2]
    assert ["node02", "", "no answer", "timeout: no answer in 60 s"] == second


def test_what_a_node_says_is_text() -> None:
    """No markup, no line that turns round."""
    node = replace(training_node("node01"), node=SCRIPT)
    shown = Snapshot((node,), {"node02": Missing("corrupt", SCRIPT)})._repr_html_()
    assert 2 == shown.count("&lt;script&gt;alert(1)&lt;/script&gt;\\u202e\\u2028")
    assert "<script>" not in shown


def test_more_kinds_than_a_notebook_shows_are_counted() -> None:
    """Fifty rows, and how many there are more."""
    snapshot = Snapshot(tuple(training_node(f"node{n:03d}", nccl=f"2.{n}") for n in range(60)))
    assert 50 == len(rows_of(snapshot))
    assert "<p>10 more</p>" in snapshot._repr_html_()
