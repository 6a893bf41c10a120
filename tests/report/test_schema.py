"""The JSON envelope and its published schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict

import pytest
from hypothesis import given

from envaudit.model import Drift
from envaudit.report import Report
from envaudit.report import json as json_report
from tests.report.cases import CASES, HOSTILE
from tests.report.conftest import GOLDENS
from tests.report.reports import LAWS, reports

jsonschema = pytest.importorskip("jsonschema")

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "report.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
JSON_GOLDENS = sorted(GOLDENS.glob("*.json"))


def test_schema_is_itself_valid() -> None:
    """Draft 2020-12."""
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("path", JSON_GOLDENS, ids=lambda path: path.stem)
def test_golden_follows_the_schema(path: Path) -> None:
    """What is promised is what is printed."""
    VALIDATOR.validate(json.loads(path.read_text()))


@LAWS
@given(reports())
def test_any_report_follows_the_schema(report: Report) -> None:
    """Also what no golden shows."""
    VALIDATOR.validate(json.loads(json_report.render(report)))


@LAWS
@given(reports())
def test_report_indexes_lead_to_the_drifts_of_its_findings(report: Report) -> None:
    """A finding's drifts are found in the list, in their order."""
    document = json_report.envelope(report)
    for finding, row in zip(report.findings, document["findings"]):
        paths = [document["drifts"][place]["path"] for place in row["drifts"]]
        assert [drift.path for drift in finding.drifts] == paths


def test_report_lists_a_drift_that_only_a_finding_has() -> None:
    """An index must lead somewhere."""
    report = CASES["one_outlier"]
    alone = Report("diff", "0.1.0", report.verdict, findings=report.findings)
    assert len(report.drifts) == len(json_report.envelope(alone)["drifts"])


def test_report_keeps_values_whole() -> None:
    """Neither shortened nor escaped beyond what reading the JSON undoes."""
    document = json.loads(json_report.render(CASES["hostile"]))
    assert HOSTILE in [group["value"] for drift in document["drifts"] for group in drift["groups"]]
    assert HOSTILE == document["missing"]["node03"]["why"]


@pytest.mark.parametrize(
    "change",
    [
        {"verdict": "PASSED"},
        {"exit_code": 1},
        {"surprise": 1},
        {"schema": 2},
        {"drifts": [{"path": "x"}]},
        {"missing": {"a": {"kind": "asleep", "why": "", "next_step": ""}}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_schema_refuses_what_is_not_promised(change: Dict[str, Any]) -> None:
    """A schema that takes everything would be no check."""
    document = {**json_report.envelope(CASES["fifty_healthy_nodes"]), **change}
    assert list(VALIDATOR.iter_errors(document))


def test_schema_refuses_a_float_as_a_fact() -> None:
    """Facts have no floats."""
    drift: Drift = CASES["one_outlier"].drifts[0]
    row = json_report.envelope(CASES["one_outlier"])
    assert drift.path == row["drifts"][0]["path"]
    row["drifts"][0]["groups"][0]["value"] = 1.5
    assert list(VALIDATOR.iter_errors(row))
