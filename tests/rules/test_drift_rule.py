"""EA299: facts that differ and that no other rule speaks of."""

from __future__ import annotations

from typing import Any, List

from envaudit.diff import compare
from envaudit.model import Finding, Fingerprint, Section, Verdict
from envaudit.model.pathpattern import PathPattern
from envaudit.rules import Evidence, Policy, judge
from envaudit.rules.drift import FOLD_FROM
from tests.diff.nodes import training_node

DEFAULT = Policy()
# A section that no rule and no entry of the catalogue knows.
STRANGE = {"colour": "red", "size": 4}


def node(name: str, **more: Any) -> Fingerprint:
    """A training node with a section from a newer probe."""
    return training_node(name, **{"strange": STRANGE, **more})


HEALTHY = [node(f"node{number:02d}") for number in range(1, 5)]


def findings(nodes: List[Fingerprint], policy: Policy = DEFAULT) -> List[Finding]:
    """What all rules say of these nodes, compared with each other."""
    return list(judge(Evidence(tuple(nodes), drifts=compare(nodes)), policy))


def of_path(text: str, level: str) -> Policy:
    """A policy that gives one path a level."""
    return Policy(paths=((PathPattern.parse(text, "test"), level),))


def test_drift_rule_healthy_nodes_raise_nothing() -> None:
    """Four nodes alike are a pass."""
    assert [] == findings(HEALTHY)
    assert "PASS" == Verdict.of(findings(HEALTHY)).name


def test_drift_rule_unknown_fact_is_a_warning_on_the_outlier() -> None:
    """Nobody has said how much it matters: it is told, and fails no run by itself."""
    (finding,) = findings([*HEALTHY, node("node05", strange={**STRANGE, "colour": "blue"})])
    assert ("EA299", "warning", ("node05",)) == (finding.rule, finding.severity, finding.nodes)
    assert "strange/colour differs" == finding.message
    assert "strange/colour" == finding.path
    assert ["strange/colour"] == [drift.path for drift in finding.drifts]


def test_drift_rule_catalogued_fact_has_the_severity_of_its_entry() -> None:
    """Another commit of the code is an error, though no rule of its own speaks of it."""
    nodes = [node(name, git={"commit": "aaaa"}) for name in ("a", "b")]
    (finding,) = findings([*nodes, node("c", git={"commit": "bbbb"})])
    assert ("EA299", "error", "git/commit") == (finding.rule, finding.severity, finding.path)


def test_drift_rule_missing_and_extra_facts_are_named_so() -> None:
    """The reader sees which way it differs."""
    messages = [
        findings([*HEALTHY, node("node05", strange={"colour": "red"})])[0].message,
        findings([*HEALTHY, node("node05", strange={**STRANGE, "weight": 1})])[0].message,
    ]
    assert ["strange/size is missing", "strange/weight is extra"] == messages
    (finding,) = findings([HEALTHY[0], node("node05", strange={"colour": "red"})])
    assert "strange/size is on some nodes only" == finding.message


def test_drift_rule_many_facts_of_one_section_are_one_finding() -> None:
    """The finding names what they lie in."""
    facts = {"in": dict.fromkeys("abcd", 1)}
    nodes = [node(name, strange=facts) for name in ("a", "b")]
    (finding,) = findings([*nodes, node("c", strange={"in": dict.fromkeys("abcd", 0)})])
    assert ("4 facts of strange/in differ", "strange/in") == (finding.message, finding.path)
    assert FOLD_FROM == len(finding.drifts)


def test_drift_rule_few_facts_stay_apart() -> None:
    """Up to three, each is a line of its own with both values."""
    nodes = [node(name, strange=dict.fromkeys("abc", 1)) for name in ("a", "b")]
    assert FOLD_FROM - 1 == len(findings([*nodes, node("c", strange=dict.fromkeys("abc", 0))]))


def test_drift_rule_other_outliers_are_other_findings() -> None:
    """What differs on other nodes has another cause."""
    odd = [
        node("node05", strange={**STRANGE, "size": 5}),
        node("node06", strange={**STRANGE, "colour": "blue"}),
    ]
    assert [("node06",), ("node05",)] == [finding.nodes for finding in findings([*HEALTHY, *odd])]


def test_drift_rule_tie_names_all_groups() -> None:
    """Two against two: all four are at fault until somebody decides."""
    odd = [node(name, strange={**STRANGE, "size": 5}) for name in ("x1", "x2")]
    (finding,) = findings([*HEALTHY[:2], *odd])
    assert ("node01", "node02", "x1", "x2") == finding.nodes


def test_drift_rule_says_on_whom_a_fact_is_not_known() -> None:
    """A node whose section failed is no outlier, but it is named beside the difference."""
    broken = node("node06", strange=Section("strange", 1, "error", errors=("hung",)))
    found = findings([*HEALTHY, node("node05", strange={**STRANGE, "size": 5}), broken])
    assert [("EA902", ("node06",)), ("EA299", ("node05",))] == [(each.rule, each.nodes) for each in found]
    assert ("not known on node06: section could not be read",) == found[1].evidence


def test_drift_rule_path_of_the_policy_sets_the_level() -> None:
    """A fact that this team knows to matter, and one that it knows not to."""
    nodes = [*HEALTHY, node("node05", strange={**STRANGE, "size": 5})]
    assert ["error"] == [each.severity for each in findings(nodes, of_path("strange/size", "error"))]
    assert [] == findings(nodes, of_path("strange/**", "off"))


def test_drift_rule_path_of_the_policy_outweighs_the_level_of_the_rule() -> None:
    """The narrower word holds, and what it does not name follows the rule."""
    nodes = [*HEALTHY, node("node05", strange={"colour": "blue", "size": 5})]
    policy = Policy(levels={"EA299": "info"}, paths=of_path("strange/size", "error").paths)
    assert {"strange/size": "error", "strange/colour": "info"} == {
        each.path: each.severity for each in findings(nodes, policy)
    }


def test_drift_rule_path_of_the_policy_takes_a_fact_from_its_rule() -> None:
    """`gpu/driver` has a rule of its own; set to info, it is told at info, and fails nothing."""
    nodes = [*HEALTHY, node("node05", nccl="2.20.5")]
    (finding,) = findings(nodes, of_path("libraries/nccl/version", "info"))
    assert ("info", "libraries/nccl/version") == (finding.severity, finding.path)
