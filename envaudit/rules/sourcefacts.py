"""What the rules over the Section `envfile` share: its sources, places, and versions."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterator, List, Sequence, Tuple

from envaudit.rules.registry import Evidence, Found

Facts = Dict[str, Any]

# The systems that a platform such as `linux-64` begins with.
LINUX, WINDOWS, MACOS = "linux", "win", "osx"


def sources_of(evidence: Evidence) -> Iterator[Facts]:
    """The source files of all fingerprints, in their order."""
    for fingerprint in evidence.fingerprints:
        section = fingerprint.sections.get("envfile")
        if section is not None:
            sources = section.facts.get("sources")
            yield from sources if isinstance(sources, list) else ()


def place(fact: Facts) -> str:
    """`environment.yml:12:5`."""
    return f"{fact['path']}:{fact['line']}:{fact['column']}"


def start_of(source: Facts) -> str:
    """The place of what is not in a file."""
    return f"{source['path']}:1:1"


def at(fact: Facts, message: str, evidence: Sequence[str] = (), hint: str = "") -> Found:
    """A finding at the place of a fact."""
    return Found(message, path=place(fact), evidence=tuple(evidence), hint=hint)


def others(facts: Sequence[Facts]) -> Tuple[str, ...]:
    """Evidence lines: place and text of further facts that a finding is about."""
    return tuple(f"{place(fact)}: {fact['text']}" for fact in facts)


def conda_entries(source: Facts, *names: str) -> List[Facts]:
    """The conda entries of a source; those of some names only where names are given."""
    found = [entry for entry in source["entries"] if entry["kind"] == "conda"]
    return [entry for entry in found if entry["key"] in names] if names else found


def pip_entries(source: Facts, *kinds: str) -> List[Facts]:
    """The pip entries of some kinds; of all kinds where none is given."""
    found = [entry for entry in source["entries"] if entry["kind"] != "conda"]
    return [entry for entry in found if entry["kind"] in kinds] if kinds else found


def overlap(one: Facts, other: Facts) -> bool:
    """Whether two entries count on a platform together."""
    first, second = one.get("platforms"), other.get("platforms")
    return first is None or second is None or not set(first).isdisjoint(second)


def systems_of(source: Facts) -> Tuple[str, ...]:
    """The systems that a source is for: of its `platforms`, else Linux, which clusters run."""
    named = {str(platform["text"]).partition("-")[0] for platform in source["platforms"]}
    return tuple(sorted(named)) or (LINUX,)


def exact_version(version: str) -> str:
    """`1.13` of `=1.13`, `==1.13`, `1.13` and `1.13.*`; empty for a range."""
    bare = version.lstrip("=")
    if bare.endswith(".*"):
        bare = bare[:-2]
    return bare if re.match(r"[A-Za-z0-9][A-Za-z0-9_.!+-]*\Z", bare) else ""


def may_be_one(conda: str, pip: str) -> bool:
    """Whether one version can meet both constraints, as far as exact ones tell.

    conda's `=2.1` and either's `2.1.*` stand for a series, `==2.1` for itself; a local version
    such as `+cu118` says how pip's was built.
    """
    ours, theirs = exact_version(conda), exact_version(pip)
    if not ours or not theirs:
        return True
    first, second = _numbers(ours), _numbers(theirs)
    in_series = conda.endswith(".*") or (conda.startswith("=") and not conda.startswith("=="))
    if in_series and pip.endswith(".*"):
        length = min(len(first), len(second))
        return first[:length] == second[:length]
    if in_series:
        return _padded(second, len(first))[: len(first)] == first
    if pip.endswith(".*"):
        return _padded(first, len(second))[: len(second)] == second
    length = max(len(first), len(second))
    return _padded(first, length) == _padded(second, length)


def _numbers(version: str) -> List[str]:
    return version.lower().partition("+")[0].split(".")


def _padded(numbers: List[str], length: int) -> List[str]:
    return numbers + ["0"] * (length - len(numbers))
