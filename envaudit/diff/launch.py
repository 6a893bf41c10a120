"""Facts that belong to how the probe was started, not to the node.

An ssh session and a Slurm step have other variables, limits and visible GPUs on a healthy node.
Such facts are compared between nodes of one launch only.
"""

from __future__ import annotations

from typing import Dict, Iterable, Tuple

from envaudit.model.fingerprint import Fingerprint

# `host/launch` itself says how the probe was started; that two differ is no drift.
LAUNCH_PATH = ("host", "launch")

LAUNCH_PATHS: Tuple[Tuple[str, ...], ...] = (
    # Found through PATH, CUDA_HOME and LD_LIBRARY_PATH; a step of `srun --export=NONE` has none of them.
    ("cuda", "compat"),
    ("cuda", "home"),
    ("cuda", "libcuda"),
    ("cuda", "nvcc"),
    ("env",),
    ("git",),
    ("gpu", "visible"),
    ("libraries",),
    ("limits",),
)


def launches(fingerprints: Iterable[Fingerprint]) -> Dict[str, str]:
    """The launch of each node; `unknown` where the host section does not say."""
    found = {}
    for fingerprint in fingerprints:
        host = fingerprint.sections.get("host")
        launch = host.facts.get("launch") if host is not None else None
        found[fingerprint.node] = launch if isinstance(launch, str) else "unknown"
    return found
