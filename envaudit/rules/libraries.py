"""The libraries that torch loads, where they are not the same on all nodes."""

from __future__ import annotations

from typing import Dict, Iterator, List, Optional, Tuple

from envaudit.model.drift import Drift, split_path
from envaudit.model.nodeset import fold
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Claim, Found, difference
from envaudit.rules.resolved import missing_libraries, mixed_cudnn

# Where another copy is taken because of one of these, the copy is the finding.
LOADER_VARIABLES = ("env/variables/LD_LIBRARY_PATH", "env/variables/LD_PRELOAD")
_COPIES = 4
# What is opened by its name at run time, and what people call it.
_CARRIERS = {
    "nccl_net": "NCCL's network plugin",
    "mpi": "MPI",
    "ucx": "UCX",
    "libfabric": "libfabric",
}


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
        "conda/packages/libcu*",
        "conda/packages/libnv*",
        "conda/packages/libnpp*",
        "conda/packages/cusparselt*",
        "packages/distributions/nvidia-*",
        *LOADER_VARIABLES,
    ),
    order=41,
    how_to_fix="Install the environment of these nodes from the lock that the others have.",
)
def library_differs(claim: Claim, policy: Policy) -> Iterator[Found]:
    """cuDNN, cuBLAS, the CUDA runtime and their like, by the version that is loaded."""
    told = _told_by_one_node(claim)
    if told is not None:
        yield claim.found(told.message, evidence=told.evidence, hint=told.hint)
        return
    families = sorted({split_path(drift.path)[1] for drift in claim.drifts})
    files = tuple(line for family in families for line in loaded_from(claim, family))
    yield claim.found(
        f"{', '.join(families)} {'differs' if len(families) == 1 else 'differ'}", evidence=files
    )


def _told_by_one_node(claim: Claim) -> Optional[Found]:
    """What is wrong with the nodes at fault by themselves, where that is all that differs."""
    for path, judge in (("libraries/cudnn/parts", mixed_cudnn), ("libraries/missing", missing_libraries)):
        if all(drift.path == path or drift.path.startswith(f"{path}/") for drift in claim.drifts):
            at_fault = [each for each in claim.evidence.fingerprints if each.node in claim.nodes]
            said = {found for fingerprint in at_fault for found in judge(fingerprint)}
            return said.pop() if len(said) == 1 else None
    return None


def _is_whole_or_version(drift: Drift, policy: Policy) -> bool:
    segments = split_path(drift.path)
    return len(segments) == 2 or segments[2:] == ("version",)


@difference(
    "EA222",
    severity="warning",
    title="a library that carries messages differs",
    why="Ranks that offer each other different transports wait for one another, or take a slower one.",
    of=tuple(f"libraries/{family}" for family in _CARRIERS),
    when=_is_whole_or_version,
    follows=(
        *(f"libraries/{family}/**" for family in _CARRIERS),
        *(f"libraries/copies/{family}" for family in _CARRIERS),
        *(f"conda/packages/{name}" for name in ("libfabric*", "mpich", "openmpi", "ucx")),
        *LOADER_VARIABLES,
    ),
    order=40,
    how_to_fix="Install one version on all nodes: it is the image's or the cluster's, not the environment's.",
)
def carrier_differs(claim: Claim, policy: Policy) -> Iterator[Found]:
    """MPI, UCX, libfabric; NCCL's own plugin is an error, for all ranks must load one alike."""
    families = sorted({split_path(drift.path)[1] for drift in claim.drifts})
    names = [_CARRIERS[family] for family in families]
    missing = all(len(split_path(drift.path)) == 2 for drift in claim.drifts)
    verb = ("is on some nodes only", "are on some nodes only") if missing else ("differs", "differ")
    yield claim.found(
        f"{', '.join(names)} {verb[len(names) > 1]}",
        evidence=tuple(line for family in families for line in loaded_from(claim, family)),
        severity="error" if "nccl_net" in families else "",
    )


@difference(
    "EA221",
    severity="warning",
    title="another copy of a library is loaded",
    why="The version is the same today; the next update of the system changes these nodes alone.",
    of=("libraries/*/path", "libraries/*/origin", "libraries/*/via", "libraries/torch/**"),
    follows=("libraries/copies/**", *LOADER_VARIABLES),
    order=42,
    how_to_fix="See which variable or package puts it first: envaudit show NODE --section libraries.",
)
def other_copy(claim: Claim, policy: Policy) -> Iterator[Found]:
    """Path, origin and the step of the loader's order that led to it."""
    families = sorted({split_path(drift.path)[1] for drift in claim.drifts})
    yield claim.found(f"another copy of {', '.join(families)} is loaded")


@difference(
    "EA223",
    severity="warning",
    title="a variable of the loader differs",
    why="Each library that a program looks for may be another one, on these nodes alone.",
    of=LOADER_VARIABLES,
    follows=("libraries/copies/**",),
    how_to_fix="Set it in the launch script for all ranks, or nowhere.",
)
def loader_variable_differs(claim: Claim, policy: Policy) -> Iterator[Found]:
    """Where torch loads the same libraries all the same; else the library is the finding."""
    names = [split_path(drift.path)[-1] for drift in claim.drifts]
    yield claim.found(f"{' and '.join(names)} {'differs' if len(names) == 1 else 'differ'}")


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
