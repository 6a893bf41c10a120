"""Fingerprints against each other, and node by node against their reference."""

from __future__ import annotations

from collections import Counter
from typing import Callable, Dict, Iterator, List, Mapping, Sequence, Tuple

from envaudit.diff.launch import STARTS, choices
from envaudit.diff.paths import PathFilter
from envaudit.diff.sides import section_sides
from envaudit.diff.walk import View, walk
from envaudit.errors import UsageError
from envaudit.model.canonical import canonical_json
from envaudit.model.drift import Drift, Group
from envaudit.model.fingerprint import Fingerprint
from envaudit.model.nodeset import natural_key

_EVERYTHING = PathFilter()
# Labels of the two sides while one node is held against its reference. No node is called so.
_REFERENCE, _CURRENT = "<reference>", "<current>"


def compare(fingerprints: Sequence[Fingerprint], paths: PathFilter = _EVERYTHING) -> Tuple[Drift, ...]:
    """All differences between nodes, sorted by path.

    The reference at a path is the value of a strict majority of the nodes that have evidence
    there, basis `majority k/n`; without one there is no reference, basis `none`. A node whose
    ancestor map is absent stands in the drift of that map and in none below it.

    Args:
        fingerprints: of nodes with names of their own.
        paths: what is compared.

    Raises:
        UsageError: two fingerprints have one name.
    """
    counts = Counter(fingerprint.node for fingerprint in fingerprints)
    twice = sorted(node for node, count in counts.items() if count > 1)
    if twice:
        raise UsageError(f"{twice[0]} is named twice", next_step="Name each side of a comparison once.")
    return tuple(_differences(fingerprints, paths, _majority))


def compare_to_reference(
    reference: Mapping[str, Fingerprint],
    current: Mapping[str, Fingerprint],
    *,
    basis: str,
    suffix: str,
    paths: PathFilter = _EVERYTHING,
) -> Tuple[Drift, ...]:
    """Each node against the reference of the same name, equal differences folded over nodes.

    Args:
        reference: by node; nodes that are on one side only are left out.
        current: by node.
        basis: `baseline` or `lock`. What a lock says nothing of is not compared.
        suffix: what tells a node's reference from the node, `@good`.
        paths: what is compared.
    """
    folded: Dict[str, Tuple[Drift, List[str]]] = {}
    known: Dict[Tuple[str, str], Tuple[Drift, ...]] = {}
    for node in sorted(set(reference) & set(current), key=natural_key):
        before, now = reference[node], current[node]
        key = (before.digest, now.digest)
        if key not in known:
            known[key] = tuple(_against(before, now, basis, paths))
        for drift in known[key]:
            same = canonical_json([drift.path, drift.kind, [(g.state, g.value, g.why) for g in drift.groups]])
            folded.setdefault(same, (drift, []))[1].append(node)
    drifts = [_named(drift, nodes, suffix) for drift, nodes in folded.values()]
    return tuple(sorted(drifts, key=lambda drift: (drift.path, natural_key(drift.groups[0].nodes[0]))))


def _against(before: Fingerprint, now: Fingerprint, basis: str, paths: PathFilter) -> Iterator[Drift]:
    def choose(groups: Sequence[Group]) -> Tuple[Tuple[str, ...], str]:
        return (_REFERENCE,), basis

    pair = (_renamed(before, _REFERENCE), _renamed(now, _CURRENT))
    for drift in _differences(pair, paths, choose):
        if not (basis == "lock" and drift.section not in before.sections):
            yield drift


def _differences(
    fingerprints: Sequence[Fingerprint],
    paths: PathFilter,
    choose: Callable[[Sequence[Group]], Tuple[Tuple[str, ...], str]],
) -> Iterator[Drift]:
    """Digest first: whole fingerprints, then sections; only what differs is walked."""
    classes: Dict[str, Tuple[Fingerprint, List[str]]] = {}
    for fingerprint in fingerprints:
        classes.setdefault(fingerprint.digest, (fingerprint, []))[1].append(fingerprint.node)
    if len(classes) < 2:
        return
    nodes = sorted((fingerprint.node for fingerprint in fingerprints), key=natural_key)
    rank = {node: place for place, node in enumerate(nodes)}
    chosen = {start: choices(start, fingerprints) for start in STARTS}
    starts = {start: of for start, of in chosen.items() if len(set(of.values())) > 1}
    view = View(rank, starts, choose, paths)
    names = {name for fingerprint, _ in classes.values() for name in fingerprint.sections}
    for name in paths.covered(names):
        sides = section_sides(name, list(classes.values()))
        if sides:
            yield from walk(view, (name,), sides)


def _majority(groups: Sequence[Group]) -> Tuple[Tuple[str, ...], str]:
    total = sum(len(group.nodes) for group in groups)
    largest = max(groups, key=lambda group: len(group.nodes))
    if 2 * len(largest.nodes) > total:
        return largest.nodes, f"majority {len(largest.nodes)}/{total}"
    return (), "none"


def _renamed(fingerprint: Fingerprint, node: str) -> Fingerprint:
    return Fingerprint(
        node, fingerprint.source, fingerprint.captured_at, fingerprint.tool, fingerprint.sections
    )


def _named(drift: Drift, nodes: Sequence[str], suffix: str) -> Drift:
    """A drift of one node against its reference, with the names of all nodes it holds for."""
    labels = {_REFERENCE: tuple(f"{node}{suffix}" for node in nodes), _CURRENT: tuple(nodes)}

    def of(placeholders: Tuple[str, ...]) -> Tuple[str, ...]:
        return tuple(label for placeholder in placeholders for label in labels[placeholder])

    groups = tuple(Group(group.value, of(group.nodes), group.state, group.why) for group in drift.groups)
    return Drift(drift.path, drift.kind, groups, of(drift.reference), drift.basis)
