"""What the page's script shows of each node: texts that many nodes share stand there once."""

from __future__ import annotations

import json
from typing import Any

from envaudit.model.checked import STATUSES, CheckedDevice
from envaudit.model.drift import Drift
from envaudit.model.fingerprint import Fingerprint
from envaudit.report import Report
from envaudit.report.heatmap import OF_SEVERITY, Heat
from envaudit.report.screen import printable, shortened
from envaudit.report.values import differences, known_groups

# A node that differs in everything is told so by its first differences.
_DIFFERENCES = 40
_ERRORS = 10
_VALUE_CHARACTERS = 160
# So many characters of a section's digest tell it from any other; a node's own stands there whole.
_DIGEST_CHARACTERS = 16
_BAD = ("wrong", "unstable", "timeout", "error")


class _Pool:
    """Values in the order in which they came, each once."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._places: dict[Any, int] = {}

    def place(self, key: Any, value: Any) -> int:
        """Where a value stands; `key` tells it from others."""
        if key not in self._places:
            self._places[key] = len(self.values)
            self.values.append(value)
        return self._places[key]

    def text(self, text: str) -> int:
        return self.place(text, printable(text))


def embedded(report: Report, heat: Heat) -> str:
    """The data as JSON that ends no script element, and that any JavaScript reads as JSON does.

    ASCII alone, so that no line separator is in it, and no `<`, `>` or `&` that an HTML parser would
    see. Every text is printable already.
    """
    text = json.dumps(node_data(report, heat), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def node_data(report: Report, heat: Heat) -> dict[str, Any]:
    """Everything that a drawer shows, by node; numbers are places in the lists beside `nodes`."""
    texts, states, drifts = _Pool(), _Pool(), _Pool()
    read = {each.node: each for each in report.fingerprints}
    findings = _by_node([finding.nodes for finding in report.findings])
    devices = _Devices(report, texts)
    values = _values_of_nodes(report, heat, drifts)
    nodes = []
    for node, letters in heat.rows.items():
        row: dict[str, Any] = {"n": printable(node), "l": letters, "f": findings.get(node, [])}
        fingerprint = read.get(node)
        if fingerprint is not None:
            row["d"] = texts.text(fingerprint.digest)
            row["a"] = texts.text(f"{fingerprint.source}, {fingerprint.captured_at}, {fingerprint.tool}")
            row["s"] = _sections(fingerprint, heat, texts, states)
        if node in report.missing:
            gone = report.missing[node]
            row["m"] = [texts.text(text) for text in (gone.kind, gone.why, gone.next_step)]
        if node in values:
            row["x"] = values[node]
        if node in devices.lines:
            row["c"] = devices.lines[node]
        nodes.append(row)
    return {
        "sections": [printable(name) for name in heat.sections],
        "texts": texts.values,
        "states": states.values,
        "drifts": drifts.values,
        "findings": [
            [OF_SEVERITY[each.severity], each.rule, *(printable(text) for text in (each.message, each.hint))]
            for each in report.findings
        ],
        "nodes": nodes,
        "most": _DIFFERENCES,
    }


def _by_node(groups: list[tuple[str, ...]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number, nodes in enumerate(groups):
        for node in nodes:
            found.setdefault(node, []).append(number)
    return found


def _sections(fingerprint: Fingerprint, heat: Heat, texts: _Pool, states: _Pool) -> list[int]:
    """For each column the place of `[status, digest, errors...]`; -1 where the section was not read."""
    row = []
    for name in heat.sections:
        section = fingerprint.sections.get(name)
        if section is None:
            row.append(-1)
            continue
        errors = section.errors[:_ERRORS]
        state = [
            section.status,
            texts.text(section.digest[:_DIGEST_CHARACTERS]),
            *(texts.text(each) for each in errors),
        ]
        row.append(states.place((section.digest, errors), state))
    return row


def _values_of_nodes(report: Report, heat: Heat, drifts: _Pool) -> dict[str, list[list[int]]]:
    """Node → pairs of a difference and the node's group in it, for the nodes that are off."""
    found: dict[str, list[list[int]]] = {}
    for drift in report.drifts:
        off = [node for node in drift.outliers if node in heat.rows and drift.kind != "unknown"]
        wanting = [node for node in off if len(found.get(node, ())) <= _DIFFERENCES]
        if not wanting:
            continue
        group_of = {node: place for place, group in enumerate(known_groups(drift)) for node in group.nodes}
        for number in _told(drift, drifts):
            for node in wanting:
                found.setdefault(node, []).append([number, group_of.get(node, 0)])
    return found


def _told(drift: Drift, drifts: _Pool) -> list[int]:
    """The places of a drift's rows: `[path, basis, texts...]`, the reference's text first if there is one."""
    return [
        drifts.place(
            (id(drift), row.path),
            [printable(row.path), drift.basis if drift.reference else "", *row.texts],
        )
        for row in differences(drift, _VALUE_CHARACTERS)
    ]


class _Devices:
    """Checked devices of each node as lines; those of one kind that are well take one."""

    def __init__(self, report: Report, texts: _Pool) -> None:
        self.lines: dict[str, list[int]] = {}
        well: dict[str, dict[str, int]] = {}
        for device in report.checks:
            told = _device_line(device)
            lines = self.lines.setdefault(device.node, [])
            if any(case.status in _BAD for case in device.cases.values()) or not device.kind:
                lines.append(texts.text(f"{device.words}: {told}"))
            else:
                kind = f"{device.model or ('CPU' if device.kind == 'cpu' else 'GPU')}: {told}"
                counts = well.setdefault(device.node, {})
                counts[kind] = counts.get(kind, 0) + 1
        for node, kinds in well.items():
            self.lines[node] += [texts.text(f"{count} × {kind}") for kind, count in kinds.items()]


def _device_line(device: CheckedDevice) -> str:
    statuses = [case.status for case in device.cases.values()]
    parts = [
        f"{statuses.count(status)} {status.replace('_', ' ')}" for status in STATUSES if status in statuses
    ]
    bad = [case for case in device.cases.values() if case.status in _BAD][:3]
    named = "; ".join(
        f"{case.name}: {shortened(case.reason or case.status, _VALUE_CHARACTERS)}" for case in bad
    )
    return (", ".join(parts) or "nothing ran") + (f" ({named})" if named else "")
