"""Why a platform has no solution: the specs at fault first, the solver's explanation shortened."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envaudit.lock.channels import Channel
from envaudit.lock.spec import Spec

MAX_LINES = 12
"""Of an explanation; a real conflict of conda-forge can have thousands."""

MAX_BUILDS = 4
"""Of a hint."""

_ROOT = re.compile(r"^(?:[├└]─ )(\S+)")
_NO_CANDIDATE = re.compile(r"No candidates were found for (\S+)")
_CHANNEL_KEY = re.compile(r"\[channel=\"[^\"]*\"\]")
_VIRTUAL = re.compile(r"(?<![\w])(__[a-z0-9]+)")
_MAX_WIDTH = 160


@dataclass(frozen=True)
class Conflict:
    """No solution on one platform.

    Attributes:
        platform: `linux-64`.
        specs: the source specs at fault, `(text, where)`; empty where the solver names none.
        explanation: the solver's words, at most `MAX_LINES` lines.
        hints: whole sentences, what to try.
    """

    platform: str
    specs: tuple[Spec, ...]
    explanation: tuple[str, ...]
    hints: tuple[str, ...] = ()


def conflict_of(told: Mapping[str, Any], specs: Sequence[Spec], channels: Sequence[Channel]) -> Conflict:
    """The solver's complaint in the words of the source file."""
    lines = [line.rstrip() for line in str(told["text"]).splitlines() if line.strip()]
    names = _names_at_fault(lines)
    unknown: Mapping[str, str] = told["unknown"]
    at_fault = tuple(spec for spec in specs if spec.name in unknown or (spec.name in names and not unknown))
    platform = str(told["platform"])
    if told["has_platform"]:
        hints = [_unknown_hint(name, nearest, channels) for name, nearest in sorted(unknown.items())]
    else:
        hints = [f"None of the channels ({_names(channels)}) has packages for {platform}."]
    hints += [_offer_hint(name, offers, platform) for name, offers in sorted(told["offers"].items())]
    hints += _virtual_hints(lines, platform)
    if any("strict channel priority" in line for line in lines):
        hints.append(
            "A channel further down has what is missing: put it first, ask for it by "
            "'channel::package', or set channel_priority: flexible."
        )
    return Conflict(platform, at_fault, _shortened(lines), tuple(hints))


def _names_at_fault(lines: Sequence[str]) -> set[str]:
    """The names on the outermost branches of the explanation, and those without a candidate."""
    found = set()
    for line in lines:
        root = _ROOT.match(line)
        missing = _NO_CANDIDATE.search(line)
        for match in (root, missing):
            if match:
                found.add(match.group(1).rpartition("::")[2].lower())
    return found


def _unknown_hint(name: str, nearest: str, channels: Sequence[Channel]) -> str:
    if nearest:
        return f"No channel has '{name}'; did you mean '{nearest}'?"
    return f"No channel ({_names(channels)}) has '{name}'; is it a package of the pip section?"


def _offer_hint(name: str, offers: Mapping[str, Sequence[str]], platform: str) -> str:
    builds, versions = offers["builds"], offers["versions"]
    if builds:
        more = f" and {len(builds) - MAX_BUILDS} more" if len(builds) > MAX_BUILDS else ""
        return (
            f"Of {name} in that version the channels have other builds for {platform}: "
            f"{', '.join(builds[:MAX_BUILDS])}{more}."
        )
    return f"Of {name} the channels have {' to '.join(versions) or 'nothing'} for {platform}."


def _names(channels: Sequence[Channel]) -> str:
    return ", ".join(channel.canonical for channel in channels)


def _virtual_hints(lines: Sequence[str], platform: str) -> list[str]:
    names = sorted({name for line in lines for name in _VIRTUAL.findall(line)})
    hints = []
    for name in names:
        how = "give --cuda 12.4, or list it" if name == "__cuda" else "list it"
        hints.append(
            f"{name} is a fact of the machine that the solve assumes: to change it for {platform}, {how} "
            f"in a --virtual-packages file under subdirs.{platform}.packages."
        )
    return hints


def _shortened(lines: Sequence[str]) -> tuple[str, ...]:
    """The first lines, repeated ones once, without the channels' addresses."""
    kept: list[str] = []
    seen = set()
    for line in lines:
        text = _CHANNEL_KEY.sub("", line)
        if text.startswith("Cannot solve the request because of: "):
            text = text.partition(": ")[2]
        if text.lstrip("│├└─ ") in seen:
            continue
        seen.add(text.lstrip("│├└─ "))
        kept.append(text if len(text) <= _MAX_WIDTH else text[: _MAX_WIDTH - 1] + "…")
    if len(kept) > MAX_LINES:
        return (*kept[: MAX_LINES - 1], f"({len(kept) - MAX_LINES + 1} more lines)")
    return tuple(kept)
