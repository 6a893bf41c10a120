"""The libraries that torch loads, where they are not the same on all nodes."""

from __future__ import annotations

from typing import Dict, Iterator, List, Tuple

from envaudit.model.drift import split_path
from envaudit.model.nodeset import fold
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Claim, Found, difference

_COPIES = 4


@difference(
    "EA220",
    severity="error",
    title="a CUDA library differs",
    why="Other kernels are chosen, so that ranks compute other numbers at another speed.",
    of=("libraries/*/version", "libraries/*/parts", "libraries/missing"),
    follows=(
        "libraries/**",
        "conda/packages/cuda*",
        "conda/packages/cudnn",
        "conda/packages/lib*",
        "packages/distributions/nvidia-*",
    ),
    order=41,
    how_to_fix="Install the environment of these nodes from the lock that the others have.",
)
def library_differs(claim: Claim, policy: Policy) -> Iterator[Found]:
    """cuDNN, cuBLAS, the CUDA runtime and their like, by the version that is loaded."""
    families = sorted({split_path(drift.path)[1] for drift in claim.drifts})
    files = tuple(line for family in families for line in loaded_from(claim, family))
    yield claim.found(
        f"{', '.join(families)} {'differs' if len(families) == 1 else 'differ'}", evidence=files
    )


@difference(
    "EA221",
    severity="warning",
    title="another copy of a library is loaded",
    why="The version is the same today; the next update of the system changes these nodes alone.",
    of=("libraries/*/path", "libraries/*/origin", "libraries/*/via", "libraries/torch/**"),
    follows=("libraries/copies/**",),
    order=42,
    how_to_fix="See which variable or package puts it first: envaudit show NODE --section libraries.",
)
def other_copy(claim: Claim, policy: Policy) -> Iterator[Found]:
    """Path, origin and the step of the loader's order that led to it."""
    families = sorted({split_path(drift.path)[1] for drift in claim.drifts})
    yield claim.found(f"another copy of {', '.join(families)} is loaded")


def loaded_from(claim: Claim, family: str) -> Tuple[str, ...]:
    """`node08 loads /usr/lib/libnccl.so.2, found by LD_LIBRARY_PATH`, equal ones folded."""
    lines: Dict[str, List[str]] = {}
    for fingerprint in claim.evidence.fingerprints:
        section = fingerprint.sections.get("libraries")
        row = section.facts.get(family) if section is not None else None
        if fingerprint.node in claim.nodes and isinstance(row, dict) and isinstance(row.get("path"), str):
            via = f", found by {row['via']}" if row.get("via") else ""
            lines.setdefault(f"{row['path']}{via}", []).append(fingerprint.node)
    told = [f"{family} on {fold(nodes)}: {words}" for words, nodes in lines.items()]
    return tuple(told[:_COPIES])
