"""EA299: facts that differ."""

from __future__ import annotations

from typing import List

from envaudit.diff import compare
from envaudit.model import Finding, Fingerprint, Section, Verdict
from envaudit.rules import Evidence, judge
from envaudit.rules.drift import FOLD_FROM
from tests.diff.nodes import package, training_node

HEALTHY = [training_node(f"node{number:02d}") for number in range(1, 5)]


def findings(nodes: List[Fingerprint]) -> List[Finding]:
    """What all rules say of these nodes, compared with each other."""
    return list(judge(Evidence(tuple(nodes), drifts=compare(nodes))))


def test_drift_rule_healthy_nodes_raise_nothing() -> None:
    """Four nodes alike are a pass."""
    assert [] == findings(HEALTHY)
    assert "PASS" == Verdict.of(findings(HEALTHY)).name


def test_drift_rule_names_the_outlier_and_its_fact() -> None:
    """The one node that differs, and nobody else."""
    (finding,) = findings([*HEALTHY, training_node("node05", nccl="2.20.5")])
    assert ("EA299", "error", ("node05",)) == (finding.rule, finding.severity, finding.nodes)
    assert "libraries/nccl/version differs" == finding.message
    assert "libraries/nccl/version" == finding.path
    assert ["libraries/nccl/version"] == [drift.path for drift in finding.drifts]


def test_drift_rule_driver_library_build_and_variable_are_four_findings() -> None:
    """Four causes on one node, each named, none of the others touched."""
    strange = training_node(
        "node05",
        driver="550.54.14",
        nccl="2.20.5",
        algo="Tree",
        conda_packages={"numpy": package("1.26.4", "py311_1")},
    )
    found = findings([*HEALTHY, strange])
    assert [
        "conda/packages/numpy/build",
        "env/nccl/NCCL_ALGO/value",
        "gpu/driver",
        "libraries/nccl/version",
    ] == [finding.path for finding in found]
    assert {("node05",)} == {finding.nodes for finding in found}


def test_drift_rule_missing_and_extra_facts_are_named_so() -> None:
    """The reader sees which way it differs."""
    messages = [
        findings([*HEALTHY, training_node("node05", algo=None)])[0].message,
        findings([*HEALTHY, training_node("node05", conda_packages={"scipy": package("1")})])[0].message,
    ]
    assert ["env/nccl/NCCL_ALGO is missing", "conda/packages/scipy is extra"] == messages
    (finding,) = findings([HEALTHY[0], training_node("node05", algo=None)])
    assert "env/nccl/NCCL_ALGO is on some nodes only" == finding.message


def test_drift_rule_many_packages_of_one_node_are_one_finding() -> None:
    """Forty packages of one node have one cause."""
    more = {f"p{number}": package("1") for number in range(40)}
    (finding,) = findings([*HEALTHY, training_node("node05", conda_packages=more)])
    assert ("40 packages are extra", "conda/packages") == (finding.message, finding.path)
    assert 40 == len(finding.drifts)


def test_drift_rule_packages_that_differ_in_several_ways_differ() -> None:
    """Where some are extra and some are changed, no single word holds."""
    more = {f"p{number}": package("1") for number in range(FOLD_FROM)}
    (finding,) = findings(
        [*HEALTHY, training_node("node05", conda_packages={**more, "numpy": package("2.0.1")})]
    )
    assert f"{FOLD_FROM + 1} packages differ" == finding.message


def test_drift_rule_many_facts_of_one_section_are_one_finding() -> None:
    """The finding names what they lie in."""
    limits = {"nproc": 1, "nofile": 2, "stack": 3, "core": 4}
    nodes = [training_node(node, limits=limits) for node in ("a", "b")]
    (finding,) = findings([*nodes, training_node("c", limits=dict.fromkeys(limits, 0))])
    assert ("4 facts of limits differ", "limits") == (finding.message, finding.path)


def test_drift_rule_few_facts_stay_apart() -> None:
    """Up to three, each is a line of its own with both values."""
    more = {f"p{number}": package("1") for number in range(FOLD_FROM - 1)}
    assert FOLD_FROM - 1 == len(findings([*HEALTHY, training_node("node05", conda_packages=more)]))


def test_drift_rule_other_outliers_are_other_findings() -> None:
    """What differs on other nodes has another cause."""
    nodes = [*HEALTHY, training_node("node05", nccl="2.20.5"), training_node("node06", driver="1")]
    assert [("node06",), ("node05",)] == [finding.nodes for finding in findings(nodes)]


def test_drift_rule_tie_names_all_groups() -> None:
    """Two against two: all four are at fault until somebody decides."""
    nodes = [*HEALTHY[:2], training_node("x1", nccl="2.20.5"), training_node("x2", nccl="2.20.5")]
    (finding,) = findings(nodes)
    assert ("node01", "node02", "x1", "x2") == finding.nodes


def test_drift_rule_says_on_whom_a_fact_is_not_known() -> None:
    """A node whose section failed is no outlier, but it is named beside the difference."""
    broken = training_node("node06", libraries=Section("libraries", 1, "error", errors=("hung",)))
    found = findings([*HEALTHY, training_node("node05", nccl="2.20.5"), broken])
    assert [("EA299", ("node05",)), ("EA902", ("node06",))] == [(each.rule, each.nodes) for each in found]
    assert ("not known on node06: section could not be read",) == found[0].evidence


def test_drift_rule_conda_package_and_its_distribution_are_one_finding() -> None:
    """One version of numpy that differs is one cause, though two sections see it."""
    inside = {"packages": {"distributions": {"numpy": {"version": "1.26.4", "installer": "conda"}}}}
    other = {"packages": {"distributions": {"numpy": {"version": "2.0.1", "installer": "conda"}}}}
    nodes = [training_node(node, **inside) for node in ("a", "b")]
    odd = training_node(
        "c", conda={"packages": {"numpy": package("2.0.1"), "pytorch": package("2.4.1")}}, **other
    )
    (finding,) = findings([*nodes, odd])
    assert "conda/packages/numpy/version" == finding.path
    assert ("likewise packages/distributions/numpy/version",) == finding.evidence


def test_drift_rule_distribution_that_differs_elsewhere_is_a_finding_of_its_own() -> None:
    """Where pip wrote over a conda package on another node, that is another cause."""
    inside = {"packages": {"distributions": {"numpy": {"version": "1.26.4"}}}}
    nodes = [training_node(node, **inside) for node in ("a", "b", "c")]
    conda = {"packages": {"numpy": package("2.0.1"), "pytorch": package("2.4.1")}}
    odd = [
        training_node("d", conda=conda, **inside),
        training_node("e", packages={"distributions": {"numpy": {"version": "2.0.1"}}}),
    ]
    assert [("d",), ("e",)] == [finding.nodes for finding in findings([*nodes, *odd])]


def test_drift_rule_distribution_of_yet_another_version_is_a_finding_of_its_own() -> None:
    """Conda brought one version and pip wrote another over it: both are told."""
    inside = {"packages": {"distributions": {"numpy": {"version": "1.26.4"}}}}
    nodes = [training_node(node, **inside) for node in ("a", "b")]
    odd = training_node(
        "c",
        conda={"packages": {"numpy": package("2.0.1"), "pytorch": package("2.4.1")}},
        packages={"distributions": {"numpy": {"version": "2.1.0"}}},
    )
    assert ["conda/packages/numpy/version", "packages/distributions/numpy/version"] == [
        finding.path for finding in findings([*nodes, odd])
    ]


def test_drift_rule_package_missing_from_conda_and_extra_from_pip_is_two_findings() -> None:
    """It moved from one installer to the other: neither side alone says so."""
    nodes = [training_node(node, conda_packages={"scipy": package("1.14")}) for node in ("a", "b")]
    distributions = training_node("c").sections["packages"].facts["distributions"]
    odd = training_node("c", packages={"distributions": {**distributions, "scipy": {"version": "1.14"}}})
    assert ["conda/packages/scipy is missing", "packages/distributions/scipy is extra"] == [
        finding.message for finding in findings([*nodes, odd])
    ]
