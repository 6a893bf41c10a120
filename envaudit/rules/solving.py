"""What came of a solve: no solution, or one that needed a channel further down."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Tuple

from envaudit.rules.policy import Policy
from envaudit.rules.registry import Evidence, Found, rule


@rule(
    "EA050",
    severity="error",
    scope="node",
    needs=("solve",),
    title="no solution",
    why="Nothing can be installed: the specs contradict each other, or the channels lack what they ask for.",
    how_to_fix="Loosen one of the specs that are named, or add the channel that has the package.",
)
def no_solution(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """One finding for platforms that fail for the same reason; the specs at fault stand first."""
    yield from _conflicts(evidence, "conflicts", "no solution")


@rule(
    "EA051",
    severity="error",
    scope="node",
    needs=("solve",),
    title="no solution for the pip section",
    why="pip would end with an error, or replace what conda installed.",
    how_to_fix="Correct the lines that are named; what conda provides cannot be replaced by pip.",
)
def no_pip_solution(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """The lines of the pip section that the resolver's explanation names stand first."""
    yield from _conflicts(evidence, "pip_conflicts", "no solution for the pip section")


@rule(
    "EA052",
    severity="info",
    scope="node",
    needs=("solve",),
    title="a lower channel helped out",
    why="Under strict channel priority there is no solution: channels are mixed for a package.",
    how_to_fix="Ask for the package by 'channel::package' to make the choice a visible one.",
)
def lower_channel(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Flexible channel priority was needed on some platforms."""
    for facts in _solves(evidence):
        if facts["helped"]:
            lines = tuple(
                f"{platform}: {', '.join(names) or 'every channel had to count for everything'}"
                for platform, names in sorted(facts["helped"].items())
            )
            platforms = ", ".join(sorted(facts["helped"]))
            yield Found(f"a channel further down had to help out on {platforms}", evidence=lines)


def _solves(evidence: Evidence) -> Iterator[Dict[str, Any]]:
    for fingerprint in evidence.fingerprints:
        if "solve" in fingerprint.sections:
            yield fingerprint.sections["solve"].facts


def _conflicts(evidence: Evidence, key: str, message: str) -> Iterator[Found]:
    for facts in _solves(evidence):
        causes: Dict[Tuple[str, ...], List[Dict[str, Any]]] = {}
        for conflict in facts[key]:
            causes.setdefault(tuple(conflict["explanation"]), []).append(conflict)
        for explanation, alike in causes.items():
            specs = alike[0]["specs"]
            at_fault = ", ".join(dict.fromkeys(spec["text"] for spec in specs))
            platforms = ", ".join(conflict["platform"] for conflict in alike)
            hints = list(dict.fromkeys(hint for conflict in alike for hint in conflict["hints"]))
            yield Found(
                message=f"{message} on {platforms}" + (f": {at_fault}" if at_fault else ""),
                path=specs[0]["where"] if specs else "",
                evidence=tuple(f"{spec['where']}: {spec['text']}" for spec in specs[1:]) + explanation,
                hint=" ".join(hints),
            )
