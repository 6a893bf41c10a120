"""What rules could not look at: one line, folded, and no finding."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import pytest

from envaudit.model import Fingerprint
from envaudit.rules import Evidence, Policy, all_rules, judge
from envaudit.rules.unexamined import unexamined
from tests.cases.nodes import USUAL, node, with_note

ACS, XID = "ACS", "Xid lines of the kernel's log"


def unread(name: str, gpu: Dict[str, Any], topology: Any) -> Fingerprint:
    """A node on which some things could not be read."""
    made = with_note(node(name, USUAL), "gpu", not_examined=gpu)
    return with_note(made, "topology", not_examined=topology)


def told(*nodes: Fingerprint, policy: Policy = Policy(), **more: Any) -> List[str]:  # noqa: B008
    """The line's parts."""
    return [each.words for each in unexamined(Evidence(tuple(nodes), **more), policy)]


def test_what_takes_root_on_all_nodes_is_one_part() -> None:
    """Whatever words each of them has for it."""
    nodes = [
        unread(f"node0{n}", {XID: "Operation not permitted"}, {ACS: "the bits take root"})
        for n in range(1, 9)
    ]
    assert [f"{XID}, {ACS} (needs root) on node[01-08]"] == told(*nodes)


def test_other_reasons_and_nodes_are_parts_of_their_own() -> None:
    """Who could not read what, and why."""
    nodes = [unread("n1", {XID: "No such file or directory"}, {}), unread("n2", {}, {ACS: "takes root"})]
    assert sorted([f"{XID} (No such file or directory) on n1", "ACS (needs root) on n2"]) == sorted(
        told(*nodes)
    )


def test_what_no_rule_looks_at_is_not_told() -> None:
    """A node may be unable to tell many things that nobody judges."""
    assert [] == told(unread("n1", {"GPU 0: nvmlDeviceGetFanSpeed": "needs root"}, {}))


@pytest.mark.parametrize("rule_id", [rule.id for rule in all_rules() if rule.advisory])
def test_rule_that_is_off_or_not_covered_asks_for_nothing(rule_id: str) -> None:
    """Each of them by its own words."""
    rule = next(rule for rule in all_rules() if rule.id == rule_id)
    section = next(need for need in rule.needs if need in ("gpu", "limits", "topology"))
    one = with_note(unread("n1", {}, {}), section, not_examined=dict.fromkeys(rule.advisory, "takes root"))
    others = {other.id for other in all_rules() if set(other.advisory) & set(rule.advisory)}
    assert told(one, sections=(section,)) != []
    assert [] == told(one, policy=Policy(levels=dict.fromkeys(others, "off")))
    assert [] == told(one, sections=("python",))


@pytest.mark.parametrize("notes", [None, 3, ["ACS"], {ACS: None}, {ACS: {"why": 1}}])
def test_garbled_notes_are_no_reason(notes: Any) -> None:
    """What a node says there may be anything."""
    assert [] == told(unread("n1", {}, notes))


def test_unexamined_is_no_finding() -> None:
    """A healthy node stays without one."""
    nodes: Tuple[Fingerprint, ...] = (unread("n1", {XID: "takes root"}, {ACS: "takes root"}),)
    assert () == judge(Evidence(nodes, comparing=False))
