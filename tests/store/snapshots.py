"""Small snapshots for the tests of the store. PROVENANCE: made by hand."""

from __future__ import annotations

from typing import Sequence

from envaudit.model import Fact, Fingerprint, Missing, Section, Snapshot
from envaudit.store import Store

TOOL = "1.0"


def snapshot_of(nodes: Sequence[str], value: Fact = 0, missing: Sequence[str] = ()) -> Snapshot:
    """Nodes that all have `value` as their one fact, and nodes that gave no answer."""
    sections = {"host": Section("host", 1, "ok", {"value": value}, {"uptime_s": 5})}
    return Snapshot(
        tuple(Fingerprint(node, "probe", "2026-11-30T10:00:00Z", TOOL, sections) for node in nodes),
        {node: Missing("timeout", "no answer in 30 s (ssh)") for node in missing},
    )


def keep(
    store: Store,
    value: Fact = 0,
    *,
    nodes: Sequence[str] = ("node01", "node02"),
    at: str = "2026-11-30T10:00:00Z",
    tags: Sequence[str] = (),
    host: str = "login",
) -> str:
    """Write a small snapshot; its name."""
    return store.write(snapshot_of(nodes, value), captured_at=at, tool=TOOL, host=host, tags=tags)


def value_of(store: Store, node: str, reference: str) -> Fact:
    """The one fact of a node in the snapshot that a reference means."""
    return store.resolve_many([node], reference)[node].sections["host"].facts["value"]
