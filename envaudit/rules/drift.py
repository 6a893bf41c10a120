"""The generic rule: facts that differ and that no other rule has a word for."""

from __future__ import annotations

from typing import Dict, Iterator, List, Sequence, Tuple

from envaudit.model.canonical import Fact
from envaudit.model.drift import Drift, join_path, split_path
from envaudit.model.nodeset import fold
from envaudit.rules.registry import Evidence, Found, Policy, rule

# From so many on, what differs on the same nodes in one section is one finding with a line each.
FOLD_FROM = 4

# Each fact of these is a finding on every node that has it, whatever the others have.
_TOLD_NODE_BY_NODE = ("integrity",)

_VERBS = {"changed": "differs", "missing": "is missing", "extra": "is extra", "some": "is on some nodes only"}
_PLURALS = {
    "changed": "differ",
    "missing": "are missing",
    "extra": "are extra",
    "some": "are on some nodes only",
}


@rule(
    "EA299",
    severity="error",
    scope="cross",
    title="facts differ",
    why="Ranks that run other software or other settings compute other numbers, or wait for each other.",
)
def facts_differ(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """One finding a drift; many drifts of one section on the same nodes are one finding."""
    differing = [
        drift
        for drift in evidence.drifts
        if drift.kind != "unknown" and drift.basis != "lock" and drift.section not in _TOLD_NODE_BY_NODE
    ]
    echoes = _echoes(differing)
    echoed = set(echoes.values())
    families: Dict[Tuple[Tuple[str, ...], str], List[Drift]] = {}
    for drift in differing:
        if drift.path not in echoed:
            families.setdefault((drift.outliers, drift.section), []).append(drift)
    for (outliers, _), drifts in families.items():
        if len(drifts) >= FOLD_FROM:
            yield _folded(outliers, drifts)
        else:
            for drift in drifts:
                echo = echoes.get(drift.path)
                yield Found(
                    message=f"{drift.path} {_VERBS[_direction(drift)]}",
                    nodes=outliers,
                    path=drift.path,
                    evidence=((f"likewise {echo}",) if echo else ()) + _not_known(drifts),
                    drifts=(drift,),
                )


def _echoes(drifts: Sequence[Drift]) -> Dict[str, str]:
    """Paths of conda packages to those of the distributions inside them that differ likewise.

    A conda package of Python code is a distribution too: one cause, seen from two sides.
    """
    inside = {(drift.path, drift.outliers): drift for drift in drifts if drift.section == "packages"}
    echoes = {}
    for drift in drifts:
        if drift.path.startswith("conda/packages/"):
            path = f"packages/distributions/{drift.path[len('conda/packages/') :]}"
            echo = inside.get((path, drift.outliers))
            if echo is not None and _versions(echo) == _versions(drift):
                echoes[drift.path] = path
    return echoes


def _versions(drift: Drift) -> List[Tuple[str, Fact]]:
    """What the groups say, in their order; of a whole package its version."""
    return [
        (group.state, group.value.get("version") if isinstance(group.value, dict) else group.value)
        for group in drift.groups
        if group.state != "unknown"
    ]


def _folded(outliers: Tuple[str, ...], drifts: Sequence[Drift]) -> Found:
    common = _common_path(drifts)
    packages = {split_path(drift.path)[2] for drift in drifts if _is_of_package(drift)}
    if len(packages) > 1 and all(_is_of_package(drift) for drift in drifts):
        kinds = {_direction(drift) for drift in drifts}
        verb = _PLURALS[kinds.pop()] if len(kinds) == 1 else "differ"
        message = f"{len(packages)} packages {verb}"
    else:
        message = f"{len(drifts)} facts of {common} differ"
    return Found(message, outliers, common, _not_known(drifts), drifts=tuple(drifts))


def _direction(drift: Drift) -> str:
    """The drift's kind, or `some` where no reference says who has too much and who too little."""
    return "some" if drift.kind == "missing" and not drift.reference else drift.kind


def _is_of_package(drift: Drift) -> bool:
    segments = split_path(drift.path)
    return len(segments) > 2 and segments[:2] in (("conda", "packages"), ("packages", "distributions"))


def _common_path(drifts: Sequence[Drift]) -> str:
    paths = [split_path(drift.path) for drift in drifts]
    common = []
    for parts in zip(*paths):
        if len(set(parts)) > 1:
            break
        common.append(parts[0])
    return join_path(*common)


def _not_known(drifts: Sequence[Drift]) -> Tuple[str, ...]:
    """Which nodes could not be held against the others, and why."""
    unknown: Dict[str, List[str]] = {}
    for drift in drifts:
        for group in drift.groups:
            # What another launch hides is told once, by EA905.
            if group.state == "unknown" and not group.why.startswith(("other launch", "other interpreter")):
                unknown.setdefault(group.why, []).extend(group.nodes)
    return tuple(f"not known on {fold(nodes)}: {why}" for why, nodes in sorted(unknown.items()))
