"""The values that the rooms of envaudit hand to each other: frozen, without any I/O."""

from envaudit.model.canonical import Fact, canonical_json, digest_of
from envaudit.model.drift import Drift, Group, join_path, split_path
from envaudit.model.finding import Finding, Verdict
from envaudit.model.fingerprint import Fingerprint, Missing, Snapshot
from envaudit.model.section import Section

__all__ = [
    "Drift",
    "Fact",
    "Finding",
    "Fingerprint",
    "Group",
    "Missing",
    "Section",
    "Snapshot",
    "Verdict",
    "canonical_json",
    "digest_of",
    "join_path",
    "split_path",
]
