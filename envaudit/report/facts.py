"""Facts as lines, for `show`."""

from __future__ import annotations

from typing import Iterator, List, Mapping, NamedTuple, Sequence, Tuple

from envaudit.model.canonical import Fact
from envaudit.model.drift import join_path
from envaudit.model.fingerprint import Fingerprint
from envaudit.model.section import Section
from envaudit.report.lines import Line, Span, line
from envaudit.report.screen import printable, shortened
from envaudit.report.values import value_text

_VALUE_CHARACTERS = 100
# A column of labels is not made wider than this for the sake of one long path.
_LABEL_CHARACTERS = 48

# Keys of a small map whose value needs no name before it, and those that few readers want to see.
_SPEAKING = ("version", "value")
_HASHES = ("md5", "sha256")


class Row(NamedTuple):
    """One fact on its way to a line; `style` as in `lines.STYLES`."""

    label: str
    text: str
    style: str = ""


def fact_lines(fingerprints: Sequence[Fingerprint], sections: Sequence[str], verbose: bool) -> List[Line]:
    """Fingerprints, one line a fact: `gpu/driver  550.54.15`.

    Args:
        fingerprints: of one or more nodes, each under a head line.
        sections: names of those to show; empty for all.
        verbose: long values whole, and notes below the facts.
    """
    lines: List[Line] = []
    for fingerprint in fingerprints:
        if lines:
            lines.append(())
        taken = f"{fingerprint.source}, {fingerprint.captured_at}, envaudit {fingerprint.tool}"
        lines.append(line(Span(printable(fingerprint.node), "head"), f"  {printable(taken)}"))
        rows = [
            row
            for name in sorted(fingerprint.sections)
            if not sections or name in sections
            for row in _section_rows(fingerprint.sections[name], verbose)
        ]
        limit = 0 if verbose else _VALUE_CHARACTERS
        width = min(max((len(row.label) for row in rows), default=0), _LABEL_CHARACTERS)
        lines += [
            line(Span(f"  {row.label:<{width}}  {shortened(row.text, limit)}", row.style)) for row in rows
        ]
    return lines


def _section_rows(section: Section, verbose: bool) -> Iterator[Row]:
    if section.status != "ok" or not section.facts:
        yield Row(section.name, section.status)
    for error in section.errors:
        yield Row(section.name, printable(error), "warning")
    for key in sorted(section.facts):
        for label, text in _pairs((section.name, key), section.facts[key], verbose):
            yield Row(label, text)
    if verbose:
        for key in sorted(section.notes):
            for label, text in _pairs((section.name, key), section.notes[key], verbose):
                yield Row(label, text, "dim")


def _pairs(segments: Tuple[str, ...], value: Fact, verbose: bool) -> Iterator[Tuple[str, str]]:
    """The leaves of a map, each with its path; a map without maps inside is one leaf."""
    label = printable(join_path(*segments))
    if isinstance(value, dict) and value and (len(segments) < 3 or _holds_maps(value)):
        for key in sorted(value):
            yield from _pairs((*segments, key), value[key], verbose)
    elif isinstance(value, dict) and value:
        yield label, _flat(value, verbose)
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for place, item in enumerate(value):
            yield f"{label}[{place}]", _flat(item, verbose) if isinstance(item, dict) else value_text(item)
    elif isinstance(value, list) and value:
        yield label, ", ".join(value_text(item) for item in value)
    elif isinstance(value, (list, dict)):
        yield label, "none"
    else:
        yield label, value_text(value)


def _holds_maps(value: Mapping[str, Fact]) -> bool:
    return any(isinstance(item, dict) and item for item in value.values())


def _flat(value: Mapping[str, Fact], verbose: bool) -> str:
    """A small map in one line: what speaks for itself first, hashes only when asked for."""
    keys = sorted(value, key=lambda key: (key not in _SPEAKING, key))
    return ", ".join(
        value_text(value[key]) if key in _SPEAKING else f"{printable(key)} {value_text(value[key])}"
        for key in keys
        if verbose or key not in _HASHES
    )
