"""The nodes of the public cases: a healthy one, with what the case says of it.

PROVENANCE: made by hand after public threads, which each test names.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List, Optional, Sequence, Tuple

from envaudit.diff import compare
from envaudit.model import Finding, Fingerprint, Section
from envaudit.rules import Evidence, Policy, judge
from tests.property.healthy_fleets import CARDS, Shape, node_of

A100, H100, B200, L40S, RTX_4090, T4 = CARDS

# A training node over ssh, eight H100 and a recent stack of wheels; each case replaces what it is about.
USUAL = Shape(
    launch="ssh",
    container="none",
    manager="pip",
    torch="2.7.1",
    card=H100,
    gpus=8,
    driver="570.124.06",
    fabric="InfiniBand",
    rails=8,
    packages={},
    settings=(),
)


def node(name: str, shape: Shape = USUAL, facts: Optional[Dict[str, Any]] = None) -> Fingerprint:
    """A healthy node of a shape, with other facts at some paths: `{"gpu/each/mig": "enabled"}`."""
    made = node_of(shape, name, 1)
    for path, value in (facts or {}).items():
        made = _with(made, path.split("/"), value)
    return made


def with_note(made: Fingerprint, section: str, **notes: Any) -> Fingerprint:
    """The node with other notes in a section."""
    was = made.sections[section]
    return replace(made, sections={**made.sections, section: replace(was, notes={**was.notes, **notes})})


def _with(made: Fingerprint, path: Sequence[str], value: object) -> Fingerprint:
    name, *keys = path
    was = made.sections.get(name, Section(name, 1, "ok"))
    facts = _replaced(was.facts, keys, value)
    return replace(made, sections={**made.sections, name: replace(was, status="ok", facts=facts)})


def _replaced(within: Any, keys: Sequence[str], value: object) -> Any:
    if not keys:
        return value
    inner = within.get(keys[0]) if isinstance(within, dict) else None
    return {**(within or {}), keys[0]: _replaced(inner, keys[1:], value)}


def findings(*nodes: Fingerprint, policy: Policy = Policy(), **more: Any) -> List[Finding]:  # noqa: B008
    """What all rules say of some nodes, and of how they differ."""
    evidence = Evidence(tuple(nodes), drifts=compare(nodes), comparing=len(nodes) > 1, **more)
    return list(judge(evidence, policy))


def said(found: Sequence[Finding]) -> List[Tuple[str, str, Tuple[str, ...]]]:
    """Severity, rule and nodes of each, worst first."""
    return [(each.severity, each.rule, each.nodes) for each in found]
