"""The way down a section: from sides that differ to the paths that make the difference."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Callable, Dict, Iterator, List, Mapping, Sequence, Tuple

from envaudit.diff import packages
from envaudit.diff.launch import ASKED_FOR, STARTS, Start
from envaudit.diff.paths import LOCAL, PathFilter
from envaudit.diff.sides import Side, alike, asked_for, merged, split
from envaudit.model.canonical import Fact
from envaudit.model.drift import Drift, Group, join_path, split_path

# From the groups whose value is known, the reference group's nodes and the basis.
Choose = Callable[[Sequence[Group]], Tuple[Tuple[str, ...], str]]


@dataclass(frozen=True)
class View:
    """What a comparison is told beside the facts.

    Attributes:
        rank: the place of each node in sorted order.
        starts: for each thing that whoever starts a probe chooses, what was chosen for each node.
            Only those are there that are not the same for all nodes that are looked at.
        choose: finds the reference among groups.
        paths: what is compared at all.
    """

    rank: Mapping[str, int]
    starts: Mapping[Start, Mapping[str, str]]
    choose: Choose
    paths: PathFilter


def walk(view: View, segments: Tuple[str, ...], sides: Sequence[Side]) -> Iterator[Drift]:
    """The drifts at and below a path; an ancestor comes before what is inside it."""
    path = join_path(*segments)
    if any(segments == start.said for start in STARTS) or view.paths.ignores(path):
        return
    for start in view.starts:
        if segments in start.paths:
            yield from _walk_by_start(view, start, segments, sides)
            return
    sides = merged(sides)
    present = [side for side in sides if side.state == "present"]
    if len(present) < 2 or not all(isinstance(side.value, dict) for side in present):
        yield from _drift(view, path, sides)
        return
    if any(side.state == "absent" or _is_loud(side) for side in sides):
        # One drift says who lacks the map; what is in it is compared among those who have it.
        yield from _drift(view, path, [_bare(side) for side in sides])
        sides = [_told(side) for side in sides if side.state != "absent"]
    inside = _children(segments, sides)
    if packages.is_package(segments):
        yield from _walk_package(view, segments, inside)
        return
    for key in sorted(inside):
        yield from walk(view, (*segments, key), inside[key])


def _children(segments: Tuple[str, ...], sides: Sequence[Side]) -> Dict[str, List[Side]]:
    """For each key that does not read the same everywhere, the sides of it."""
    keys = {key for side in sides if isinstance(side.value, dict) for key in side.value}
    inside = {}
    for key in keys:
        children = [side.child(key) for side in sides]
        if segments in ASKED_FOR:
            children = [asked_for(child) for child in children]
        if not alike(children):
            inside[key] = children
    return inside


def _walk_package(view: View, segments: Tuple[str, ...], inside: Mapping[str, List[Side]]) -> Iterator[Drift]:
    """The drifts of one package's fields, without those that follow from an earlier one."""
    told: List[List[object]] = []
    for field in packages.in_causal_order(inside):
        sides, name = inside[field], field
        if view.paths.ignores(join_path(*segments, field)):
            continue
        if field == "version" and view.paths.selects(join_path(*segments, LOCAL)):
            tags = packages.local_tags(sides)
            sides, name = (tags, LOCAL) if tags else (sides, name)
        labels = [None if side.state == "unknown" else side.key for side in sides]
        if packages.follows(labels, told):
            continue
        drifts = list(walk(view, (*segments, name), sides))
        yield from drifts
        if drifts:
            told.append(list(labels))


def _walk_by_start(
    view: View, start: Start, segments: Tuple[str, ...], sides: Sequence[Side]
) -> Iterator[Drift]:
    """Compare nodes that were started alike; what differs only between starts is one unknown drift."""
    by_launch = split(sides, view.starts[start])
    one_launch = replace(view, starts={other: of for other, of in view.starts.items() if other is not start})
    said = []
    for name in sorted(by_launch):
        others = [
            Side(side.nodes, "unknown", None, f"{start.word}: {other}", silent=True)
            for other in sorted(by_launch)
            if other != name
            for side in by_launch[other]
        ]
        yield from walk(one_launch, segments, [*by_launch[name], *others])
        said.append({side.key for side in by_launch[name] if side.state != "unknown"})
    if all(keys == said[0] for keys in said if keys):
        return
    path = join_path(*segments)
    if any(view.paths.selects(path, side.value) for side in sides):
        groups = [
            Group(None, _ordered(view, part), "unknown", f"{start.word}: {name}")
            for name, part in by_launch.items()
        ]
        yield Drift(path, "unknown", _largest_first(view, groups), (), "none")


def _drift(view: View, path: str, sides: Sequence[Side]) -> Iterator[Drift]:
    """The drift at a path, if its sides make one."""
    if not any(view.paths.selects(path, side.value) for side in sides):
        return
    by_key: Dict[object, List[Side]] = {}
    for side in sides:
        by_key.setdefault(side.key, []).append(side)
    one_value = sum(same[0].state == "present" for same in by_key.values()) == 1
    groups = [
        Group(
            _brief(path, same[0].value) if one_value else same[0].value,
            _ordered(view, same),
            same[0].state,
            same[0].why,
        )
        for same in by_key.values()
    ]
    known = [group for group in groups if group.state != "unknown"]
    unknown = _largest_first(view, [group for group in groups if group.state == "unknown"])
    if len(known) > 1:
        reference, basis = view.choose(known)
        ordered = _largest_first(view, known, reference)
        yield Drift(path, _kind(ordered, reference), ordered + unknown, reference, basis)
    elif known and any(_is_loud(side) for side in sides):
        yield Drift(path, "unknown", (*known, *unknown), (), "none")


def _kind(groups: Sequence[Group], reference: Tuple[str, ...]) -> str:
    if not reference:
        return "missing" if any(group.state == "absent" for group in groups) else "changed"
    if groups[0].state == "absent":
        return "extra"
    return "missing" if all(group.state == "absent" for group in groups[1:]) else "changed"


def _is_loud(side: Side) -> bool:
    return side.state == "unknown" and not side.silent


def _told(side: Side) -> Side:
    """An unknown that has been reported is not reported again further down."""
    return side._replace(silent=True) if side.state == "unknown" else side


def _bare(side: Side) -> Side:
    """A map as one value, "present", when what is in it is compared below."""
    return side._replace(value=None) if side.state == "present" else side


def _brief(path: str, value: Fact) -> Fact:
    """The value where presence is the difference: only small maps are repeated, not whole sections."""
    segments = split_path(path)
    if not isinstance(value, dict) or packages.is_package(segments):
        return value
    is_small = len(segments) > 1 and not any(isinstance(item, dict) for item in value.values())
    return value if is_small else None


def _ordered(view: View, sides: Sequence[Side]) -> Tuple[str, ...]:
    return tuple(sorted((node for side in sides for node in side.nodes), key=view.rank.__getitem__))


def _largest_first(view: View, groups: Sequence[Group], reference: Tuple[str, ...] = ()) -> Tuple[Group, ...]:
    def place(group: Group) -> Tuple[bool, int, int]:
        return (group.nodes != reference, -len(group.nodes), view.rank[group.nodes[0]])

    return tuple(sorted(groups, key=place))
