"""HTML: one file that asks nobody for anything, for a browser, a mail, a CI's artefacts.

The page is a template, a style sheet and a script beside this module. It says itself that it may load
nothing (Content-Security-Policy), and names the style and the script that may act by their digests: a
text of a node that got past the escaping would still be no script that runs. Without JavaScript all is
there but the drawer of a single node.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib import resources
from itertools import groupby
from typing import Any, NamedTuple

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from envaudit.model.drift import Drift
from envaudit.model.finding import SEVERITIES, Finding
from envaudit.model.fingerprint import Missing
from envaudit.model.nodeset import fold
from envaudit.report import Report
from envaudit.report.checks import check_lines
from envaudit.report.clocks import clock_lines
from envaudit.report.collectives import collective_lines
from envaudit.report.facts import fact_lines
from envaudit.report.heatmap import MEANINGS, OF_SEVERITY, Heat, alike, heat
from envaudit.report.lines import Line, plain_text
from envaudit.report.linkmatrix import links_of
from envaudit.report.nodedata import embedded
from envaudit.report.screen import printable, shortened
from envaudit.report.summary import header_lines, verdict_lines
from envaudit.report.timeline import timeline_lines
from envaudit.report.values import differences, known_groups

# The letters of the map as names of classes.
CLASSES = {
    "E": "error",
    "?": "incomplete",
    "W": "warning",
    "I": "info",
    "≠": "differs",
    "·": "well",
    "–": "none",
    " ": "unseen",
}
# What is shown at once; the rest of each list is folded below it, nothing is left out.
_GROUPS = 40
_ENTRIES = 6
_LINES = 10
_VALUE_CHARACTERS = 400
_NAMES_CHARACTERS = 150
# The verdict; the nodes that this cuts stand under its first finding.
_SENTENCE_CHARACTERS = 300


class Value(NamedTuple):
    """One value of a difference and who has it; `is_reference` where the others are held to it."""

    text: str
    nodes: str
    shared_by: int
    is_reference: bool


class Row(NamedTuple):
    """One difference."""

    path: str
    basis: str
    values: tuple[Value, ...]


class Entry(NamedTuple):
    """A finding as the page shows it.

    Attributes:
        number: its place among all, for links from a node to it.
        finding: itself.
        nodes: folded.
        rows: its differences.
        following: how many more only follow from these.
    """

    number: int
    finding: Finding
    nodes: str
    rows: tuple[Row, ...]
    following: int


class Group(NamedTuple):
    """The findings of one rule and severity.

    Attributes:
        rule: its id.
        title: what the register calls it; empty where the report has not asked.
        severity: theirs.
        entries: in the order of the report.
        nodes: how many they are about.
        why: what all of them say of the consequences, so that it is said once; empty where they do not.
        hint: what all of them advise, likewise.
    """

    rule: str
    title: str
    severity: str
    entries: tuple[Entry, ...]
    nodes: int
    why: str
    hint: str


def render(report: Report) -> str:
    """The report as one HTML document in UTF-8, of which nothing lies elsewhere."""
    style, script = _text("page.css"), _text("page.js")
    heat_of = heat(report)
    return _template().render(
        report=report,
        style=Markup(style),  # noqa: S704 - a file of this package, nothing that a node said
        script=Markup(script),  # noqa: S704 - likewise
        policy=f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'",
        # The last line is the worst: it comes first here.
        verdict=[plain_text(line) for line in reversed(verdict_lines(report))],
        header=[plain_text(line) for line in header_lines(report)],
        counts=_counts(report),
        groups=_groups(report),
        set_aside=[(each, fold(each.finding.nodes)) for each in report.set_aside],
        heat=heat_of,
        alike=alike(heat_of.rows) if heat_of.rows else [],
        meanings=_meanings(heat_of),
        classes=CLASSES,
        letters=OF_SEVERITY,
        missing=_missing(report),
        links=links_of(report.fingerprints),
        blocks=_blocks(report),
        # Escaped as JSON in a script element needs it, which is not as HTML does.
        data=Markup(embedded(report, heat_of)),  # noqa: S704
        most={
            "groups": _GROUPS,
            "entries": _ENTRIES,
            "lines": _LINES,
            "names": _NAMES_CHARACTERS,
            "sentence": _SENTENCE_CHARACTERS,
        },
        took=_took,
    )


def _groups(report: Report) -> list[Group]:
    """Findings of one rule together, in the order of the report, which is worst first."""
    entries = [
        Entry(
            number,
            finding,
            fold(finding.nodes),
            tuple(
                row for drift in finding.drifts if drift.kind != "unknown" for row in _rows(drift, finding)
            ),
            len(finding.following),
        )
        for number, finding in enumerate(report.findings)
    ]
    groups = []
    for (severity, rule), together in groupby(
        entries, key=lambda each: (each.finding.severity, each.finding.rule)
    ):
        listed = tuple(together)
        nodes = {node for each in listed for node in each.finding.nodes}
        why, hint = (
            _shared([each.finding.why for each in listed]),
            _shared([each.finding.hint for each in listed]),
        )
        title = report.rules[rule].title if rule in report.rules else ""
        groups.append(Group(rule, title, severity, listed, len(nodes), why, hint))
    return groups


def _shared(texts: list[str]) -> str:
    return texts[0] if len(set(texts)) == 1 else ""


def _rows(drift: Drift, finding: Finding) -> Iterator[Row]:
    known = known_groups(drift)
    for path, texts in differences(drift, _VALUE_CHARACTERS):
        values = tuple(
            Value(
                text,
                # The nodes of the finding stand above it already.
                "" if group.nodes == finding.nodes else fold(group.nodes),
                len(group.nodes),
                bool(drift.reference) and group is known[0],
            )
            for text, group in zip(texts, known)
        )
        yield Row(path, drift.basis, values)


def _missing(report: Report) -> list[tuple[str, Missing]]:
    """The nodes that gave no answer, those with the same reason together."""
    together: dict[Missing, list[str]] = {}
    for node, gone in report.missing.items():
        together.setdefault(gone, []).append(node)
    return [(fold(nodes), gone) for gone, nodes in together.items()]


def _counts(report: Report) -> list[tuple[str, int]]:
    """Severity and number of findings, worst first, without those that nobody found."""
    counts = {name: sum(each.severity == name for each in report.findings) for name in SEVERITIES}
    return [(name, count) for name, count in counts.items() if count]


def _meanings(of: Heat) -> list[tuple[str, str]]:
    """What the letters mean that the map has."""
    seen = set("".join(of.rows.values()))
    return [(letter, meaning) for letter, meaning in MEANINGS.items() if letter in seen and letter != " "]


def _blocks(report: Report) -> list[tuple[str, list[Line]]]:
    """What other commands show, line by line as on a terminal: heading and lines."""
    blocks: Sequence[tuple[str, list[Line]]] = (
        ("Clocks", clock_lines(report.clocks, report.clock_basis, report.verbose)),
        ("Numbers", check_lines(report.checks, report.verbose)),
        ("Collectives", collective_lines(report.collectives, report.verbose)),
        ("Facts", fact_lines(report.facts, report.sections, report.verbose)),
        ("History", timeline_lines(report.timeline, report.verbose)),
    )
    return [(heading, lines) for heading, lines in blocks if lines]


def _took(elapsed_s: float) -> str:
    return f"{elapsed_s:.1f} s" if elapsed_s else ""


@lru_cache(maxsize=1)
def _template() -> Template:
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalized,
    )
    environment.filters["cut"] = shortened
    return environment.from_string(_text("page.html.jinja"))


def _finalized(value: Any) -> Any:
    """What stands in the page: every text printable, before it is escaped."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@lru_cache(maxsize=3)
def _text(name: str) -> str:
    """A file of the page."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """As Content-Security-Policy names what may act: W3C CSP Level 3, 2.3.1."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
