"""Words that several rules need: what paths have in common, what is not known, and what to do."""

from __future__ import annotations

from typing import Dict, List, Sequence, Tuple

from envaudit.model.drift import Drift, join_path, split_path
from envaudit.model.nodeset import fold

_TOLD_ONCE = ("other launch", "other interpreter", "other source")


def common_path(drifts: Sequence[Drift]) -> str:
    """What the paths of some drifts have in common, by whole segments."""
    common = []
    for parts in zip(*(split_path(drift.path) for drift in drifts)):
        if len(set(parts)) > 1:
            break
        common.append(parts[0])
    return join_path(*common)


def not_known(drifts: Sequence[Drift]) -> Tuple[str, ...]:
    """Which nodes could not be held against the others, and why."""
    unknown: Dict[str, List[str]] = {}
    for drift in drifts:
        for group in drift.groups:
            # What another launch or source hides is told once, by EA905.
            if group.state == "unknown" and not group.why.startswith(_TOLD_ONCE):
                unknown.setdefault(group.why, []).extend(group.nodes)
    return tuple(f"not known on {fold(nodes)}: {why}" for why, nodes in sorted(unknown.items()))


def advice(usual: str, drifts: Sequence[Drift]) -> str:
    """A rule's usual advice, unless it points at the others, and there are none to follow."""
    if not drifts or "the others" not in usual:
        return usual
    if all(drift.basis == "baseline" for drift in drifts):
        return (
            "Bring it back to what it was, or accept what it is: envaudit baseline accept --from NODE@latest."
        )
    if not any(drift.reference for drift in drifts):
        return "Find out which of the values is right, and bring the other nodes to it."
    return usual
