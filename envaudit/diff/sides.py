"""Sides: the nodes that agree on a path, and what they say there.

A comparison works on sides, not on nodes: a thousand nodes with ten outliers are eleven sides.
"""

from __future__ import annotations

from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from envaudit.model.canonical import Fact, canonical_json
from envaudit.model.fingerprint import Fingerprint
from envaudit.model.section import Section

NOT_ASKED = "not asked"
UNREADABLE = "section could not be read"
NOT_READ = "not read"


class Side(NamedTuple):
    """Nodes with one value of a path.

    Attributes:
        nodes: in no particular order.
        state: one of `model.drift.GROUP_STATES`.
        value: the fact; None unless the state is `present`.
        why: the reason of state `unknown`.
        silent: an unknown that another finding reports, so that it makes no drift by itself.
        lacks: why a fact that is not inside `value` is unknown; empty when it is absent.
        lacks_silent: `silent` of such a fact.
        whole: keys of maps in `value` that were read to the end, whatever else is unknown.
        is_whole: whether `value` is such a map.
    """

    nodes: Tuple[str, ...]
    state: str
    value: Fact = None
    why: str = ""
    silent: bool = False
    lacks: str = ""
    lacks_silent: bool = False
    whole: Tuple[str, ...] = ()
    is_whole: bool = False

    @property
    def key(self) -> Tuple[str, str]:
        """Equal for sides that say the same; JSON, because Python holds `True == 1`."""
        text = self.why if self.state == "unknown" else canonical_json(self.value)
        return (self.state, text)

    def child(self, name: str) -> Side:
        """What these nodes say of a key inside the map at this path.

        In a section that was read in part, null is no answer either.
        """
        is_told = isinstance(self.value, dict) and name in self.value
        if isinstance(self.value, dict) and is_told:
            value = self.value[name]
            if value is not None or self.lacks != NOT_READ:
                return self._replace(value=value, whole=(), is_whole=name in self.whole)
        if self.state == "present" and self.lacks and (is_told or not self.is_whole):
            return Side(self.nodes, "unknown", None, self.lacks, self.lacks_silent)
        if self.state == "present":
            return Side(self.nodes, "absent")
        return self


def section_sides(name: str, classes: Sequence[Tuple[Fingerprint, Sequence[str]]]) -> List[Side]:
    """The sides of one section, one for each distinct digest.

    Args:
        name: the section.
        classes: fingerprints that differ, each with the nodes that have it.
    """
    variants: Dict[str, Tuple[Optional[Section], List[str]]] = {}
    for fingerprint, nodes in classes:
        section = fingerprint.sections.get(name)
        digest = section.digest if section is not None else ""
        variants.setdefault(digest, (section, []))[1].extend(nodes)
    if len(variants) == 1:
        return []
    schemas = [section.schema for section, _ in variants.values() if section is not None]
    return [_side(section, tuple(nodes), max(schemas)) for section, nodes in variants.values()]


def asked_for(side: Side) -> Side:
    """What these nodes say of what only those tell that were asked for it: what is not there is unknown."""
    return Side(side.nodes, "unknown", None, NOT_ASKED) if side.state == "absent" else side


def merged(sides: Iterable[Side]) -> List[Side]:
    """Sides that say the same, for the same reasons, joined."""
    joined: Dict[object, Side] = {}
    for side in sides:
        key = (side.key, side.lacks, side.silent, side.whole, side.is_whole)
        twin = joined.get(key)
        joined[key] = side if twin is None else twin._replace(nodes=twin.nodes + side.nodes)
    return list(joined.values())


def alike(sides: Sequence[Side]) -> bool:
    """Whether nothing is to be said of a path: all sides that are not silent say the same."""
    speaking = [side for side in sides if not side.silent]
    for side in speaking[1:]:
        if side.state != speaking[0].state or side.value != speaking[0].value:
            return False
    # Equal to Python; only its `True == 1` is left to be told apart.
    return len({side.key for side in speaking}) <= 1


def split(sides: Iterable[Side], label_of: Mapping[str, str]) -> Dict[str, List[Side]]:
    """Sides cut along a label of each node, by label."""
    parts: Dict[str, List[Side]] = {}
    for side in sides:
        by_label: Dict[str, List[str]] = {}
        for node in side.nodes:
            by_label.setdefault(label_of[node], []).append(node)
        for label, nodes in by_label.items():
            parts.setdefault(label, []).append(side._replace(nodes=tuple(nodes)))
    return parts


def _side(section: Optional[Section], nodes: Tuple[str, ...], newest_schema: int) -> Side:
    if section is None:
        return Side(nodes, "unknown", None, NOT_ASKED)
    if section.status == "error":
        return Side(nodes, "unknown", None, UNREADABLE, silent=True)
    if section.status == "absent":
        return Side(nodes, "absent")
    if section.status == "partial":
        return Side(nodes, "present", section.facts, lacks=NOT_READ, lacks_silent=True, whole=section.whole)
    if section.schema < newest_schema:
        return Side(nodes, "present", section.facts, lacks=f"older schema {section.schema}")
    return Side(nodes, "present", section.facts)
