"""JSON: the envelope that docs/report.schema.json describes. Values are whole, text is ASCII."""

from __future__ import annotations

import json
from typing import Any, Dict, Tuple

from envaudit.model.checked import CheckedDevice
from envaudit.model.collective import Collectives
from envaudit.model.drift import Drift
from envaudit.model.finding import Finding
from envaudit.model.fingerprint import Fingerprint, Missing
from envaudit.report import Clock, Moment, Report

SCHEMA = 1


def render(report: Report) -> str:
    """The report as one JSON document.

    ASCII escapes keep what a node sent from acting on a terminal, and lone surrogates
    representable.
    """
    return json.dumps(envelope(report), indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def envelope(report: Report) -> Dict[str, Any]:
    """The document before it is text."""
    drifts = list(report.drifts)
    # By identity first: comparing drifts of a thousand nodes with each other takes long.
    places = {id(drift): place for place, drift in enumerate(drifts)}
    for drift in (each for finding in report.findings for each in (*finding.drifts, *finding.following)):
        if id(drift) not in places:
            places[id(drift)] = drifts.index(drift) if drift in drifts else len(drifts)
            drifts += [drift] if places[id(drift)] == len(drifts) else []
    document: Dict[str, Any] = {
        "schema": SCHEMA,
        "tool": report.tool,
        "command": report.command,
        "verdict": report.verdict.name,
        "exit_code": report.verdict.exit_code,
        "findings": [_finding(finding, places) for finding in report.findings],
        "drifts": [_drift(drift) for drift in drifts],
        "missing": {node: _missing(gone) for node, gone in report.missing.items()},
        "stages": [
            {"name": stage.name, "text": stage.text, "elapsed_ms": round(stage.elapsed_s * 1000)}
            for stage in report.stages
        ],
    }
    if report.facts:
        document["facts"] = {one.node: _fingerprint(one, report.sections) for one in report.facts}
    if report.timeline:
        document["timeline"] = [_moment(moment) for moment in report.timeline]
    if report.clocks:
        document["clocks"] = {
            "basis": report.clock_basis,
            "nodes": {clock.node: _clock(clock) for clock in report.clocks},
        }
    if report.suggestions:
        document["suggestions"] = list(report.suggestions)
    if report.checks:
        checks: Dict[str, Dict[str, Any]] = {}
        for device in report.checks:
            checks.setdefault(device.node, {})[device.ordinal] = _checked(device)
        document["checks"] = checks
    if report.collectives:
        document["collectives"] = [_collectives(run) for run in report.collectives]
    return document


def _checked(device: CheckedDevice) -> Dict[str, Any]:
    return {
        "kind": device.kind,
        "uuid": device.uuid or None,
        "card": dict(device.card),
        "readings": dict(device.readings),
        "cases": {
            name: {**case._asdict(), "mismatch": dict(case.mismatch) or None}
            for name, case in device.cases.items()
        },
    }


def _collectives(run: Collectives) -> Dict[str, Any]:
    named = ("ended", "ranks", "mismatches", "cases", "suspects", "figures", "links", "clock")
    row = {name: value for name, value in run._asdict().items() if name not in named}
    return {
        **row,
        "said_by": list(run.said_by),
        "backend": run.backend or None,
        "parameters": run.parameters or None,
        "straggler": dict(run.straggler) or None,
        "ended": {**run.ended._asdict()},
        "ranks": [{**each._asdict(), "device": dict(each.device)} for each in run.ranks],
        "mismatches": [
            {**each._asdict(), "values": {value: list(nodes) for value, nodes in each.values}}
            for each in run.mismatches
        ],
        "cases": {name: case._asdict() for name, case in run.cases.items()},
        "suspects": [each._asdict() for each in run.suspects],
        "figures": {name: each._asdict() for name, each in run.figures.items()},
        "links": {f"{first}-{second}": rate for (first, second), rate in run.links.items()},
        "clock": {node: {"offset_ns": pair[0], "bound_ns": pair[1]} for node, pair in run.clock.items()},
    }


def _clock(clock: Clock) -> Dict[str, Any]:
    return {
        "service": clock.service or None,
        "synchronised": clock.synchronised,
        "leap": clock.leap or None,
        "offset_ns": clock.offset_ns,
        "bound_ns": None if clock.offset_ns is None else clock.bound_ns,
        "apart": clock.apart,
    }


def _finding(finding: Finding, places: Dict[int, int]) -> Dict[str, Any]:
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "message": finding.message,
        "nodes": list(finding.nodes),
        "path": finding.path,
        "evidence": list(finding.evidence),
        "hint": finding.hint,
        "why": finding.why,
        "since": finding.since,
        "drifts": [places[id(drift)] for drift in finding.drifts],
        "following": [places[id(drift)] for drift in finding.following],
    }


def _drift(drift: Drift) -> Dict[str, Any]:
    return {
        "path": drift.path,
        "kind": drift.kind,
        "basis": drift.basis,
        "reference": list(drift.reference),
        "groups": [
            {"state": group.state, "value": group.value, "nodes": list(group.nodes), "why": group.why}
            for group in drift.groups
        ],
    }


def _missing(gone: Missing) -> Dict[str, str]:
    return {"kind": gone.kind, "why": gone.why, "next_step": gone.next_step}


def _fingerprint(fingerprint: Fingerprint, wanted: Tuple[str, ...]) -> Dict[str, Any]:
    return {
        "source": fingerprint.source,
        "captured_at": fingerprint.captured_at,
        "tool": fingerprint.tool,
        "digest": fingerprint.digest,
        "sections": {
            name: {
                "schema": section.schema,
                "status": section.status,
                "digest": section.digest,
                "facts": section.facts,
                "notes": section.notes,
                "errors": list(section.errors),
            }
            for name, section in sorted(fingerprint.sections.items())
            if not wanted or name in wanted
        },
    }


def _moment(moment: Moment) -> Dict[str, Any]:
    document: Dict[str, Any] = {
        "node": moment.node,
        "captured_at": moment.captured_at,
        "tags": list(moment.tags),
        "first": moment.first,
        "drifts": [_drift(drift) for drift in moment.drifts],
        "missing": None if moment.missing is None else _missing(moment.missing),
    }
    told = {"run": moment.run, "last_good": moment.last_good}
    return {**document, **{key: text for key, text in told.items() if text}}
