"""Why a platform has no solution: the specs at fault first, the solver's explanation shortened."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envaudit.lock.channels import Channel
from envaudit.lock.spec import Spec
from envaudit.lock.virtual import VirtualPackage

MAX_LINES = 12
"""Of an explanation; a real conflict of conda-forge can have thousands."""

MAX_BUILDS = 4
"""Of a hint."""

MAX_HINTS = 6
"""Of a conflict."""

# The solver's words: one spec at fault, several (`├─ python 3.11.* can be ...`), or one that nothing fits.
_ONE = re.compile(r"Cannot solve the request because of: (\S+) .*cannot be installed")
_ROOT = re.compile(r"[├└]─ (\S+)")
_NO_CANDIDATE = re.compile(r"No candidates were found for ([^\s\[]+)")
# Where a branch ends: what something needs and the rest of the request does not leave.
_LEAF = re.compile(r"─ ([^\s\[]+)( [^\n]*?)?, for which no candidates were found")
# One that a line of the source itself asks for.
_ASKED = re.compile(r"No candidates were found for (__[a-z0-9_]+)( [^\n]*?)?\.?$", re.MULTILINE)
# A virtual package that is assumed in another version than a package puts up with.
_CONFLICTING = re.compile(r"─ (__[a-z0-9_]+)( [^\n]*?)?, which conflicts with")
_CHANNEL_KEY = re.compile(r"\[channel=\"[^\"]*\"\]")
_MAX_WIDTH = 160


@dataclass(frozen=True)
class Conflict:
    """No solution on one platform.

    Attributes:
        platform: `linux-64`.
        specs: the source specs at fault, the first first; empty where the solver names none.
        explanation: the solver's words, at most `MAX_LINES` lines.
        hints: whole sentences, what to try.
    """

    platform: str
    specs: tuple[Spec, ...]
    explanation: tuple[str, ...]
    hints: tuple[str, ...] = ()


def conflict_of(
    told: Mapping[str, Any],
    specs: Sequence[Spec],
    channels: Sequence[Channel],
    virtual: Sequence[VirtualPackage],
) -> Conflict:
    """The solver's complaint in the words of the source file.

    Args:
        told: the `conflict` line of the solver's process.
        specs: all of the platform.
        channels: that were asked.
        virtual: what was assumed of the machines.
    """
    text, platform = str(told["text"]), str(told["platform"])
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    unknown: Mapping[str, str] = told["unknown"]
    explained = _names_at_fault(lines)
    # A virtual package that is assumed is in no channel either.
    names = [name for name in unknown if not name.startswith("__") or name in explained] or explained
    at_fault = [spec for spec in specs if spec.name in names]
    if not unknown:
        at_fault.sort(key=lambda spec: names.index(spec.name))
    if told["has_platform"]:
        hints = _unknown_hints(unknown, channels, platform)
    else:
        hints = [f"None of the channels ({_names(channels)}) has packages for {platform}."]
    hints += [_offer_hint(name, offers, platform) for name, offers in sorted(told["offers"].items())]
    hints += _virtual_hints(text, platform, virtual)
    if "strict channel priority" in text:
        hints.append(
            "A channel further down has what is missing: put it first, ask for it by "
            "'channel::package', or set channel_priority: flexible."
        )
    if len(hints) > MAX_HINTS:
        hints[MAX_HINTS - 1 :] = [f"({len(hints) - MAX_HINTS + 1} more)"]
    return Conflict(platform, tuple(at_fault), _shortened(lines), tuple(hints))


def _names_at_fault(lines: Sequence[str]) -> list[str]:
    """The outermost names of the explanation, then those that a branch ends at."""
    found = []
    one = _ONE.match(lines[0]) if lines else None
    for line in lines:
        for match in (_NO_CANDIDATE.search(line), None if one else _ROOT.match(line)):
            found += [match.group(1)] if match else []
    if one:
        found.insert(0, one.group(1))
    found += [match.group(1) for line in lines for match in _LEAF.finditer(line)]
    return list(dict.fromkeys(name.rpartition("::")[2].lower() for name in found))


def _unknown_hints(unknown: Mapping[str, str], channels: Sequence[Channel], platform: str) -> list[str]:
    """One for each name that no channel has; one for all where it is python that is missing."""
    # Of a virtual package no channel can tell.
    unknown = {name: nearest for name, nearest in unknown.items() if not name.startswith("__")}
    if "python" in unknown and all(channel.canonical != "conda-forge" for channel in channels):
        return [
            f"The channels ({_names(channels)}) do not even have python: "
            "is conda-forge missing among 'channels:'?"
        ]
    return [_unknown_hint(name, nearest, channels, platform) for name, nearest in sorted(unknown.items())]


def _unknown_hint(name: str, nearest: str, channels: Sequence[Channel], platform: str) -> str:
    # Many packages are for some platforms only.
    if nearest:
        return f"No channel has '{name}' for {platform}; did you mean '{nearest}'?"
    return f"No channel ({_names(channels)}) has '{name}' for {platform}; is it a package of the pip section?"


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


def _virtual_hints(text: str, platform: str, virtual: Sequence[VirtualPackage]) -> list[str]:
    """What is needed of the machine and what was assumed, and how to say otherwise."""
    assumed = {package.name: package.version for package in virtual}
    hints = []
    found = [*_ASKED.findall(text), *_LEAF.findall(text), *_CONFLICTING.findall(text)]
    for name, needed in dict.fromkeys(found):
        if not name.startswith("__"):
            continue
        has = f"assumed is {assumed[name]}" if name in assumed else "none is assumed"
        how = "give --cuda VERSION, or list it" if name == "__cuda" else "list it"
        hints.append(
            f"Needed of the machine is {name}{needed}, {has} for {platform}. If the nodes have it, "
            f"{how} in a --virtual-packages file under subdirs.{platform}.packages."
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
