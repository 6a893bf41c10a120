"""SARIF as its standard, its schema and an independent reader take it."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envaudit.model import Finding, Verdict
from envaudit.report import Report, SetAside, sarif
from tests.diff.nodes import training_node
from tests.report.cases import HOSTILE, compared
from tests.report.ci_cases import CI_CASES, NCCL, SECRET, STALE, TWICE, is_well, linted, told
from tests.report.reports import LAWS, findings, reports
from tests.report.schemas import published

FINGERPRINT = "envaudit/v1"


@lru_cache(maxsize=None)
def validator() -> Any:
    """A validator of the published schema."""
    jsonschema = pytest.importorskip("jsonschema")
    schema = published("sarif-2.1.0.json")
    return jsonschema.validators.validator_for(schema)(schema)


def run_of(report: Report) -> Dict[str, Any]:
    """The one run of a report."""
    (run,) = json.loads(sarif.render(report))["runs"]
    return dict(run)


def results_of(report: Report) -> List[Dict[str, Any]]:
    """All results."""
    return list(run_of(report)["results"])


def fingerprints_of(report: Report) -> List[str]:
    """Of all results, in their order."""
    return [result["partialFingerprints"][FINGERPRINT] for result in results_of(report)]


@pytest.mark.parametrize("name", CI_CASES)
def test_report_follows_the_published_schema(name: str) -> None:
    """SARIF 2.1.0."""
    validator().validate(json.loads(sarif.render(CI_CASES[name])))


def test_schema_refuses_what_the_standard_does_not_know() -> None:
    """A validator that takes everything would be no check."""
    document = json.loads(sarif.render(CI_CASES["linted"]))
    document["runs"][0]["results"][0]["level"] = "fatal"
    assert list(validator().iter_errors(document))


@LAWS
@given(reports(), st.lists(findings(), max_size=2), st.sampled_from(["", HOSTILE, "\ud800", "[a](b)"]))
def test_any_report_is_valid_ascii_and_red_where_it_should_be(
    report: Report, aside: List[Finding], words: str
) -> None:
    """Whatever nodes say; the index of each result leads to its rule."""
    report = replace(report, set_aside=tuple(SetAside(each, "policy", words) for each in aside), host=words)
    text = sarif.render(report)
    assert re.fullmatch(r"[\x20-\x7e\n]*", text)
    document = json.loads(text)
    json.dumps(document, ensure_ascii=False).encode("utf-8")  # no lone surrogate
    validator().validate(document)
    (run,) = document["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert all(rules[result["ruleIndex"]]["id"] == result["ruleId"] for result in run["results"])
    errors = [result for result in run["results"] if result["level"] == "error"]
    (invocation,) = run["invocations"]
    green = not errors and invocation["executionSuccessful"] and invocation["exitCode"] == 0
    assert green == is_well(report)
    told_fingerprints = [result["partialFingerprints"][FINGERPRINT] for result in run["results"]]
    assert len(told_fingerprints) == len(set(told_fingerprints))
    assert all("](" not in result["message"]["text"] for result in run["results"])


def test_place_in_a_file_is_a_physical_location() -> None:
    """With line and column where they are known; a path is a URI."""
    places = [each["locations"][0]["physicalLocation"] for each in results_of(CI_CASES["linted"])]
    assert [
        {
            "artifactLocation": {"uri": "envs/gpu%20env.yml"},
            "region": {"startLine": 3, "startColumn": 11},
        },
        {"artifactLocation": {"uri": "conda-lock.yml"}, "region": {"startLine": 1}},
        {"artifactLocation": {"uri": "environment.yml"}, "region": {"startLine": 6, "startColumn": 5}},
    ] == places


def test_absolute_path_is_a_file_uri() -> None:
    """A reader must not take it for something below its own root."""
    (result,) = results_of(linted(replace(SECRET, path="/srv/a b/\udcff.yml:3:1")))
    location = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert "file:///srv/a%20b/%5Cudcff.yml" == location["uri"]


def test_node_is_a_logical_location() -> None:
    """A location a node; no file is made up."""
    both = Finding("EA331", "error", "driver differs", ("n1", "n2"), "gpu/driver")
    (result,) = results_of(told(Report("gate", "0.1.0", Verdict.of((both,)), (both,), nodes=("n1", "n2"))))
    assert [
        {"logicalLocations": [{"name": node, "fullyQualifiedName": f"{node}/gpu/driver", "kind": "resource"}]}
        for node in ("n1", "n2")
    ] == result["locations"]


def test_node_stands_beside_the_lock_it_was_held_against() -> None:
    """So that readers which want a file for each result take it."""
    locations = [each for one in results_of(CI_CASES["gate_with_a_lock"]) for each in one["locations"]]
    places = {each["physicalLocation"]["artifactLocation"]["uri"] for each in locations}
    assert {"lockfiles/train.conda-lock.yml"} == places
    assert all(each["logicalLocations"] for each in locations)


def test_rules_carry_the_register() -> None:
    """What it means, why it matters, what to do."""
    rules = {rule["id"]: rule for rule in run_of(CI_CASES["linted"])["tool"]["driver"]["rules"]}
    assert ["EA010", "EA013", "EA060"] == sorted(rules)
    assert "package named twice" == rules["EA010"]["shortDescription"]["text"]
    assert rules["EA010"]["help"]["text"].endswith("Join the lines into one.")
    assert "warning" == rules["EA010"]["defaultConfiguration"]["level"]


def test_missing_evidence_is_an_error_and_a_run_without_success() -> None:
    """A reader that only counts results sees it as well."""
    run = run_of(CI_CASES["only_missing"])
    assert [("EA901", "error")] == [(each["ruleId"], each["level"]) for each in run["results"]]
    (invocation,) = run["invocations"]
    assert (False, 3) == (invocation["executionSuccessful"], invocation["exitCode"])
    assert "no evidence (node11)" == invocation["toolExecutionNotifications"][0]["message"]["text"]


def test_what_is_set_aside_is_suppressed_with_its_reason() -> None:
    """And no error to a reader that knows no suppressions."""
    results = results_of(CI_CASES["set_aside"])
    assert {"note"} == {result["level"] for result in results}
    assert ["waiver", "policy", "waiver"] == [result["properties"]["setAsideBy"] for result in results]
    assert "until 2027-01-31: drained next week (ops)" == results[0]["suppressions"][0]["justification"]


def test_warning_is_an_error_where_it_fails_the_run() -> None:
    """The level says what it does, the property what it is."""
    (result,) = results_of(CI_CASES["linted_strictly"])
    assert ("error", "warning", True) == (
        result["level"],
        result["properties"]["severity"],
        result["properties"]["failsTheRun"],
    )


def test_fingerprint_stays_where_lines_move() -> None:
    """A line above is no new fault, nor is another clock or host."""
    before = linted(SECRET, STALE, TWICE)
    moved = [replace(each, path=re.sub(r":\d+:\d+$", ":90:2", each.path)) for each in (SECRET, STALE, TWICE)]
    after = replace(linted(*moved), started_at="2027-01-01T00:00:00Z", host="other", elapsed_s=9.0)
    assert fingerprints_of(before) == fingerprints_of(after)


def test_fingerprint_of_a_node_does_not_hold_values() -> None:
    """Another wrong version is the same fault; another node or fact is another."""

    def alone(finding: Finding) -> List[str]:
        return fingerprints_of(told(Report("gate", "0.1.0", Verdict.of((finding,)), (finding,))))

    assert alone(NCCL) == alone(replace(NCCL, message="NCCL 2.19 differs", evidence=("x",)))
    others = (replace(NCCL, nodes=("n9",)), replace(NCCL, path="x"), replace(NCCL, rule="EA299"))
    assert all(alone(NCCL) != alone(other) for other in others)


def test_results_that_are_alike_have_fingerprints_of_their_own() -> None:
    """Two equal lines in one file are two faults."""
    first, second = fingerprints_of(linted(TWICE, replace(TWICE, path="environment.yml:9:5")))
    assert (first.partition(":")[0], first != second) == (second.partition(":")[0], True)


@pytest.mark.parametrize("name", CI_CASES)
def test_sarif_tools_reads_what_was_written(name: str, tmp_path: Path) -> None:
    """An independent reader counts the same errors, warnings and notes."""
    loader = pytest.importorskip("sarif.loader")
    path = tmp_path / "report.sarif"
    path.write_text(sarif.render(CI_CASES[name]))
    read = loader.load_sarif_file(str(path))
    levels = [result["level"] for result in results_of(CI_CASES[name])]
    counts = read.get_report().get_issue_count_for_severity
    assert {level: levels.count(level) for level in ("error", "warning", "note")} == {
        level: counts(level) for level in ("error", "warning", "note")
    }
    assert ["envaudit"] == read.get_distinct_tool_names()


def test_sarif_tools_finds_file_and_line(tmp_path: Path) -> None:
    """As its table shows them."""
    loader = pytest.importorskip("sarif.loader")
    path = tmp_path / "report.sarif"
    path.write_text(sarif.render(CI_CASES["linted"]))
    rows = loader.load_sarif_file(str(path)).get_records()
    assert {("envs/gpu%20env.yml", 3), ("conda-lock.yml", 1), ("environment.yml", 6)} == {
        (row["Location"], int(row["Line"])) for row in rows
    }


def test_report_of_a_thousand_nodes_takes_a_moment() -> None:
    """Also where each node has a value of its own."""
    report = told(compared([training_node(f"n{number:04d}", algo=f"A{number}") for number in range(1000)]))
    began = time.process_time()
    text = sarif.render(report)
    assert time.process_time() - began < 2
    assert len(text) < 4_000_000
