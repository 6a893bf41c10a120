"""Fleets of alike nodes that the real probe has read from fixtures/nodes, with one made otherwise."""

from __future__ import annotations

import copy
from functools import lru_cache
from pathlib import Path
from typing import Any, List, Tuple

from envaudit.diff import compare
from envaudit.model import Finding, Fingerprint
from envaudit.model.codec import fingerprint_of_answer
from envaudit.model.drift import split_path
from envaudit.model.section import Section
from envaudit.probe.runner import probe
from envaudit.rules import Evidence, Policy, judge
from tests.probe.conftest import NODES

GONE = object()
# The subjects of hosts, limits, networks and NCCL, and the rule of what nobody else speaks of.
_SUBJECTS = ("EA10", "EA11", "EA12", "EA13", "EA14", "EA4", "EA299")
Told = Tuple[str, str, Tuple[str, ...]]


def probed(folder: Path, name: str) -> Fingerprint:
    """A fake node in a folder, read by the probe."""
    answer = probe({"root": str(folder), "tool": "1"})
    return fingerprint_of_answer(answer, node=name, source="probe", where="answer")


@lru_cache(maxsize=None)
def _probed(fixture: str) -> Fingerprint:
    return probed(NODES / fixture, fixture)


def node_of(fixture: str, name: str = "") -> Fingerprint:
    """One fake node under a name of its own."""
    one = _probed(fixture)
    return Fingerprint(name or fixture, one.source, one.captured_at, one.tool, one.sections)


def fleet(fixture: str, count: int = 3) -> List[Fingerprint]:
    """`n1`, `n2`, ...: nodes as alike as can be."""
    return [node_of(fixture, f"n{number + 1}") for number in range(count)]


def edited(node: Fingerprint, path: str, value: Any, *, notes: bool = False) -> Fingerprint:
    """The node with one fact or note set, or taken out with `GONE`; maps on the way are made."""
    name, *inside, last = split_path(path)
    was = node.sections.get(name) or Section(name, 1, "ok", {})
    facts, said = copy.deepcopy(dict(was.facts)), copy.deepcopy(dict(was.notes))
    place: Any = said if notes else facts
    for segment in inside:
        place = place.setdefault(segment, {})
    if value is GONE:
        place.pop(last, None)
    else:
        place[last] = value
    # A section that was absent is there with the first fact.
    status = "ok" if was.status == "absent" else was.status
    section = Section(name, was.schema, status, facts, said, was.errors)
    return Fingerprint(node.node, node.source, node.captured_at, node.tool, {**node.sections, name: section})


def set_variable(node: Fingerprint, name: str, value: str, origin: str = "environment") -> Fingerprint:
    """The node with a setting of NCCL from the environment or a file."""
    return edited(node, f"env/nccl/{name}", {"value": value, "origin": origin})


def odd_of(fixture: str, *changes: Tuple[str, Any]) -> List[Fingerprint]:
    """Three nodes, the last of them with these facts."""
    *alike, odd = fleet(fixture)
    for path, value in changes:
        odd = edited(odd, path, value)
    return [*alike, odd]


def findings(nodes: List[Fingerprint], policy: Policy = Policy()) -> List[Finding]:  # noqa: B008
    """What the rules of these subjects say of the nodes and of their differences."""
    drifts = compare(nodes) if len(nodes) > 1 else ()
    found = judge(Evidence(tuple(nodes), drifts=drifts, comparing=len(nodes) > 1), policy)
    return [finding for finding in found if finding.rule.startswith(_SUBJECTS)]


def told(nodes: List[Fingerprint], policy: Policy = Policy()) -> List[Told]:  # noqa: B008
    """The same in brief."""
    return [(each.rule, each.severity, each.nodes) for each in findings(nodes, policy)]
