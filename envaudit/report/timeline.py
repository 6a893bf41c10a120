"""History as lines, for `log`: what changed on a node, and when."""

from __future__ import annotations

from typing import Iterator, List, Sequence, Tuple

from envaudit.report import Moment
from envaudit.report.lines import Line, Span, line
from envaudit.report.screen import printable
from envaudit.report.values import Difference, differences

_VALUE_CHARACTERS = 40
_CHANGES = 10
_RUN_CHARACTERS = 100
# As many unchanged snapshots in a row stand by themselves.
_QUIET = 3


def timeline_lines(moments: Sequence[Moment], verbose: bool) -> List[Line]:
    """One line a snapshot, and below it what changed since the one before.

    Snapshots of which nothing is to be said take one line together.

    Args:
        moments: of one or more nodes, each node's together and oldest first.
        verbose: long values whole, all changes.
    """
    lines: List[Line] = []
    node = ""
    for moment, quiet in _folded(moments, verbose):
        if quiet:
            lines.append(
                line(f"  {len(quiet)} more until {printable(quiet[-1].captured_at)}  ", _outcome(moment))
            )
            continue
        if moment.node != node:
            node = moment.node
            lines += (
                [(), line(Span(printable(node), "head"))] if lines else [line(Span(printable(node), "head"))]
            )
        tags = f"  [{', '.join(moment.tags)}]" if moment.tags else ""
        lines.append(line(f"  {printable(moment.captured_at + tags)}  ", _outcome(moment)))
        if moment.run:
            lines.append(line(f"      ran: {_shown(moment.run, verbose)}"))
        lines += _changes(moment, verbose)
        if moment.last_good:
            lines.append(line(f"      last good before: {_shown(moment.last_good, verbose)}"))
    return lines


def _folded(moments: Sequence[Moment], verbose: bool) -> Iterator[Tuple[Moment, List[Moment]]]:
    """Each moment, or the first of several that say nothing, with those."""
    quiet: List[Moment] = []
    for moment in (*moments, None):
        if moment is not None and not verbose and _says_nothing(moment):
            quiet.append(moment)
            continue
        if len(quiet) > _QUIET:
            yield quiet[0], quiet
        else:
            yield from ((each, []) for each in quiet)
        quiet = []
        if moment is not None:
            yield moment, []


def _says_nothing(moment: Moment) -> bool:
    """Nothing changed, nothing ran, and nobody gave it a name."""
    said = moment.drifts or moment.tags or moment.run or moment.last_good or moment.missing
    return not (moment.first or said)


def _shown(text: str, verbose: bool) -> str:
    """A command may be long: its beginning says which one it is."""
    shown = printable(text)
    return shown if verbose or len(shown) <= _RUN_CHARACTERS else f"{shown[:_RUN_CHARACTERS]}..."


def _outcome(moment: Moment) -> Span:
    if moment.missing is not None:
        return Span(printable(f"no answer, {moment.missing.kind}: {moment.missing.why}"), "incomplete")
    if moment.first:
        return Span("first snapshot")
    count = sum(drift.kind != "unknown" for drift in moment.drifts)
    if not count:
        return Span("unchanged where it can be compared" if moment.drifts else "unchanged", "dim")
    return Span("1 change" if count == 1 else f"{count} changes", "warning")


def _changes(moment: Moment, verbose: bool) -> List[Line]:
    shown = moment.drifts if verbose else moment.drifts[:_CHANGES]
    rows: List[Difference] = []
    for drift in shown:
        if drift.kind == "unknown":
            whys = sorted({group.why for group in drift.groups if group.why})
            rows.append(Difference(drift.path, (f"not compared, {', '.join(map(printable, whys))}",)))
        else:
            rows += differences(drift, 0 if verbose else _VALUE_CHARACTERS)
    labels = [printable(row.path) for row in rows]
    width = max(map(len, labels), default=0)
    first = max((len(row.texts[0]) for row in rows if len(row.texts) > 1), default=0)
    lines = []
    for label, row in zip(labels, rows):
        values = "  →  ".join([f"{row.texts[0]:<{first}}", *row.texts[1:]])
        lines.append(line(f"      {label:<{width}}  {values}"))
    if len(shown) < len(moment.drifts):
        lines.append(line(f"      {len(moment.drifts) - len(shown)} more (--verbose)"))
    return lines
