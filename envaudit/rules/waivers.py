"""Waivers: what somebody has accepted, for whom and until when; and what is wrong with them."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from envaudit.model.finding import Finding
from envaudit.model.nodeset import fold
from envaudit.rules.policy import Policy, Waiver
from envaudit.rules.registry import Evidence, Found, rule


class Waived(NamedTuple):
    """What one waiver took out of a run: the finding, with the nodes that it was waived for."""

    waiver: Waiver
    finding: Finding


@rule(
    "EA910",
    severity="error",
    scope="cross",
    title="waiver has expired",
    why="What was accepted for a time is accepted no longer, and somebody counts on it.",
    how_to_fix="Mend what it waived and remove it, or give it a later date and a reason anew.",
)
def expired_waiver(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """A waiver whose last day is over, whether or not it would still match."""
    known = [*(each.node for each in evidence.fingerprints), *evidence.missing]
    judged = {node.partition("@")[0] for node in known}
    for waiver in policy.waivers:
        if is_expired(waiver, policy):
            yield Found(
                f"waiver of {waiver.rule} expired on {waiver.expires}",
                tuple(node for node in waiver.nodes if node in judged),
                evidence=_words(waiver),
            )


@rule(
    "EA911",
    severity="warning",
    scope="cross",
    title="waiver that waives nothing",
    why="It may be mistyped, or what it waived has been mended: the next such fault would go unseen.",
    how_to_fix="Remove it, or correct its rule, path or nodes.",
)
def unused_waiver(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """A waiver that holds and matched no finding, of a run that looked at all it could match."""
    for waiver in evidence.unused_waivers:
        yield Found(f"waiver of {waiver.rule} waives nothing", waiver.nodes, evidence=_words(waiver))


def is_expired(waiver: Waiver, policy: Policy) -> bool:
    """Whether the last day of a waiver is before the day of the run; dates of ISO 8601 sort as text."""
    return bool(policy.today) and waiver.expires < policy.today


def apply(findings: Sequence[Finding], policy: Policy) -> Tuple[List[Finding], List[Waived]]:
    """Take out what is waived; a finding about several nodes keeps those that no waiver names."""
    kept: List[Finding] = []
    waived: List[Waived] = []
    holding = [waiver for waiver in policy.waivers if not is_expired(waiver, policy)]
    for finding in findings:
        left = finding
        for waiver in holding:
            hit = _nodes_hit(waiver, left)
            if hit is None:
                continue
            waived.append(Waived(waiver, replace(left, nodes=hit)))
            rest = tuple(node for node in left.nodes if node not in hit)
            if not rest:
                break
            left = replace(left, nodes=rest)
        else:
            kept.append(left)
    return kept, waived


def unused(policy: Policy, waived: Iterable[Waived], judged: Iterable[str]) -> Tuple[Waiver, ...]:
    """The waivers that hold and matched nothing, though the nodes that they name were judged.

    One that renews another in good time matches what the other takes out.
    """
    if not policy.full:
        return ()
    taken = list(waived)
    used = {
        id(waiver)
        for waiver in policy.waivers
        if any(waiver is each.waiver or _nodes_hit(waiver, each.finding) is not None for each in taken)
    }
    nodes: Set[str] = {node.partition("@")[0] for node in judged}
    return tuple(
        waiver
        for waiver in policy.waivers
        if id(waiver) not in used and not is_expired(waiver, policy) and nodes.issuperset(waiver.nodes)
    )


def _nodes_hit(waiver: Waiver, finding: Finding) -> Optional[Tuple[str, ...]]:
    """The nodes of a finding that a waiver takes; empty for a finding without nodes, None for no match."""
    if waiver.rule != finding.rule or finding.severity == "incomplete" or finding.rule == "EA910":
        return None
    if waiver.path is not None and not _covers(waiver, finding):
        return None
    if not waiver.nodes:
        return finding.nodes
    return tuple(node for node in finding.nodes if waiver.names(node)) or None


def _covers(waiver: Waiver, finding: Finding) -> bool:
    """Whether every path of a finding is one that the waiver means."""
    assert waiver.path is not None
    paths = [drift.path for drift in finding.drifts] or [finding.path]
    return all(waiver.path.matches(path) for path in paths)


def _words(waiver: Waiver) -> Tuple[str, ...]:
    told: Dict[str, str] = {
        "reason": waiver.reason,
        "owner": waiver.owner,
        "nodes": fold(waiver.nodes),
        "path": waiver.path.text if waiver.path else "",
        "in": waiver.where,
    }
    return tuple(f"{name}: {value}" for name, value in told.items() if value)
