"""Nodes by sections: one letter for what is known of each section on each node, and nodes alike together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from envaudit.model.finding import Finding
from envaudit.model.fingerprint import Fingerprint
from envaudit.model.nodeset import fold, natural_key
from envaudit.report import Report
from envaudit.report.screen import shortened

# Worst first; what a cell says. A letter needs no colour to be read.
MEANINGS = {
    "E": "error",
    "?": "no evidence, or not whole",
    "W": "warning",
    "I": "remark",
    "≠": "differs, without a finding of its own",
    "·": "nothing to say",
    "–": "there is none here",
    " ": "not looked at",
}
ORDER = "".join(MEANINGS)
OF_SEVERITY = {"error": "E", "incomplete": "?", "warning": "W", "info": "I"}
_NAME_CHARACTERS = 44
_OF_STATUS = {"ok": "·", "partial": "?", "error": "?", "absent": "–"}


class Heat(NamedTuple):
    """The whole map.

    Attributes:
        sections: the columns.
        rows: node → a letter for the node as a whole, and one for each column.
    """

    sections: tuple[str, ...]
    rows: dict[str, str]


class Alike(NamedTuple):
    """Nodes whose rows say the same.

    Attributes:
        nodes: in natural order.
        names: folded, and cut where that is long.
        letters: their row.
    """

    nodes: tuple[str, ...]
    names: str
    letters: str


def heat(report: Report) -> Heat:
    """The map of a report; without columns where no node was looked at."""
    read = {each.node: each for each in report.fingerprints}
    names = {*report.sections, *(name for each in report.fingerprints for name in each.sections)}
    if report.sections:
        # What came along only to tell how the probe was started is not asked for, and not judged.
        names = {name for name in names if name in report.sections} | set(_at_fault(report, names))
    sections = tuple(sorted(names))
    cells = {node: _as_read(read.get(node), sections, report) for node in report.nodes}
    cells.update({node: ["?"] * (len(sections) + 1) for node in report.missing})
    place = {name: number for number, name in enumerate(sections, 1)}
    for drift in report.drifts:
        if drift.kind != "unknown" and drift.section in place:
            for node in drift.outliers:
                if node in cells:
                    _worsen(cells[node], (place[drift.section],), "≠")
    for finding in report.findings:
        places = (0, *(place[name] for name in _sections_of(finding) if name in place))
        for node in finding.nodes:
            if node in cells:
                _worsen(cells[node], places, OF_SEVERITY[finding.severity])
    ordered = sorted(cells, key=natural_key)
    return Heat(sections, {node: "".join(cells[node]) for node in ordered})


def alike(rows: dict[str, str]) -> list[Alike]:
    """Nodes with equal rows together: the worst first, and of equally bad ones the smaller group."""
    together: dict[str, list[str]] = {}
    for node, letters in rows.items():
        together.setdefault(letters, []).append(node)
    ordered = sorted(together.items(), key=lambda item: (_badness(item[0]), len(item[1]), item[0]))
    return [
        Alike(tuple(nodes), shortened(fold(nodes), _NAME_CHARACTERS), letters) for letters, nodes in ordered
    ]


def _badness(letters: str) -> tuple[int, list[int]]:
    """Sort key: the node as a whole, then its cells, worst first."""
    return ORDER.index(letters[0]), sorted(ORDER.index(letter) for letter in letters[1:])


def _as_read(fingerprint: Fingerprint | None, sections: Sequence[str], report: Report) -> list[str]:
    """What the sections are worth before anything is judged."""
    if fingerprint is None:
        return ["·", *("·" if name in report.sections else " " for name in sections)]
    found = [fingerprint.sections.get(name) for name in sections]
    return ["·", *(" " if each is None else _OF_STATUS.get(each.status, "?") for each in found)]


def _worsen(row: list[str], places: Sequence[int], letter: str) -> None:
    for place in places:
        if ORDER.index(letter) < ORDER.index(row[place]):
            row[place] = letter


def _at_fault(report: Report, names: set[str]) -> Iterator[str]:
    for finding in report.findings:
        if finding.nodes:
            yield from (name for name in _sections_of(finding) if name in names)


def _sections_of(finding: Finding) -> set[str]:
    """The sections that a finding is about: its path's, and those of its differences."""
    return {finding.path.split("/", 1)[0], *(drift.section for drift in finding.drifts)} - {""}
