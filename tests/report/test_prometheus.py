"""Prometheus' text format, read by its own parser."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, FrozenSet, List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("prometheus_client")

from prometheus_client.parser import text_string_to_metric_families

from envaudit.model import Finding, Verdict
from envaudit.report import Report, SetAside, prometheus
from envaudit.report.screen import printable
from tests.report.cases import HOSTILE
from tests.report.ci_cases import CI_CASES, DRIVER, NCCL, OFF, WAIVED, is_well, told
from tests.report.reports import LAWS, TEXTS, findings, reports

Samples = Dict[Tuple[str, FrozenSet[Tuple[str, str]]], float]


def samples_of(report: Report) -> Samples:
    """Name and labels → value; each once."""
    read: Samples = {}
    for family in text_string_to_metric_families(prometheus.render(report)):
        assert family.documentation
        assert "gauge" == family.type
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in read
            read[key] = sample.value
    return read


def value(samples: Samples, name: str, **labels: str) -> float:
    """One sample."""
    return samples[f"envaudit_{name}", frozenset(labels.items())]


def drifts(samples: Samples) -> Dict[Tuple[str, str], float]:
    """Rule and node → value of `envaudit_drift`."""
    return {
        (dict(labels)["rule"], dict(labels)["node"]): number
        for (name, labels), number in samples.items()
        if name == "envaudit_drift"
    }


def test_outlier_and_missing_node_are_drift() -> None:
    """And both verdicts are to be seen."""
    samples = samples_of(CI_CASES["node_missing_and_outlier"])
    assert {("EA214", "node10"): 1.0, ("EA901", "node11"): 1.0} == drifts(samples)
    assert 1 == value(samples, "exit_code") == value(samples, "verdict", verdict="FAIL")
    assert (
        1 == value(samples, "findings", severity="error") == value(samples, "findings", severity="incomplete")
    )
    assert (1, 0) == (
        value(samples, "node_examined", node="node01"),
        value(samples, "node_examined", node="node11"),
    )


def test_incomplete_run_is_no_pass() -> None:
    """Exit code 3."""
    samples = samples_of(CI_CASES["only_missing"])
    assert 3 == value(samples, "exit_code")
    assert [0, 0, 1] == [value(samples, "verdict", verdict=name) for name in ("PASS", "FAIL", "INCOMPLETE")]


def test_healthy_nodes_are_examined_and_have_no_drift() -> None:
    """That nothing is there is not all that is told of them."""
    samples = samples_of(CI_CASES["fifty_healthy_nodes"])
    assert {} == drifts(samples)
    assert 50 == sum(number for (name, _), number in samples.items() if name == "envaudit_node_examined")


def test_run_that_looked_at_nothing_is_incomplete() -> None:
    """Not a pass, for there is nothing that passed."""
    samples = samples_of(CI_CASES["nothing_examined"])
    assert {("EA901", ""): 1.0} == drifts(samples)
    assert (3, 0) == (value(samples, "exit_code"), value(samples, "verdict", verdict="PASS"))


def test_time_of_the_run_is_when_it_ended() -> None:
    """2026-11-30T10:00:00Z and 0.62 s, since the epoch."""
    samples = samples_of(CI_CASES["node_missing_and_outlier"])
    assert 1796032800.62 == value(samples, "last_run_timestamp_seconds")
    assert 0.62 == value(samples, "run_duration_seconds")


def test_remarks_are_counted_but_are_no_drift() -> None:
    """Nobody is to be woken by one, unless it fails the run."""
    remark = Finding("EA905", "info", "not compared", ("n1",))
    told_of = [
        samples_of(told(Report("diff", "0.1.0", Verdict.of((remark,), fail_on), (remark,), nodes=("n1",))))
        for fail_on in ("error", "info")
    ]
    assert [{}, {("EA905", "n1"): 1.0}] == [drifts(each) for each in told_of]
    assert [1, 1] == [value(each, "findings", severity="info") for each in told_of]


def test_findings_of_one_rule_on_one_node_add_up() -> None:
    """The value is how many there are."""
    both = (NCCL, replace(NCCL, path="x"), DRIVER)
    samples = samples_of(told(Report("gate", "0.1.0", Verdict.of(both), both, nodes=("node04",))))
    assert {("EA214", "node04"): 2.0, ("EA331", "node05"): 1.0, ("EA331", "node06"): 1.0} == drifts(samples)


def test_what_is_set_aside_is_counted_by_who_did_it() -> None:
    """Waivers and the policy are no drift, and no silence."""
    samples = samples_of(told(replace(CI_CASES["gate"], set_aside=(WAIVED, OFF, OFF))))
    assert (1, 2) == (
        value(samples, "set_aside_findings", by="waiver"),
        value(samples, "set_aside_findings", by="policy"),
    )


@given(TEXTS)
def test_labels_are_read_as_they_were_meant(words: str) -> None:
    """Quotes, backslashes and line breaks in a node's label."""
    report = told(
        Report("gate", "0.1.0", Verdict.of(()), nodes=(words,)),
    )
    assert 1 == value(samples_of(report), "node_examined", node=printable(words))


@LAWS
@given(reports(), st.lists(findings(), max_size=2), st.sampled_from(["", HOSTILE]))
def test_any_report_is_read_and_passes_only_where_it_should(
    report: Report, aside: List[Finding], host: str
) -> None:
    """By the client's own parser."""
    report = replace(report, host=host, set_aside=tuple(SetAside(each, "waiver", "x") for each in aside))
    samples = samples_of(report)
    assert is_well(report) == (value(samples, "verdict", verdict="PASS") == 1)
    assert 1 == sum(number for (name, _), number in samples.items() if name == "envaudit_verdict")
