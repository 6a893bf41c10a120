"""Two ways to compare what references name: node by node against a reference, or all with all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Dict, List, Mapping, Sequence, Tuple

from envaudit.cli.loading import Loaded
from envaudit.diff import PathFilter, compare, compare_to_reference
from envaudit.diff.launch import LAUNCH, choices
from envaudit.errors import UsageError
from envaudit.model import Drift, Fingerprint, Missing, split_path
from envaudit.model.nodeset import fold
from envaudit.report import Stage
from envaudit.rules import Policy
from envaudit.rules.claiming import has_two_values, holds_across_roles


@dataclass(frozen=True)
class Comparison:
    """What was compared with what.

    Attributes:
        current: the fingerprints that are judged, under the labels that the drifts use.
        missing: the nodes that gave no evidence, under such labels too.
        drifts: what differs.
        references: the fingerprints that these were held against, under labels of their own.
        description: what they were held against, `node[01-16]@good`; empty for all with all.
    """

    current: Tuple[Fingerprint, ...]
    missing: Mapping[str, Missing]
    drifts: Tuple[Drift, ...]
    references: Tuple[Fingerprint, ...] = ()
    description: str = ""


def compare_loaded(sides: Sequence[Loaded], paths: PathFilter, policy: Policy) -> Comparison:
    """Compare as the grammar says: two sides with equal node sets node by node, else all with all.

    All with all means each role within itself: a head node without a GPU misses none.

    Raises:
        UsageError: there is one node only, or a side names the same nodes live twice.
    """
    if len(sides) == 2 and set(sides[0].nodes) == set(sides[1].nodes):
        return _node_by_node(sides[0], sides[1], paths, policy)
    fingerprints, missing = labelled(sides)
    if len(fingerprints) + len(missing) < 2:
        raise UsageError(
            "one node alone has nothing to be compared with",
            next_step="Name a second node, or what is stored of this one: envaudit diff node01@good node01.",
        )
    return Comparison(fingerprints, missing, all_with_all(fingerprints, paths, policy))


def role_stages(comparison: Comparison, policy: Policy) -> Tuple[Stage, ...]:
    """Who was compared with whom, where that is not all with all."""
    roles: Dict[str, List[str]] = {}
    for each in comparison.current:
        roles.setdefault(policy.roles.get(each.node.partition("@")[0], ""), []).append(each.node)
    if comparison.references or len(roles) < 2:
        return ()
    told = [f"{role or 'no role'} {fold(nodes)}" for role, nodes in sorted(roles.items())]
    alone = [nodes[0] for nodes in roles.values() if len(nodes) == 1]
    rest = f" (alone, so compared only in what all roles share: {fold(alone)})" if alone else ""
    return (Stage("roles", f"{'; '.join(told)}: each within itself{rest}"),)


def all_with_all(
    fingerprints: Tuple[Fingerprint, ...], paths: PathFilter, policy: Policy
) -> Tuple[Drift, ...]:
    """The differences within each role, and what roles must have in common and have not."""
    roles: Dict[str, List[Fingerprint]] = {}
    for fingerprint in fingerprints:
        role = policy.roles.get(fingerprint.node.partition("@")[0], "")
        roles.setdefault(role, []).append(fingerprint)
    drifts = [drift for of_role in roles.values() for drift in compare(of_role, paths)]
    if len(roles) > 1:
        told = {drift.path for drift in drifts}
        between = {
            drift.path: drift
            for drift in compare(fingerprints, paths)
            if has_two_values(drift)
            and (drift.path not in told or _says_more(drift))
            and holds_across_roles(drift, policy)
        }
        # A worker that deviates must not hide that the head has a third version.
        drifts = [*(drift for drift in drifts if drift.path not in between), *between.values()]
    return tuple(sorted(drifts, key=lambda drift: drift.path))


def beside_baseline(
    before: Mapping[str, Fingerprint],
    current: Mapping[str, Fingerprint],
    paths: PathFilter,
    policy: Policy,
) -> Tuple[Drift, ...]:
    """What belongs to a launch, between nodes that were launched otherwise than what they are held against.

    It cannot be held against that; nodes that are launched alike now must be alike in it all the same, but
    for what made them differ then in the same way.

    Args:
        before: node → what it is held against.
        current: node → what it is.
        paths: what is compared.
        policy: whose roles are compared each within itself.
    """
    apart = [
        node for node, each in current.items() if node in before and _launch(each) != _launch(before[node])
    ]
    between = all_with_all(tuple(replace(current[node], node=node) for node in apart), paths, policy)
    followed = [drift for drift in between if _follows_launch(split_path(drift.path))]
    if not followed:
        return ()
    known = all_with_all(tuple(replace(before[node], node=node) for node in apart), paths, policy)
    return tuple(drift for drift in followed if drift not in known)


def _launch(fingerprint: Fingerprint) -> str:
    return choices(LAUNCH, (fingerprint,))[fingerprint.node]


def _follows_launch(segments: Sequence[str]) -> bool:
    return any(tuple(segments[: len(path)]) == path for path in LAUNCH.paths)


def _says_more(drift: Drift) -> bool:
    """Whether it names the nodes at fault of all roles: what one role lacks, or a tie, does not."""
    return bool(drift.reference) and all(group.state != "absent" for group in drift.groups)


def _node_by_node(before: Loaded, now: Loaded, paths: PathFilter, policy: Policy) -> Comparison:
    """Basis baseline: the first side is the reference of the second."""
    suffix, own = before.suffix, now.suffix
    if suffix == own:
        if before.reference.path is None:
            raise UsageError(f"'{before.reference.text}' is named twice")
        suffix, own = f"@{before.reference.text}", f"@{now.reference.text}"
    both = [node for node in before.fingerprints if node in now.fingerprints]
    reference = {node: before.fingerprints[node] for node in both}
    current = {node: now.fingerprints[node] for node in both}
    drifts = compare_to_reference(reference, current, basis="baseline", suffix=suffix, paths=paths)
    drifts = (*drifts, *beside_baseline(reference, current, paths, policy))
    missing = {f"{node}{suffix}": gone for node, gone in before.missing.items()}
    missing.update(now.missing)
    held = tuple(replace(each, node=f"{node}{suffix}") for node, each in reference.items())
    return Comparison(tuple(current.values()), missing, drifts, held, before.reference.text)


def labelled(sides: Sequence[Loaded]) -> Tuple[Tuple[Fingerprint, ...], Dict[str, Missing]]:
    """All nodes of all sides; a name that more than one side has is told apart by its suffix."""
    seen: Dict[str, int] = {}
    for side in sides:
        for node in side.nodes:
            seen[node] = seen.get(node, 0) + 1
    fingerprints: List[Fingerprint] = []
    missing: Dict[str, Missing] = {}
    labels = set()
    for side in sides:
        for node in side.nodes:
            label = node if seen[node] == 1 else f"{node}{side.suffix}"
            if label in labels:
                raise UsageError(f"'{label}' is named twice")
            labels.add(label)
            if node in side.fingerprints:
                fingerprints.append(replace(side.fingerprints[node], node=label))
            else:
                missing[label] = side.missing[node]
    return tuple(fingerprints), missing
