"""What is judged on each node by itself, and told once for all nodes of which the same holds."""

from __future__ import annotations

from typing import Any, Callable, Dict, FrozenSet, Iterable, Iterator, List, Mapping

from envaudit.model.fingerprint import Fingerprint
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Evidence, Found

Facts = Mapping[str, Any]


def over_nodes(
    evidence: Evidence,
    judge: Callable[[Fingerprint], Iterable[Found]],
    left_out: FrozenSet[str] = frozenset(),
) -> Iterator[Found]:
    """What `judge` finds on each node; equal findings are one, with all their nodes.

    Args:
        evidence: whose fingerprints are judged.
        judge: yields findings without nodes.
        left_out: nodes of which another rule speaks already.
    """
    alike: Dict[Found, List[str]] = {}
    for fingerprint in evidence.fingerprints:
        if fingerprint.node not in left_out:
            for found in judge(fingerprint):
                alike.setdefault(found, []).append(fingerprint.node)
    for found, nodes in alike.items():
        yield found._replace(nodes=tuple(nodes))


def facts_of(fingerprint: Fingerprint, section: str) -> Facts:
    """The facts of a section that was read, wholly or in part; none otherwise."""
    read = fingerprint.sections.get(section)
    return read.facts if read is not None and read.status in ("ok", "partial") else {}


def mapping(value: object) -> Facts:
    """A fact that should be a map; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def told_between_nodes(evidence: Evidence, policy: Policy, rule_id: str, *paths: str) -> FrozenSet[str]:
    """The nodes of which a rule about differences speaks because of one of `paths`, or of what is below.

    That another node has it right is the better finding: one cause, one finding; so is that a lock says
    which is right. Where a policy or a waiver quiets that rule, nothing counts as told.
    """
    if policy.quiets(rule_id):
        return frozenset()
    with_lock = [pair for taken in evidence.taken_by_lock.values() for pair in taken.claims]
    claims = (*evidence.claims.get(rule_id, ()), *(claim for name, claim in with_lock if name == rule_id))
    return frozenset(
        node
        for claim in claims
        if any(f"{drift.path}/".startswith(f"{path}/") for drift in claim.drifts for path in paths)
        for node in claim.nodes
    )
