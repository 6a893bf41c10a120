"""A snapshot as a piece of HTML for a notebook: alike nodes in one row, the sections that differ named."""

from __future__ import annotations

from typing import Dict, List

from envaudit.model.fingerprint import Fingerprint, Snapshot
from envaudit.model.nodeset import fold
from envaudit.model.printing import escaped

_ROWS = 50
# So many characters of a digest tell nodes apart, and can be read aloud.
_DIGEST_CHARACTERS = 12


def fragment(snapshot: Snapshot) -> str:
    """One `div`: a row for each kind of node, the most frequent first; then the nodes that are missing."""
    kinds: Dict[str, List[Fingerprint]] = {}
    for fingerprint in snapshot.fingerprints:
        kinds.setdefault(fingerprint.digest, []).append(fingerprint)
    alike = sorted(kinds.values(), key=lambda each: -len(each))
    rows = [_row(together, alike[0][0]) for together in alike]
    rows += [
        _cells(node, "", "no answer", f"{gone.kind}: {gone.why}") for node, gone in snapshot.missing.items()
    ]
    rest = f"<p>{len(rows) - _ROWS} more</p>" if len(rows) > _ROWS else ""
    return (
        f'<div class="envaudit"><p><strong>{_count(len(snapshot.fingerprints), "node")}, '
        f"{_count(len(kinds), 'kind')}, {len(snapshot.missing)} missing</strong></p>"
        "<table><thead><tr><th>nodes</th><th>digest</th><th>sections</th><th>unlike the first row</th></tr>"
        f"</thead><tbody>{''.join(rows[:_ROWS])}</tbody></table>{rest}</div>"
    )


def _row(together: List[Fingerprint], first: Fingerprint) -> str:
    one = together[0]
    unlike = sorted(
        name for name in {*one.sections, *first.sections} if _digest(one, name) != _digest(first, name)
    )
    unread = sum(section.status in ("partial", "error") for section in one.sections.values())
    sections = _count(len(one.sections), "section") + (f", {unread} not read whole" if unread else "")
    return _cells(
        fold(each.node for each in together), one.digest[:_DIGEST_CHARACTERS], sections, ", ".join(unlike)
    )


def _digest(fingerprint: Fingerprint, name: str) -> str:
    section = fingerprint.sections.get(name)
    return section.digest if section is not None else ""


def _cells(*texts: str) -> str:
    return f"<tr>{''.join(f'<td>{escaped(text)}</td>' for text in texts)}</tr>"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
