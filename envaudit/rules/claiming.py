"""Which rule speaks of which difference: causes before symptoms, each difference once.

Another NCCL on one node also has another conda package, another wheel, another path and another
build. That is one cause, and one finding: the rule of the cause takes what follows from it along.
"""

from __future__ import annotations

import re
from typing import Callable, Dict, Iterable, List, Mapping, Pattern, Sequence, Set, Tuple

from envaudit.model.drift import Drift
from envaudit.model.pathpattern import patterns_of
from envaudit.rules.catalogue import is_alike, with_alike_as_one
from envaudit.rules.policy import Policy, Waiver
from envaudit.rules.registry import Claim, Claims, Evidence, Rule, all_rules

# Who speaks of what no other rule has a word for.
REST = "EA299"
# Ranks with two of it hang, whatever else is accepted of their nodes: it goes with no finding that a
# policy or a waiver has made less than an error, nor with one that does not explain it.
_GRAVE = ("libraries/nccl/version",)


def deal(evidence: Evidence, rules: Iterable[Rule], policy: Policy) -> Mapping[str, Tuple[Claim, ...]]:
    """The claims of each rule; under `REST` one claim with everything that is left.

    What the policy gives a level by its path is left to `REST`, which tells it at that level.
    """
    left: List[Drift] = []
    rest: List[Drift] = []
    for drift in evidence.drifts:
        # What a lock says of a node is for the rules of the lock.
        if drift.kind == "unknown" or drift.basis == "lock" or is_alike(drift):
            continue
        drift = with_alike_as_one(drift)
        level = policy.level_of_path(drift.path)
        if level is None:
            left.append(drift)
        elif level != "off":
            rest.append(drift)
    dealt: Dict[str, Tuple[Claim, ...]] = {}
    speaking = [(rule.id, rule.claims) for rule in rules if rule.claims is not None]
    for rule_id, claims in sorted(speaking, key=lambda pair: (pair[1].order, pair[0])):
        if not left:
            break
        own = _taken(left, claims, policy)
        if own:
            taken = set(map(id, own))
            left = [drift for drift in left if id(drift) not in taken]
            dealt[rule_id], left = _with_symptoms(own, left, rule_id, claims, evidence, policy)
    rest = sorted([*rest, *left], key=lambda drift: drift.path)
    if rest:
        dealt[REST] = (Claim((), tuple(rest), (), evidence),)
    return dealt


def _taken(left: Sequence[Drift], claims: Claims, policy: Policy) -> List[Drift]:
    matches = matcher(claims.of)
    return [
        drift for drift in left if matches(drift.path) and (claims.when is None or claims.when(drift, policy))
    ]


def _with_symptoms(
    own: Sequence[Drift], left: List[Drift], rule_id: str, claims: Claims, evidence: Evidence, policy: Policy
) -> Tuple[Tuple[Claim, ...], List[Drift]]:
    """One claim for each group of outliers, and what no claim has taken along.

    What a waiver means by its path has a claim of its own, which takes along what no other does.
    """
    groups: Dict[Tuple[Tuple[str, ...], Tuple[Waiver, ...]], List[Drift]] = {}
    for drift in own:
        groups.setdefault((drift.outliers, policy.waivers_of(drift, rule_id)), []).append(drift)
    follows, grave, quieted = matcher(claims.follows), matcher(_GRAVE), policy.quiets(rule_id)
    symptoms = [drift for drift in left if follows(drift.path) and not (quieted and grave(drift.path))]
    made = []
    gone: Set[int] = set()
    for (nodes, _), drifts in sorted(groups.items(), key=lambda group: len(group[0][1])):
        among = set(nodes)
        following = [
            drift
            for drift in symptoms
            if id(drift) not in gone
            and among.issuperset(drift.outliers)
            and (not grave(drift.path) or _explain(drifts, drift))
        ]
        gone.update(map(id, following))
        made.append(Claim(nodes, tuple(drifts), tuple(following), evidence))
    return tuple(made), [drift for drift in left if id(drift) not in gone]


def _explain(causes: Iterable[Drift], symptom: Drift) -> bool:
    """Whether outliers that are alike in all causes are alike in what should follow from them."""
    of_node: Dict[str, List[int]] = {}
    for drift in causes:
        for place, group in enumerate(drift.groups):
            for node in group.nodes:
                of_node.setdefault(node, []).append(place)
    odd = set(symptom.outliers)
    told = {tuple(places) for node, places in of_node.items() if node in odd}
    return not any(tuple(places) in told for node, places in of_node.items() if node not in odd)


def holds_across_roles(drift: Drift, policy: Policy) -> bool:
    """Whether nodes of different roles must be alike in what differs."""
    return any(
        bool(matcher(rule.claims.of)(drift.path))
        and (rule.claims.when is None or rule.claims.when(drift, policy))
        for rule in all_rules()
        if rule.claims is not None and rule.claims.across_roles
    )


def has_two_values(drift: Drift) -> bool:
    """Whether two nodes that have the fact have it otherwise: what one lacks is a matter of its role."""
    return sum(group.state == "present" for group in drift.groups) > 1


_MATCHERS: Dict[Tuple[str, ...], Pattern[str]] = {}


def matcher(texts: Tuple[str, ...]) -> Callable[[str], object]:
    """Whether a path matches one of some patterns. Compiled where it is first needed: once a run."""
    if texts not in _MATCHERS:
        wholes = [pattern.whole.pattern for pattern in patterns_of(texts, "a rule's patterns")]
        _MATCHERS[texts] = re.compile("|".join(f"(?:{whole})" for whole in wholes) or r"(?!)", re.DOTALL)
    return _MATCHERS[texts].match
