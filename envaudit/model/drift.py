"""A drift: one fact path whose value is not the same everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Tuple

from envaudit.model.canonical import Fact

KINDS = ("changed", "missing", "extra", "unknown")

GROUP_STATES = ("present", "absent", "unknown")


@dataclass(frozen=True)
class Group:
    """The nodes that share one value of a path.

    `state` tells a null value (`present`, value None) from a path that the node does not have
    (`absent`) and from one that could not be read there (`unknown`, `why` says the reason).
    """

    value: Fact
    nodes: Tuple[str, ...]
    state: str = "present"
    why: str = ""


@dataclass(frozen=True)
class Drift:
    """One path that differs.

    Attributes:
        path: segments joined by `/`, the first is the section: `conda/packages/numpy/build`.
            Within a segment `~` is written `~0` and `/` is written `~1` (RFC 6901).
        kind: seen from the reference: `changed`; `missing` (the reference has it, others do not);
            `extra` (others have it, the reference does not); `unknown` (not comparable). Without
            a reference, presence that differs is `missing`.
        groups: the reference group first where there is one, then larger before smaller groups.
        reference: the nodes of the reference group, empty on a tie.
        basis: `baseline`, `lock`, `majority k/n` or `none`: where the reference comes from.
    """

    path: str
    kind: str
    groups: Tuple[Group, ...]
    reference: Tuple[str, ...]
    basis: str

    @property
    def section(self) -> str:
        """The section that the path lies in."""
        return self.path.split("/", 1)[0]

    @property
    def outliers(self) -> Tuple[str, ...]:
        """The nodes known not to be in the reference group; on a tie all whose value is known.

        Of a drift that is not comparable (kind `unknown`), the nodes whose value is not known.
        """
        off = [group for group in self.groups if (group.state == "unknown") == (self.kind == "unknown")]
        return tuple(node for group in off if group.nodes != self.reference for node in group.nodes)


def join_path(*segments: str) -> str:
    """Fact path segments joined to one path, escaped as RFC 6901 does."""
    return "/".join(segment.replace("~", "~0").replace("/", "~1") for segment in segments)


def split_path(path: str) -> Tuple[str, ...]:
    """The inverse of `join_path`."""
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in path.split("/"))
