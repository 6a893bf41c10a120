"""Where a lock says which node is wrong, what differs between nodes for that reason is no finding of its own.

A node with another NCCL than its lock's also has another NCCL than the other nodes. The lock knows which
of them is right, and what to do about it: its finding leads, and takes the other along.
"""

from __future__ import annotations

from typing import AbstractSet, Dict, FrozenSet, Iterable, List, Mapping, Sequence, Tuple

from envaudit.model.drift import Drift, split_path
from envaudit.rules.claiming import REST
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Claim, TakenByLock

# Of the rules that say that a package is not as locked (rules/lock.py).
LOCK_RULES = ("EA200", "EA201", "EA202", "EA203", "EA204", "EA205")
# A package's path: section, table, name.
_PACKAGE = 3

Package = Tuple[str, ...]


NOTHING = TakenByLock()


def package_of(path: str) -> Package:
    """The package that a fact path lies in; the path itself where it is shorter."""
    return split_path(path)[:_PACKAGE]


def yield_to_lock(
    dealt: Mapping[str, Tuple[Claim, ...]],
    drifts: Iterable[Drift],
    policy: Policy,
    titles: Mapping[str, str],
) -> Tuple[Mapping[str, Tuple[Claim, ...]], Mapping[Package, TakenByLock]]:
    """The claims without those that a lock's finding takes along, and what it takes, by package.

    Where the policy or a waiver silences or softens what the lock says, nothing is taken: an error
    must not go with a remark.

    Args:
        dealt: rule id → claims, as `claiming.deal` gives them.
        drifts: all of the run, those against a lock among them.
        policy: of the run.
        titles: of rules, by id.
    """
    told = _told(drifts, policy)
    if not told:
        return dealt, {}
    kept: Dict[str, Tuple[Claim, ...]] = {}
    taken: Dict[Package, TakenByLock] = {}
    for rule_id, claims in dealt.items():
        left: List[Claim] = []
        for claim in claims:
            if rule_id == REST:
                rest = tuple(drift for drift in claim.drifts if not _package_at((drift,), told))
                left += [claim._replace(drifts=rest)] if rest else []
                continue
            package = _package_at(_all(claim), told)
            if not package:
                left.append(claim)
                continue
            before = taken.get(package, NOTHING)
            words = f"{titles.get(rule_id, 'differs')} ({rule_id})"
            own = (rule_id, claim._replace(nodes=tuple(sorted(told[package]))))
            taken[package] = TakenByLock((*before.claims, own), (*before.words, words))
        if left:
            kept[rule_id] = tuple(left)
    return kept, taken


def _told(drifts: Iterable[Drift], policy: Policy) -> Mapping[Package, FrozenSet[str]]:
    """The packages of which a lock's error tells, with the nodes at fault."""
    loud = all(policy.level_of(rule_id, "error") == "error" for rule_id in LOCK_RULES)
    if not loud or any(waiver.rule in LOCK_RULES for waiver in policy.waivers):
        return {}
    told: Dict[Package, FrozenSet[str]] = {}
    for drift in drifts:
        if drift.basis == "lock" and drift.kind != "unknown" and policy.level_of_path(drift.path) is None:
            package = package_of(drift.path)
            told[package] = told.get(package, frozenset()).union(drift.outliers)
    return told


def _all(claim: Claim) -> Sequence[Drift]:
    return (*claim.drifts, *claim.following)


def _package_at(drifts: Sequence[Drift], told: Mapping[Package, FrozenSet[str]]) -> Package:
    """The package for which all of these nodes differ, as a lock tells; empty for none."""
    for package in dict.fromkeys(package_of(drift.path) for drift in drifts):
        wrong = told.get(package)
        if wrong and all(differs_by(drift, wrong) for drift in drifts):
            return package
    return ()


def differs_by(drift: Drift, wrong: AbstractSet[str]) -> bool:
    """Whether it is these nodes that make the difference: without them all others are alike.

    Where most nodes are not as locked, those that are stand apart, and are not to blame. What another node
    has besides is a cause of its own.
    """
    known = [set(group.nodes) for group in drift.groups if group.state != "unknown"]
    return any(nodes & wrong for nodes in known) and sum(bool(nodes - wrong) for nodes in known) <= 1
