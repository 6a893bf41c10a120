"""Snapshots on disk: one file per run, tags as small files, safe on NFS and with many writers."""

from envaudit.store.files import atomic_write, discard
from envaudit.store.listing import Entry, Scan
from envaudit.store.snapshot_file import read_snapshot_file, write_snapshot_file
from envaudit.store.store import FOLDER, Store
from envaudit.store.tags import LATEST, Problem

__all__ = [
    "FOLDER",
    "LATEST",
    "Entry",
    "Problem",
    "Scan",
    "Store",
    "atomic_write",
    "discard",
    "read_snapshot_file",
    "write_snapshot_file",
]
