"""EA600 to EA609: what the ranks of a run came to together, judged."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

import pytest

from envaudit.checks.collectives.asked import Asked
from envaudit.checks.collectives.result import own_result
from envaudit.checks.collectives.supervising import of_one_rank
from envaudit.model import Finding, Fingerprint, Missing, Section
from envaudit.rules import Evidence, Policy, judge
from tests.diff.nodes import fingerprint
from tests.rules.collectiveruns import DDP, GATHER, NODES, SUM, ended, lost_hub, result, telling


def findings(nodes: List[Fingerprint], policy: Optional[Policy] = None) -> List[Finding]:
    """All that is said of a run that was asked for this section alone."""
    return list(judge(Evidence(tuple(nodes), sections=("collectives",), comparing=False), policy or Policy()))


def wrong(name: str, *ranks: int) -> Dict[str, Any]:
    """A result in which one collective is wrong."""
    made = result()
    made["cases"][name] = {"status": "wrong", "wrong_ranks": list(ranks), "reason": "3 of 65537 elements"}
    return made


def test_good_run_raises_nothing() -> None:
    """All nodes carry the same result."""
    assert [] == findings(telling(result()))


def test_wrong_result_names_the_suspect_once_for_all_nodes() -> None:
    """Both nodes tell of it; one is at fault."""
    suspect = {
        "kind": "source",
        "ranks": [1],
        "nodes": ["node02"],
        "link": [],
        "sure": True,
        "how": "column 1",
    }
    (finding,) = findings(telling({**wrong(SUM, 0, 1), "suspects": [suspect]}))
    assert ("EA600", "error", ("node02",)) == (finding.rule, finding.severity, finding.nodes)
    assert "collectives give wrong results: rank 1 (node02)" == finding.message
    assert ("column 1", f"{SUM} on rank 0 (node01), rank 1 (node02): 3 of 65537 elements") == finding.evidence


def test_wrong_result_of_which_one_of_two_is_at_fault_names_both() -> None:
    """Two nodes cannot outvote each other."""
    suspect = {"kind": "", "ranks": [0, 1], "nodes": [], "link": [], "sure": False, "how": "two ranks"}
    (finding,) = findings(telling({**wrong(GATHER, 1), "suspects": [suspect]}))
    assert "collectives give wrong results: one of rank 0 (node01), rank 1 (node02)" == finding.message
    assert NODES == finding.nodes


def test_wrong_result_without_a_suspect_names_who_saw_it() -> None:
    """And says that nothing tells more."""
    (finding,) = findings(telling(wrong(SUM, 1)))
    assert ("node02",) == finding.nodes
    assert "nothing tells who is at fault" in finding.message


def test_link_at_fault_is_named_by_both_ends() -> None:
    """Neither of them is accused alone."""
    suspect = {"kind": "link", "ranks": [], "nodes": [], "link": [0, 1], "sure": True, "how": "one cell"}
    (finding,) = findings(telling({**wrong(GATHER, 1), "suspects": [suspect]}))
    assert NODES == finding.nodes
    assert finding.message.endswith(": the link between rank 0 (node01) and rank 1 (node02)")
    (finding,) = findings(telling({**wrong(GATHER, 1), "suspects": [{**suspect, "sure": False}]}))
    assert finding.message.endswith(": probably the link between rank 0 (node01) and rank 1 (node02)")


def test_parameters_that_differ_are_a_finding_of_their_own() -> None:
    """Not a wrong collective: every one of those was right."""
    (finding,) = findings(telling(wrong(DDP, 1)))
    assert ("EA600", "parameters differ after a step of DDP") == (finding.rule, finding.message)
    assert ("node02",) == finding.nodes


def test_parameters_that_are_wrong_everywhere_are_told_of_the_suspect_alone() -> None:
    """What one rank spoils is wrong on all of them, and the others are healthy."""
    suspect = {"kind": "source", "ranks": [1], "nodes": ["node02"], "link": [], "sure": True, "how": ""}
    (finding,) = findings(telling({**wrong(DDP, 0, 1), "suspects": [suspect]}))
    assert ("node02",) == finding.nodes
    (finding,) = findings(telling(wrong(DDP, 0, 1)))
    assert NODES == finding.nodes


@pytest.mark.parametrize(
    ("kind", "rule", "severity"),
    [
        ("missing", "EA602", "incomplete"),
        ("unreachable", "EA603", "incomplete"),
        ("lost", "EA604", "error"),
        ("exit", "EA604", "error"),
        ("silent", "EA605", "error"),
        ("stuck", "EA606", "error"),
        ("error", "EA607", "error"),
        ("network", "EA608", "error"),
        ("deadline", "EA609", "incomplete"),
    ],
)
def test_ending_is_told_once_with_who_is_at_fault(kind: str, rule: str, severity: str) -> None:
    """Its victims and last words stand below."""
    how = ended(kind, "because", ranks=[1], nodes=["node02"], victims=[0], stderr="\nValueError: oops\n")
    (finding,) = findings(telling(result(ended=how)))
    assert (rule, severity, ("node02",)) == (finding.rule, finding.severity, finding.nodes)
    assert "because" in finding.message
    assert {"victims: rank 0 (node01)", "ValueError: oops"} <= set(finding.evidence)


def test_node_that_lost_the_hub_says_nothing_where_others_have_the_result() -> None:
    """It is the one that the others name."""
    how = ended("lost", "its supervisor is gone", ranks=[1], nodes=["node02"], victims=[0])
    nodes = [*telling(result(ended=how), ["node01"]), lost_hub("node02")]
    assert ["EA604"] == [finding.rule for finding in findings(nodes)]


@pytest.mark.parametrize(("others", "named"), [(["node01", "node03"], "node02"), ([], "node01")])
def test_hub_that_one_node_did_not_find_is_not_at_fault_where_others_met_there(
    others: List[str], named: str
) -> None:
    """With the path MTU alone no run tells who was missing."""
    met = telling(own_result("not_tested", "collectives were not asked for"), others, mtu={})
    alone = telling(own_result("unreachable", "no hub in 60 s", ["node01"]), ["node02"], mtu={})
    found = [each for each in findings([*met, *alone]) if each.rule == "EA603"]
    assert [(named,)] == [each.nodes for each in found]


def test_hub_that_all_lost_is_told_of_its_node() -> None:
    """Nobody has a better result."""
    (finding,) = findings([lost_hub("node02"), lost_hub("node03")])
    assert ("EA604", ("node01",)) == (finding.rule, finding.nodes)


def test_mismatch_names_the_nodes_outside_the_largest_group() -> None:
    """With both values."""
    row = {
        "what": "torch_git",
        "values": {"aaaa": ["node01", "node02"], "bbbb": ["node03"]},
        "nodes": ["node03"],
        "severity": "error",
        "text": "two builds",
    }
    nodes = ("node01", "node02", "node03")
    how = ended("mismatch", "torch_git differs", nodes=["node03"])
    made = result(nodes=nodes, ended=how, mismatches=[row], cases={})
    (finding,) = findings(telling(made, nodes))
    assert ("EA601", "error", ("node03",)) == (finding.rule, finding.severity, finding.nodes)
    assert "torch git differs: two builds" == finding.message
    assert ("node[01-02]: aaaa", "node03: bbbb") == finding.evidence


def test_mismatch_that_only_slows_down_is_a_warning() -> None:
    """The run went on."""
    row = {
        "what": "gpu",
        "values": {"A": ["node01"], "B": ["node02"]},
        "nodes": ["node01", "node02"],
        "severity": "warning",
        "text": "mixed",
    }
    (finding,) = findings(telling(result(mismatches=[row])))
    assert ("EA601", "warning", NODES) == (finding.rule, finding.severity, finding.nodes)


def test_one_rank_is_told_and_incomplete_only_where_it_was_asked_for() -> None:
    """By name, or by the policy."""
    plain, named = (
        telling(of_one_rank(), ["node01"]),
        telling(of_one_rank(), ["node01"], asked=Asked(requested=True)),
    )
    (finding,) = findings(plain)
    assert ("EA609", "info", ("node01",)) == (finding.rule, finding.severity, finding.nodes)
    assert "collectives: NOT TESTED (one rank has nobody to talk to)" == finding.message
    assert ["incomplete"] == [each.severity for each in findings(named)]
    assert ["incomplete"] == [each.severity for each in findings(plain, Policy(require=("collectives",)))]


def test_one_rank_whose_other_nodes_are_gone_is_not_advised_to_ask_for_two() -> None:
    """They were asked for, and what keeps them away is the cause."""
    (node,) = telling(of_one_rank(), ["node01"], asked=Asked(requested=True))
    gone = {"node02": Missing("unreachable", "connection refused")}
    hints = {each.rule: each.hint for each in judge(Evidence((node,), missing=gone), Policy())}
    assert "see why the other nodes gave no evidence" in hints["EA609"]


def test_run_in_which_no_collective_was_run_is_no_pass() -> None:
    """None was there, or the backend has none of those that were asked for."""
    nothing = result(cases={}, parameters=None)
    (finding,) = findings(telling(nothing))
    assert ("EA609", "incomplete", NODES) == (finding.rule, finding.severity, finding.nodes)
    reason = "gloo of torch 2.13.0+cpu does not take it: Invalid scalar type"
    row = {"status": "not_run", "wrong_ranks": [], "reason": reason}
    lacking = result(cases={"all_reduce/sum/e4m3/1021+0": row}, parameters=None)
    assert ["incomplete", "info"] == [each.severity for each in findings(telling(lacking))]


def test_section_without_an_answer_is_no_pass_where_no_run_tells_of_that_node() -> None:
    """What others say of a node's rank is evidence; where nobody says anything there is none."""
    empty = fingerprint("node02", collectives=Section("collectives", 1, "absent", {}, {}))
    assert [] == findings([*telling(result(), NODES[:1]), empty])
    (finding,) = findings([empty])
    assert ("EA609", "incomplete", ("node02",)) == (finding.rule, finding.severity, finding.nodes)


def test_mtu_alone_does_not_miss_the_collectives() -> None:
    """They were not asked for."""
    assert [] == findings(telling(own_result("not_tested", "not asked for"), asked=Asked(collectives=False)))


def test_busy_gpu_of_another_is_no_test_and_no_fault() -> None:
    """Named with its node."""
    how = ended("not_tested", "node02: GPU 3: the GPU is busy: process 7 (python)", nodes=["node02"])
    (finding,) = findings(telling(result(ended=how, world=0, cases={}, parameters=None)))
    assert ("EA609", "info", ("node02",)) == (finding.rule, finding.severity, finding.nodes)


def test_what_a_backend_does_not_have_is_told_and_what_was_left_out_is_incomplete() -> None:
    """The one is nature, the other a gap."""
    made = result()
    reason = "gloo of torch 2.13.0+cpu does not take it: Invalid scalar type"
    made["cases"]["all_reduce/sum/e4m3/1021+0"] = {"status": "not_run", "wrong_ranks": [], "reason": reason}
    made["cases"]["barrier"] = {
        "status": "not_run",
        "wrong_ranks": [],
        "reason": "1 of 2 ranks did not finish",
    }
    gap, nature = findings(telling(made))
    assert ("incomplete", "1 collective not run: 1 of 2 ranks did not finish") == (gap.severity, gap.message)
    assert gap.hint.startswith("Mend that, then run")
    assert ("info", (f"{reason}: all_reduce e4m3",)) == (nature.severity, nature.evidence)
