"""JUnit as its readers take it."""

from __future__ import annotations

import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import Dict, List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("junitparser")

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase

from envaudit.model import Finding, Verdict
from envaudit.report import Report, SetAside, junit
from tests.diff.nodes import training_node
from tests.report.cases import DOWN, HOSTILE, compared
from tests.report.ci_cases import CI_CASES, NCCL, WAIVED, is_well, linted, told
from tests.report.reports import LAWS, findings, reports


def cases_of(text: str) -> List[TestCase]:
    """All test cases of a report, read by junitparser."""
    return [case for suite in JUnitXml.fromstring(text.encode()) for case in suite]


def results_of(text: str) -> Dict[Tuple[str, str], List[type]]:
    """Place and rule → what kinds of result the test case has."""
    return {
        (case.classname, case.name.partition(" ")[0] if case.name.startswith("EA") else case.name): [
            type(result) for result in case.result
        ]
        for case in cases_of(text)
    }


def is_green(text: str) -> bool:
    """What a CI system shows."""
    whole = JUnitXml.fromstring(text.encode())
    return whole.failures == whole.errors == 0


def test_outlier_is_a_failure_and_a_missing_node_an_error() -> None:
    """FAIL and INCOMPLETE are told apart."""
    results = results_of(junit.render(CI_CASES["node_missing_and_outlier"]))
    assert [Failure] == results["node10", "EA214"]
    assert [Error] == results["node11", "EA901"]


def test_node_without_findings_is_a_test_that_passed() -> None:
    """What was looked at is seen to have been looked at."""
    results = results_of(junit.render(CI_CASES["fifty_healthy_nodes"]))
    assert {(f"node{number:02d}", "no findings"): [] for number in range(1, 51)} == results


def test_run_that_looked_at_nothing_is_red() -> None:
    """A report without a test case would be green."""
    text = junit.render(CI_CASES["nothing_examined"])
    assert {("run", "EA901"): [Error]} == results_of(text)


def test_missing_node_that_no_finding_names_is_an_error() -> None:
    """Whatever the command makes of it."""
    report = told(Report("show", "0.1.0", Verdict.of(()), nodes=("a",), missing={"b": DOWN}))
    assert {("a", "no findings"): [], ("b", "EA901"): [Error]} == results_of(junit.render(report))


def test_node_that_may_be_missing_is_skipped() -> None:
    """It has not passed."""
    text = junit.render(CI_CASES["missing_as_allowed"])
    assert {("node10", "no findings"): [], ("node11", "EA901"): [Skipped]} == results_of(text)
    report = replace(CI_CASES["missing_as_allowed"], nodes=())
    assert [Error] == results_of(junit.render(report))["run", "EA901"]


@pytest.mark.parametrize(("fail_on", "expected"), [("error", []), ("warning", [Failure])])
def test_warning_fails_a_test_where_it_fails_the_run(fail_on: str, expected: List[type]) -> None:
    """Below the threshold it is a passed test with something to say."""
    warning = Finding("EA331", "warning", "driver patch differs", ("n1",))
    report = told(Report("gate", "0.1.0", Verdict.of((warning,), fail_on), (warning,), nodes=("n1",)))
    text = junit.render(report)
    assert {("n1", "EA331"): expected} == results_of(text)
    if not expected:
        (case,) = cases_of(text)
        assert case.system_out.startswith("warning: driver patch differs\n")


def test_what_is_set_aside_is_skipped_with_its_reason() -> None:
    """Neither red nor unseen; the node itself was examined."""
    text = junit.render(CI_CASES["set_aside"])
    results = results_of(text)
    assert [Skipped] == results["node04", "EA214"] == results["node05", "EA331"]
    assert [] == results["node04", "no findings"]
    messages = [result.message for case in cases_of(text) for result in case.result]
    assert "until 2027-01-31: drained next week (ops) (1 more)" in messages
    assert 2 == messages.count("switched off by the policy")


def test_rule_that_is_waived_in_part_still_fails() -> None:
    """The text says both."""
    other = replace(NCCL, path="libraries/nccl/path", message="NCCL is another file")
    report = told(Report("gate", "0.1.0", Verdict.of((other,)), (other,), nodes=("node04",)))
    report = replace(report, set_aside=(WAIVED,))
    (case,) = cases_of(junit.render(report))
    (result,) = case.result
    assert (Failure, "NCCL is another file") == (type(result), result.message)
    assert "waiver: until 2027-01-31" in result.text


def test_findings_of_one_rule_on_one_node_are_one_test() -> None:
    """The first is shown, all are told."""
    both = tuple(Finding("EA299", "error", f"{path} differs", ("n1",), path) for path in ("env/A", "env/B"))
    report = told(Report("diff", "0.1.0", Verdict.of(both), both, nodes=("n1",)))
    (case,) = cases_of(junit.render(report))
    (result,) = case.result
    assert "env/A differs (1 more)" == result.message
    assert "env/B differs" in result.text


def test_finding_of_a_file_is_a_test_of_that_file() -> None:
    """Whichever line it is in: CI systems follow a test by its name."""
    results = results_of(junit.render(CI_CASES["linted"]))
    assert [Failure] == results["envs/gpu env.yml", "EA013"] == results["conda-lock.yml", "EA060"]
    assert [] == results["environment.yml", "EA010"]


def test_files_without_findings_passed() -> None:
    """Each by its name."""
    text = junit.render(linted(about="a.yml, b.yml"))
    assert {("a.yml", "no findings"): [], ("b.yml", "no findings"): []} == results_of(text)


def test_name_of_a_test_does_not_hold_what_changes() -> None:
    """Only the rule's id and title do."""
    names = {case.name for case in cases_of(junit.render(CI_CASES["node_missing_and_outlier"]))}
    assert {"EA214 NCCL differs", "EA901 no evidence", "no findings"} == names


def test_node_with_one_of_many_values_is_told_its_own() -> None:
    """The others' are a list."""
    by_node = {
        case.classname: case.result[0].text for case in cases_of(junit.render(CI_CASES["seven_values"]))
    }
    assert by_node["node03"].startswith("env/nccl/NCCL_ALGO/value here: A3\n")


@LAWS
@given(reports(), st.lists(findings(), max_size=2), st.sampled_from(["", HOSTILE, "]]>", "h\x00\ud800"]))
def test_any_report_is_read_and_is_green_only_where_it_should_be(
    report: Report, aside: List[Finding], words: str
) -> None:
    """By junitparser and by the strictest XML reader there is, with counts that are true."""
    report = replace(report, set_aside=tuple(SetAside(each, "waiver", words) for each in aside), host=words)
    text = junit.render(report)
    cases = cases_of(text)
    counted = [type(result) for case in cases for result in case.result]
    whole = ET.fromstring(text.encode())
    for element in (whole, whole[0]):
        assert (len(cases), counted.count(Failure), counted.count(Error), counted.count(Skipped)) == tuple(
            int(element.attrib[name]) for name in ("tests", "failures", "errors", "skipped")
        )
    assert len(cases) == len({(case.classname, case.name) for case in cases})
    assert is_green(text) == is_well(report)
    if report.verdict.failed:
        assert Failure in counted
    if report.verdict.incomplete:
        assert Error in counted


@pytest.mark.parametrize("name", CI_CASES)
def test_report_is_the_same_without_lxml(name: str) -> None:
    """Junitparser takes lxml where it is installed; the bytes do not depend on it."""
    code = (
        "import sys; sys.modules['lxml'] = None\n"
        "from envaudit.report import junit\n"
        "from tests.report.ci_cases import CI_CASES\n"
        f"sys.stdout.buffer.write(junit.render(CI_CASES[{name!r}]).encode())"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=60)
    assert junit.render(CI_CASES[name]) == run.stdout.decode()


def test_report_of_a_thousand_nodes_takes_a_moment() -> None:
    """Also where each node has a value of its own."""
    fleet = [training_node(f"n{number:04d}", algo=f"A{number}") for number in range(1000)]
    report = told(compared(fleet))
    began = time.process_time()
    text = junit.render(report)
    assert time.process_time() - began < 2
    assert 1000 == len(cases_of(text))
    assert len(text) < 4_000_000
