"""Waivers: what is accepted is out, for the nodes, the path and the time that it names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, List, Tuple

import pytest

from envaudit.diff import compare
from envaudit.model import Missing, Verdict
from envaudit.model.pathpattern import PathPattern
from envaudit.rules import Evidence, Judgement, Policy, judgement
from envaudit.rules.policy import Waiver
from tests.diff.nodes import training_node
from tests.rules.fleets import edited, fleet

TODAY = "2026-11-30"
NODES = [
    *(training_node(f"node{number:02d}") for number in range(1, 6)),
    training_node("node07", nccl="2.20.5"),
    training_node("node08", nccl="2.20.5"),
]


def judged(*waivers: Waiver, full: bool = True) -> Judgement:
    """Two nodes of seven with another NCCL, under some waivers."""
    policy = Policy(waivers=waivers, today=TODAY, full=full)
    return judgement(Evidence(tuple(NODES), drifts=compare(NODES)), policy)


def waiver(**fields: Any) -> Waiver:
    """A waiver of EA214 that holds."""
    return Waiver(**{"rule": "EA214", "expires": "2027-01-31", "reason": "known", "owner": "ada", **fields})


def brief(found: Judgement) -> List[Tuple[str, Tuple[str, ...]]]:
    """Rule and nodes of each finding."""
    return [(each.rule, each.nodes) for each in found.findings]


def test_waiver_of_all_nodes_takes_the_finding_out_and_is_told() -> None:
    """The run passes, and says what was waived."""
    found = judged(waiver())
    assert [] == brief(found)
    assert [("EA214", ("node07", "node08"))] == [
        (each.finding.rule, each.finding.nodes) for each in found.waived
    ]
    assert "PASS" == Verdict.of(found.findings).name


def test_waiver_of_one_node_leaves_the_other() -> None:
    """What is accepted on node07 is not accepted on node08."""
    found = judged(waiver(nodes=("node07",)))
    assert [("EA214", ("node08",))] == brief(found)
    assert [("node07",)] == [each.finding.nodes for each in found.waived]


def test_waiver_of_a_node_holds_for_what_is_stored_of_it() -> None:
    """Two times of the same nodes stand beside each other under labels."""
    labelled = [replace(one, node=f"{one.node}@good") for one in NODES]
    policy = Policy(waivers=(waiver(nodes=("node07",)), waiver(nodes=("node01",))), today=TODAY, full=True)
    found = judgement(Evidence(tuple(labelled), drifts=compare(labelled)), policy)
    assert [("EA214", ("node08@good",)), ("EA911", ("node01",))] == brief(found)


def test_two_waivers_together_take_a_finding_out() -> None:
    """Each names its node."""
    assert [] == brief(judged(waiver(nodes=("node07",)), waiver(nodes=("node08",))))


def test_waiver_that_renews_another_in_good_time_is_not_called_unused() -> None:
    """What `envaudit waive` appends before the first one's last day."""
    found = judged(waiver(expires=TODAY), waiver(nodes=("node07", "node08")), waiver(nodes=("node01",)))
    assert [("EA911", ("node01",))] == brief(found)
    assert [TODAY] == [each.waiver.expires for each in found.waived]


def test_waiver_of_another_rule_or_path_waives_nothing_and_is_told() -> None:
    """A mistyped waiver must not hide in the file."""
    other = PathPattern.parse("libraries/cudnn/**", "test")
    found = judged(waiver(rule="EA331"), waiver(path=other))
    assert [("EA214", ("node07", "node08")), ("EA911", ()), ("EA911", ())] == brief(found)


def test_waiver_by_path_holds_for_that_path() -> None:
    """A pattern covers what is below it."""
    assert [] == brief(judged(waiver(path=PathPattern.parse("libraries/nccl", "test"))))


def test_waiver_that_expired_waives_nothing_and_is_an_error() -> None:
    """Yesterday was its last day."""
    found = judged(waiver(expires="2026-11-29"))
    assert [("EA214", ("node07", "node08")), ("EA910", ())] == brief(found)
    assert "FAIL" == Verdict.of(found.findings).name
    assert "waiver of EA214 expired on 2026-11-29" == found.findings[1].message


def test_waiver_holds_on_its_last_day() -> None:
    """`until 30 November` includes the 30th."""
    assert [] == brief(judged(waiver(expires=TODAY)))


def test_waiver_of_the_expiry_itself_does_not_help() -> None:
    """Else one waiver without an end would make all others endless."""
    found = judged(waiver(expires="2026-11-29"), waiver(rule="EA910"))
    assert "EA910" in [rule for rule, _ in brief(found)]


@pytest.mark.parametrize(("nodes", "full"), [(("node99",), True), (("node07", "node99"), True), ((), False)])
def test_waiver_that_could_not_match_is_not_called_unused(nodes: Tuple[str, ...], full: bool) -> None:
    """Its nodes were not asked, or the run looked at a part of the facts."""
    found = judged(waiver(rule="EA331", nodes=nodes), full=full)
    assert ["EA214"] == [rule for rule, _ in brief(found)]


def test_waiver_of_missing_evidence_waives_nothing() -> None:
    """A node that did not answer is no pass, whoever signs for it."""
    policy = Policy(waivers=(waiver(rule="EA901", nodes=("node09",)),), today=TODAY, full=True)
    gone = {"node09": Missing("unreachable", "no route to host")}
    found = judgement(Evidence(tuple(NODES[:5]), missing=gone), policy)
    assert ["EA901", "EA911"] == [each.rule for each in found.findings]


def test_expired_waiver_names_the_nodes_that_were_judged() -> None:
    """Not "on 9 of 7 nodes": the others are in its words."""
    found = judged(waiver(expires="2026-11-29", nodes=("node07", "node99")))
    (finding,) = [each for each in found.findings if each.rule == "EA910"]
    assert ("node07",) == finding.nodes
    assert "nodes: node[07,99]" in finding.evidence


def test_waiver_of_one_path_leaves_what_else_one_finding_would_tell() -> None:
    """A package that is accepted, and one that nobody has seen before; and facts of one section."""
    nodes = fleet("twin-a")
    for path, value in (
        ("packages/distributions/ray", {"version": "2.1"}),
        ("packages/distributions/vllm", {"version": "0.6"}),
        *((f"host/sysctl/vm.{name}", 7) for name in ("swappiness", "a", "b", "c")),
    ):
        nodes[1] = edited(nodes[1], path, value)

    def told(*waivers: Waiver) -> List[Tuple[str, str]]:
        policy = Policy(waivers=waivers, today=TODAY, full=True)
        found = judgement(Evidence(tuple(nodes), drifts=compare(nodes)), policy)
        return [(each.rule, each.message) for each in found.findings]

    both = [("EA215", "2 packages that must match are extra"), ("EA299", "4 facts of host/sysctl differ")]
    assert both == told()
    ray = waiver(rule="EA215", nodes=("n2",), path=PathPattern.parse("*/*/ray", ""))
    swap = waiver(rule="EA299", nodes=("n2",), path=PathPattern.parse("host/sysctl/vm.swappiness", ""))
    left = told(ray, swap)
    assert ("EA215", "vllm is extra") == left[0]
    assert ["host/sysctl/vm.a", "host/sysctl/vm.b", "host/sysctl/vm.c"] == [
        message.split()[0] for _, message in left[1:]
    ]
