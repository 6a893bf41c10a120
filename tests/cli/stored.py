"""Snapshots that were never taken: fingerprints made by hand, as files and in a store."""

from __future__ import annotations

from pathlib import Path
from typing import Sequence

from envaudit.model import Fingerprint, Snapshot
from envaudit.model.codec import encode_snapshot
from envaudit.store import Store

CAPTURED_AT = "2026-11-30T10:00:00Z"
TOOL = "0.1.0"


def write_snapshot(path: Path, nodes: Sequence[Fingerprint]) -> None:
    """A file such as `envaudit snapshot -o` writes."""
    path.write_text(
        encode_snapshot(Snapshot(tuple(nodes)), captured_at=CAPTURED_AT, tool=TOOL), encoding="utf-8"
    )


def store_snapshot(
    folder: Path, nodes: Sequence[Fingerprint], *, captured_at: str = CAPTURED_AT, tags: Sequence[str] = ()
) -> str:
    """A snapshot in the store of a folder; its name."""
    store = Store(str(folder / ".envaudit"))
    return store.write(
        Snapshot(tuple(nodes)), captured_at=captured_at, tool=TOOL, host="lab", tags=tuple(tags)
    )
