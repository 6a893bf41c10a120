"""What the GPUs are and how they are set, where that is not the same on all nodes."""

from __future__ import annotations

from typing import Iterator, Sequence

from envaudit.model.drift import Drift, split_path
from envaudit.rules.cards import HEALTH, MIG_CASE, word_of
from envaudit.rules.claiming import has_two_values
from envaudit.rules.gpuhealth import fallen
from envaudit.rules.pernode import facts_of
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Claim, Found, difference

_COUNTS = ("gpu", "gpu/amd", "gpu/count", "gpu/amd/count")
_DETAILS_TOLD = 4


@difference(
    "EA300",
    severity="error",
    title="GPU count differs",
    why="A launch that counts on as many GPUs on each node fails, or waits for ranks that never come.",
    of=_COUNTS,
    when=lambda drift, policy: drift.path in _COUNTS,
    follows=(
        *("gpu/inventory/**", "gpu/visible/**", "gpu/devices/**", "gpu/amd/visible/**"),
        *("gpu/amd/devices/**", "topology/gpus/**", "topology/gpus"),
    ),
    order=9,
    how_to_fix="Look for the card (nvidia-smi -L, dmesg) and what the container or job was given; nodes "
    "that have other GPUs on purpose get a role: [roles.NAME] hosts.",
)
def count_differs(claim: Claim, policy: Policy) -> Iterator[Found]:
    """With what each node at fault says itself, where a card of it fell off the bus."""
    at_fault = [each for each in claim.evidence.fingerprints if each.node in claim.nodes]
    told = {found.message: found for each in at_fault for found in fallen(each)}
    lines = tuple(told)
    whole = any(drift.path in ("gpu", "gpu/amd") for drift in claim.drifts)
    if whole and not any(facts_of(each, "gpu") for each in at_fault):
        yield claim.found("no GPU is seen, and other nodes have some", evidence=lines)
    elif whole:
        yield claim.found("GPUs are on some nodes only", evidence=lines)
    else:
        yield claim.found("GPU count differs", evidence=lines)


@difference(
    "EA301",
    severity="error",
    title="GPU model differs",
    why="All ranks wait for the slowest; kernels, memory and numbers are not those of the other cards.",
    of=(
        *("gpu/each/product", "gpu/each/compute_capability", "gpu/platform", "gpu/amd/each/gfx"),
        "gpu/amd/each/compute_units",
    ),
    follows=(
        *("gpu/each/**", "gpu/devices/**", "gpu/amd/each/**", "gpu/fabric_manager/**", "gpu/tegra/**"),
        *("gpu/fabric_manager", "gpu/tegra", "gpu/flavour", "gpu/confidential"),
    ),
    order=10,
    how_to_fix="Launch on nodes of one model, or give each model a role of its own: [roles.NAME] hosts.",
)
def model_differs(claim: Claim, policy: Policy) -> Iterator[Found]:
    """What a card of another model is set to otherwise follows from it; a node without a card has none."""
    if not any(map(has_two_values, claim.drifts)) and _is_told_by_count(claim, policy):
        return
    products = tuple(drift for drift in claim.drifts if drift.path == "gpu/each/product")
    if products:
        others = tuple(drift for drift in claim.drifts if drift not in products)
        claim = claim._replace(drifts=products, following=(*others, *claim.following))
    yield claim.found("GPU model differs")


def _is_told_by_count(claim: Claim, policy: Policy) -> bool:
    """Whether EA300 tells of these nodes that they have another number of GPUs."""
    counted = [drift for drift in claim.evidence.drifts if drift.path in _COUNTS]
    told = [drift for drift in counted if policy.level_of_path(drift.path) is None]
    return not policy.quiets("EA300") and any(set(drift.outliers).issuperset(claim.nodes) for drift in told)


@difference(
    "EA302",
    severity="error",
    title="MIG differs",
    why="A card with MIG gives each process one slice of itself: ranks find other devices than elsewhere.",
    of=("gpu/each/mig", "gpu/each/mig_instances"),
    follows=("gpu/each/mig_pending", "gpu/visible/**", "gpu/each/nvlink*", "gpu/each/fabric_*"),
    order=11,
    how_to_fix="Switch MIG to the same mode everywhere (nvidia-smi -mig 0, as root), with the GPUs idle.",
    case=MIG_CASE,
)
def mig_differs(claim: Claim, policy: Policy) -> Iterator[Found]:
    """The instances follow from the mode."""
    modes = tuple(drift for drift in claim.drifts if drift.path == "gpu/each/mig")
    if modes:
        others = tuple(drift for drift in claim.drifts if drift not in modes)
        yield claim._replace(drifts=modes, following=(*others, *claim.following)).found("MIG mode differs")
    else:
        yield claim.found("MIG differs")


@difference(
    "EA303",
    severity="warning",
    title="VBIOS or InfoROM differs",
    why="Power and clock tables, and mended faults, are not those of the other nodes.",
    of=("gpu/each/vbios", "gpu/each/inforom"),
    order=43,
    how_to_fix="Flash the firmware of the vendor's current release, or accept it: envaudit waive EA303.",
)
def firmware_differs(claim: Claim, policy: Policy) -> Iterator[Found]:
    """All cards of a node, or most of them."""
    yield claim.found(f"GPU {_listed(claim.drifts)} {_verb(claim.drifts)}")


@difference(
    "EA304",
    severity="warning",
    title="a GPU is set otherwise",
    why="It runs at another speed than the others, and all ranks wait for the slowest.",
    of=("gpu/each/*", "gpu/devices/*"),
    order=45,
    compared="exactly; health, and single cards of a node, are told of each node",
    how_to_fix="Set these GPUs like the others (nvidia-smi, as root), at every boot.",
)
def settings_differ(claim: Claim, policy: Policy) -> Iterator[Found]:
    """Power limit, clocks, links; what single cards have otherwise is told by EA307 to EA309."""
    drifts = tuple(
        drift
        for drift in claim.drifts
        if drift.path.startswith("gpu/each/") and split_path(drift.path)[2] not in HEALTH
    )
    if drifts:
        claim = claim._replace(drifts=drifts)
        yield claim.found(f"GPU {_listed(drifts)} {_verb(drifts)}")


@difference(
    "EA305",
    severity="error",
    title="GPU memory differs",
    why="What fits on the others ends with 'out of memory' here.",
    of=("gpu/each/memory_bytes", "gpu/amd/each/memory_bytes"),
    order=30,
    how_to_fix="Look at what takes it away (nvidia-smi -q -d MEMORY), or sort the nodes by a role.",
)
def memory_differs(claim: Claim, policy: Policy) -> Iterator[Found]:
    """Of one model; another driver, and ECC on cards without memory for it, explain it."""
    yield claim.found("GPU memory differs")


@difference(
    "EA306",
    severity="warning",
    title="GPU ECC mode differs",
    why="Without ECC a flipped bit goes into the weights, and nobody is told.",
    of=("gpu/each/ecc",),
    follows=("gpu/each/ecc_pending", "gpu/each/memory_bytes"),
    order=27,
    how_to_fix="Switch ECC on (nvidia-smi -e 1, as root) and reboot.",
)
def ecc_differs(claim: Claim, policy: Policy) -> Iterator[Found]:
    """On cards with GDDR memory ECC takes a part of it."""
    yield claim.found("GPU ECC mode differs")


def _listed(drifts: Sequence[Drift]) -> str:
    words = list(dict.fromkeys(word_of(split_path(drift.path)[2]) for drift in drifts))
    more = len(words) - _DETAILS_TOLD
    return ", ".join(words[:_DETAILS_TOLD]) + (f" and {more} more" if more > 0 else "")


def _verb(drifts: Sequence[Drift]) -> str:
    return "differs" if len({split_path(drift.path)[2] for drift in drifts}) == 1 else "differ"
