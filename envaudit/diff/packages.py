"""Which of a package's differences is the cause, and which ones only follow from it.

Another version brings another build and another hash along. What already tells the same nodes
apart in an earlier field is not told again.
"""

from __future__ import annotations

from typing import Dict, Iterable, List, Sequence, Tuple

from envaudit.diff.sides import Side

# Maps from a package's name to its fields.
PACKAGE_MAPS: Tuple[Tuple[str, ...], ...] = (("conda", "packages"), ("packages", "distributions"))

# Cause before symptom; fields that are not named stand between the two lists.
# A checkout's commit gives its version, and what is no checkout has no commit.
_FIRST = ("editable", "commit", "version", "build", "build_number", "channel")
_LAST = ("url", "md5", "sha256")


def is_package(segments: Sequence[str]) -> bool:
    """Whether a path is that of one package."""
    return tuple(segments[:-1]) in PACKAGE_MAPS


def in_causal_order(fields: Iterable[str]) -> List[str]:
    """Field names, causes first."""

    def rank(field: str) -> Tuple[int, int, str]:
        if field in _FIRST:
            return (0, _FIRST.index(field), field)
        if field in _LAST:
            return (2, _LAST.index(field), field)
        return (1, 0, field)

    return sorted(fields, key=rank)


def local_tags(versions: Sequence[Side]) -> List[Side]:
    """The sides of the local tag (`cu121` of `2.1.0+cu121`), where that alone tells versions apart.

    Empty when the public versions differ too, or a side has none: then the version as a whole is the
    difference.
    """
    present = [side for side in versions if side.state == "present"]
    if not all(isinstance(side.value, str) for side in present):
        return []
    values = {str(side.value) for side in present}
    if len(values) < 2 or len({value.partition("+")[0] for value in values}) > 1:
        return []
    return [_tag(side) if side.state == "present" else side for side in versions]


def follows(labels: Sequence[object], told: Sequence[Sequence[object]]) -> bool:
    """Whether a field tells no sides apart that the fields already told leave together.

    Args:
        labels: for each side what it says of the field; None where that is unknown.
        told: the labels of the fields that are told already.
    """
    if not told:
        return False
    seen: Dict[object, object] = {}
    for index, label in enumerate(labels):
        if label is None:
            continue
        cause = tuple(field[index] for field in told)
        if seen.setdefault(cause, label) != label:
            return False
    return True


def _tag(side: Side) -> Side:
    tag = str(side.value).partition("+")[2]
    return side._replace(value=tag) if tag else Side(side.nodes, "absent")
