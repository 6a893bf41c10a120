"""SARIF 2.1.0 (OASIS standard, section numbers below): findings for code scanning and its viewers.

One result a finding. A place in environment.yml or in a lock is a physical location; a node is a logical
one, and where the report names the file that the nodes were held against, that file stands beside it, for
GitHub takes no result without a file. Missing evidence is a result of level `error`, and the invocation
then did not succeed. What is waived or switched off is a suppressed result of level `note`: readers that
count results and know no suppressions must not call a passed run failed.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Dict, Iterator, List, Tuple

from envaudit.model.finding import Finding
from envaudit.model.nodeset import fold
from envaudit.report import Report, SetAside
from envaudit.report.outcomes import all_findings, rule_text, severity_level, state_of
from envaudit.report.places import Place, place_of
from envaudit.report.screen import printable
from envaudit.report.summary import verdict_texts
from envaudit.report.wordings import Wordings

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"

# The name of the fingerprint, with the version of how it is made (3.27.17).
_FINGERPRINT = "envaudit/v1"
_LEVELS = {"error": "error", "incomplete": "error", "warning": "warning", "info": "note"}
# So that a text is not read as a link with its brackets (3.11.6).
_LINK = ("](", "] (")


def render(report: Report) -> str:
    """One log with one run, ASCII."""
    document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [_run(report)]}
    return json.dumps(document, indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def _run(report: Report) -> Dict[str, Any]:
    findings = all_findings(report)
    used = sorted({each.rule for each in (*findings, *(aside.finding for aside in report.set_aside))})
    index = {rule: place for place, rule in enumerate(used)}
    words = Wordings(report)
    results = [_result(finding, report, index, words) for finding in findings]
    results += [_suppressed(aside, report, index, words) for aside in report.set_aside]
    _mark(results)
    return {
        "tool": {
            "driver": {
                "name": "envaudit",
                "version": report.tool,
                "rules": [_rule(rule, report) for rule in used],
            }
        },
        # The last part, empty, is that of the single run (3.17.3): runs of one command are one series.
        "automationDetails": {"id": f"envaudit/{report.command}/"},
        "invocations": [_invocation(report, findings)],
        "columnKind": "unicodeCodePoints",
        "results": results,
        "properties": {
            "verdict": report.verdict.name,
            "verdictLines": verdict_texts(report),
            "failOn": report.verdict.fail_on,
            "host": printable(report.host),
            "reference": printable(report.reference),
            "nodes": list(report.nodes),
            "missing": sorted(report.missing),
            "sections": list(report.sections),
            "stages": [
                {
                    "name": stage.name,
                    "text": printable(stage.text),
                    "elapsedMs": round(stage.elapsed_s * 1000),
                }
                for stage in report.stages
            ],
        },
    }


def _rule(rule_id: str, report: Report) -> Dict[str, Any]:
    text = rule_text(rule_id, report)
    described: Dict[str, Any] = {
        "id": rule_id,
        "shortDescription": {"text": _text(text.title)},
        "defaultConfiguration": {"level": _LEVELS[text.severity]},
        "properties": {"severity": text.severity},
    }
    if text.why:
        described["fullDescription"] = {"text": _text(text.why)}
        described["help"] = {"text": _text(" ".join(part for part in (text.why, text.how_to_fix) if part))}
    return described


def _result(finding: Finding, report: Report, index: Dict[str, int], words: Wordings) -> Dict[str, Any]:
    lines = [printable(finding.message), *words.lines(finding)]
    made: Dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": index[finding.rule],
        "level": severity_level(finding, report),
        "message": {"text": _text("\n".join(lines))},
        "locations": list(_locations(finding, report)),
        "partialFingerprints": {_FINGERPRINT: _identity(finding)},
        "properties": {
            "severity": finding.severity,
            "failsTheRun": state_of(finding, report) == "failed",
            "nodes": list(finding.nodes),
            "path": printable(finding.path),
        },
    }
    if finding.since:
        made["properties"]["since"] = printable(finding.since)
    return made


def _suppressed(aside: SetAside, report: Report, index: Dict[str, int], words: Wordings) -> Dict[str, Any]:
    made = _result(aside.finding, report, index, words)
    made["level"] = "note"
    made["properties"]["failsTheRun"] = False
    made["properties"]["setAsideBy"] = aside.how
    # It stands in a file of policy, not in the code that was looked at (3.35.2).
    made["suppressions"] = [
        {"kind": "external", "status": "accepted", "justification": _text(printable(aside.words))}
    ]
    return made


def _locations(finding: Finding, report: Report) -> Iterator[Dict[str, Any]]:
    place = place_of(finding)
    if place is not None:
        yield {"physicalLocation": _physical(place)}
    elif finding.nodes:
        for node in finding.nodes:
            logical = {"name": node, "fullyQualifiedName": _qualified(node, finding), "kind": "resource"}
            yield {**_beside(report), "logicalLocations": [logical]}
    elif report.held_against or finding.path:
        logical = {"name": printable(finding.path) or "run", "kind": "resource"}
        yield {**_beside(report), "logicalLocations": [logical]}


def _beside(report: Report) -> Dict[str, Any]:
    return {"physicalLocation": _physical(Place(report.held_against))} if report.held_against else {}


def _qualified(node: str, finding: Finding) -> str:
    return f"{node}/{printable(finding.path)}" if finding.path else node


def _physical(place: Place) -> Dict[str, Any]:
    region = {"startLine": place.line or 1}
    if place.column:
        region["startColumn"] = place.column
    return {"artifactLocation": {"uri": _uri(place.path)}, "region": region}


def _uri(path: str) -> str:
    """A path as a URI reference (RFC 3986): what is relative stays so, and each odd byte is quoted."""
    from urllib.parse import quote

    quoted = quote(path, errors="backslashreplace")
    return f"file://{quoted}" if path.startswith("/") else quoted


def _identity(finding: Finding) -> str:
    """What stays the same while the finding stays: not its line, not the values of facts."""
    place = place_of(finding)
    parts: List[str] = [finding.rule, *finding.nodes]
    parts += [place.path, finding.message] if place is not None else [finding.path]
    text = json.dumps(parts, ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:32]


def _mark(results: List[Dict[str, Any]]) -> None:
    """Number the results that are alike, so that each has a fingerprint of its own."""
    seen: Dict[str, int] = {}
    for result in results:
        identity = result["partialFingerprints"][_FINGERPRINT]
        seen[identity] = seen.get(identity, 0) + 1
        result["partialFingerprints"][_FINGERPRINT] = f"{identity}:{seen[identity]}"


def _invocation(report: Report, findings: Tuple[Finding, ...]) -> Dict[str, Any]:
    gaps = [finding for finding in findings if finding.severity == "incomplete"]
    made: Dict[str, Any] = {
        "executionSuccessful": not gaps,
        "exitCode": report.verdict.exit_code,
        "exitCodeDescription": report.verdict.name,
    }
    if report.host:
        made["machine"] = printable(report.host)
    if report.started_at:
        made["startTimeUtc"] = report.started_at
    notifications = [_notification(finding, report) for finding in gaps]
    if notifications:
        made["toolExecutionNotifications"] = notifications
    return made


def _notification(finding: Finding, report: Report) -> Dict[str, Any]:
    where = f" ({fold(finding.nodes)})" if finding.nodes else ""
    return {"level": "error", "message": {"text": _text(printable(finding.message + where))}}


def _text(text: str) -> str:
    return text.replace(*_LINK)
