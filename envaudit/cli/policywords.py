"""What a policy changes of a run, in one line a file: nobody has to guess what a verdict rests on."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envaudit.cli.configurationkeys import PolicyFile

_NAMED = 4
_DIGEST_CHARACTERS = 12


def policy_lines(files: Sequence[PolicyFile], *, every: bool = False) -> tuple[str, ...]:
    """`envaudit.toml sha256:0123456789ab: EA402 off, 2 waivers`, of each file that changes anything.

    With `every`, of each file there is, and with the whole digest: it can be held against another run's.
    """
    lines = []
    for file in files:
        changes = ", ".join(_changes(file.table)) or ("changes nothing" if every else "")
        if changes:
            digest = file.sha256 if every else file.sha256[:_DIGEST_CHARACTERS]
            lines.append(f"{_seen_from_here(file.path)} sha256:{digest}: {changes}")
    return tuple(lines)


def _changes(table: Mapping[str, Any]) -> Iterator[str]:
    gate = table.get("gate", {})
    if gate.get("fail-on", "error") != "error":
        yield f"fails on {gate['fail-on']}"
    if gate.get("profile", "default") != "default":
        yield f"profile {gate['profile']}"
    if "require" in gate:
        yield f"requires {', '.join(gate['require']) or 'nothing'}"
    if "must-match" in gate:
        yield "must-match packages"
    if "max-bad-fraction" in gate:
        yield f"fleet-wide from {gate['max-bad-fraction']:.4g} on"
    rules, paths = table.get("rules", {}), table.get("paths", {})
    off = [name for name, settings in rules.items() if settings.get("severity") == "off"]
    off += [name for name, level in paths.items() if level == "off"]
    if off:
        more = f" and {len(off) - _NAMED} more" if len(off) > _NAMED else ""
        yield f"{' '.join(off[:_NAMED])}{more} off"
    changed = len(rules) + len(paths) - len(off)
    for number, noun in (
        (changed, "other setting"),
        (len(table.get("roles", ())), "role"),
        (len(table.get("waivers", ())), "waiver"),
    ):
        if number:
            yield f"{number} {noun}{'s' if number > 1 else ''}"


def _seen_from_here(path: str) -> str:
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
