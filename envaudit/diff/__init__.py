"""Fingerprints folded into drifts: what differs, on which nodes, measured against what."""

from envaudit.diff.compare import compare, compare_to_reference
from envaudit.diff.paths import PathFilter

__all__ = ["PathFilter", "compare", "compare_to_reference"]
