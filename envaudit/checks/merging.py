"""Sections `checks` of one node that several processes made, each of its own device, as one."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Sequence, Tuple

from envaudit.checks.section import folded


def merged(
    sections: Sequence[Tuple[Mapping[str, Any], Mapping[str, Any]]],
) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """Facts and notes of all devices; of what belongs to the run, what the first process says.

    Args:
        sections: facts and notes of each process, in the order of their ranks.
    """
    rows: Dict[str, Dict[str, Any]] = {}
    devices: Dict[str, Any] = {}
    usable: Dict[str, None] = {}
    for facts, notes in sections:
        own = _map(notes, "devices")
        others = _map(facts, "devices")
        for ordinal in own:
            each, other = _map(facts, "each"), _map(others, ordinal)
            rows[ordinal] = {part: {**_map(each, part), **_map(other, part)} for part in ("card", "cases")}
        devices.update(own)
        if facts.get("usable") not in (None, "ok"):
            usable[str(facts["usable"])] = None
    each, deviating = folded(
        {ordinal: rows[ordinal] for ordinal in sorted(rows, key=lambda name: (len(name), name))}
    )
    first, notes = sections[0]
    facts = {
        **first,
        "usable": "; ".join(usable) or "ok",
        "count": len(rows),
        "each": each,
        "devices": deviating,
    }
    return facts, {**notes, "devices": devices}


def _map(table: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = table.get(key)
    return value if isinstance(value, Mapping) else {}
