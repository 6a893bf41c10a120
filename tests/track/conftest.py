"""What is logged: two nodes of which one drifts, and what a diff found of them."""

from __future__ import annotations

import pytest

import envaudit
from envaudit.model import Missing, Snapshot
from envaudit.report import Report
from tests.diff.nodes import training_node

# What would be a link, a script and a heading in Markdown.
WICKED = "# [no](javascript:alert(1)) <script>alert(1)</script>\u202e"


@pytest.fixture
def snapshot() -> Snapshot:
    """Two nodes that answered and one that did not, with a text of its own."""
    nodes = training_node("node01"), training_node("node02", nccl="2.20.5")
    return Snapshot(nodes, {"node03": Missing("corrupt", WICKED)})


@pytest.fixture
def result(snapshot: Snapshot) -> Report:
    """One error and one node without evidence."""
    return envaudit.diff(snapshot)
