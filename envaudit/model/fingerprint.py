"""A fingerprint: all sections of one node at one time; a snapshot: those of many nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Dict, Mapping, Tuple

from envaudit.model.canonical import digest_of
from envaudit.model.section import Section

SOURCES = ("probe", "inband", "lock", "import")

MISSING_KINDS = ("unreachable", "timeout", "truncated", "corrupt", "crashed")


@dataclass(frozen=True)
class Fingerprint:
    """What one node is.

    Attributes:
        node: the node's name, or a label such as `node01@good`.
        source: how it was made: `probe`, `inband`, `lock` (expected) or `import` (a foreign report).
        captured_at: UTC, `2026-11-30T10:00:00Z`.
        tool: the version of envaudit that made it.
        sections: by name.
    """

    node: str
    source: str
    captured_at: str
    tool: str
    sections: Mapping[str, Section]

    @cached_property
    def digest(self) -> str:
        """sha256 over the sorted (name, section digest) pairs; equal nodes have equal digests."""
        return digest_of(sorted((name, section.digest) for name, section in self.sections.items()))


@dataclass(frozen=True)
class Missing:
    """A node that gave no usable answer, and what to do about it.

    Attributes:
        kind: one of `MISSING_KINDS`.
        why: the cause in one clause, `no route to host (ssh)`.
        next_step: a whole sentence.
    """

    kind: str
    why: str
    next_step: str = ""


@dataclass(frozen=True)
class Snapshot:
    """The fingerprints of one run, and the nodes that gave none. No node is in both."""

    fingerprints: Tuple[Fingerprint, ...]
    missing: Mapping[str, Missing] = field(default_factory=dict)

    @property
    def by_node(self) -> Dict[str, Fingerprint]:
        """The fingerprints by node name."""
        return {fingerprint.node: fingerprint for fingerprint in self.fingerprints}

    def _repr_html_(self) -> str:
        """Which nodes are alike, for a notebook."""
        from envaudit.model.notebook import fragment

        return fragment(self)
