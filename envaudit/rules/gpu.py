"""What the GPUs are and how they are set, where that is not the same on all nodes or all cards."""

from __future__ import annotations

from typing import AbstractSet, Any, Dict, Iterator, List, Sequence, Tuple

from envaudit.model.drift import Drift, split_path
from envaudit.model.fingerprint import Fingerprint
from envaudit.rules.cards import FIRMWARE, HEALTH, MIG, MODEL, cards, deviations, folded, named
from envaudit.rules.gpuhealth import fallen
from envaudit.rules.pernode import facts_of, mapping, over_nodes, told_between_nodes
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Claim, Evidence, Found, difference, rule

_COUNTS = ("gpu", "gpu/amd", "gpu/count", "gpu/amd/count")
_WORDS = {
    "ecc": "ECC mode",
    "inforom": "InfoROM",
    "mig": "MIG mode",
    "mig_instances": "MIG instances",
    "pcie_generation_max": "PCIe generation",
    "pcie_width_max": "PCIe width",
    "power_limit_mw": "power limit",
    "vbios": "VBIOS",
}
_MODEL_ROWS = frozenset((*MODEL, "gfx", "compute_units", "platform"))
_DETAILS_TOLD = 4


def _row_keys(drift: Drift) -> AbstractSet[str]:
    """Which facts of a card a drift is about: of `gpu/devices/3` what that whole row has."""
    segments = split_path(drift.path)
    if segments[:2] == ("gpu", "devices") and len(segments) == 3:
        return {key for group in drift.groups if isinstance(group.value, dict) for key in group.value}
    return set(segments[3:4] if segments[:2] == ("gpu", "devices") else segments[-1:])


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
        *("gpu/amd/each/compute_units", "gpu/devices/*"),
    ),
    when=lambda drift, policy: not _MODEL_ROWS.isdisjoint(_row_keys(drift)),
    follows=(
        *("gpu/each/**", "gpu/devices/**", "gpu/amd/each/**", "gpu/fabric_manager/**", "gpu/tegra/**"),
        *("gpu/fabric_manager", "gpu/tegra", "gpu/flavour", "gpu/confidential"),
    ),
    order=10,
    how_to_fix="Launch on nodes of one model, or give each model a role of its own: [roles.NAME] hosts.",
)
def model_differs(claim: Claim, policy: Policy) -> Iterator[Found]:
    """What a card of another model is set to otherwise follows from it."""
    products = tuple(drift for drift in claim.drifts if drift.path == "gpu/each/product")
    if products:
        others = tuple(drift for drift in claim.drifts if drift not in products)
        claim = claim._replace(drifts=products, following=(*others, *claim.following))
    yield claim.found("GPU model differs")


@difference(
    "EA302",
    severity="error",
    title="MIG differs",
    why="A card with MIG gives each process one slice of itself: ranks find other devices than elsewhere.",
    of=("gpu/each/mig", "gpu/each/mig_instances", "gpu/devices/*"),
    when=lambda drift, policy: not MIG.isdisjoint(_row_keys(drift)) or "mig_instances" in drift.path,
    follows=("gpu/each/mig_pending", "gpu/each/mig_instances/**", "gpu/visible/**"),
    order=11,
    how_to_fix="Switch MIG to the same mode everywhere (nvidia-smi -mig 0, as root), with the GPUs idle.",
    case="One A100 cut into two slices: torch saw one device where two were expected, and ended with an "
    "assertion.",
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
    """Power limit, clocks, links; what single cards have otherwise is told by EA305 to EA307."""
    drifts = tuple(
        drift
        for drift in claim.drifts
        if not drift.path.startswith("gpu/devices/") and HEALTH.isdisjoint(_row_keys(drift))
    )
    if drifts:
        claim = claim._replace(drifts=drifts)
        yield claim.found(f"GPU {_listed(drifts)} {_verb(drifts)}")


@difference(
    "EA308",
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
    "EA309",
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


@rule(
    "EA305",
    severity="warning",
    scope="node",
    needs=("gpu",),
    title="GPUs of one node are set in different ways",
    why="Ranks of one node run at different speeds, and all wait for the slowest.",
    how_to_fix="Set all GPUs of the node alike (nvidia-smi -i N, as root), at every boot.",
)
def settings_are_mixed(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Without cards of another model, without health, and without what is told between nodes."""
    told = told_between_nodes(evidence, policy, "EA302", "gpu/devices")

    def judge(fingerprint: Fingerprint) -> Iterator[Found]:
        leave = HEALTH | FIRMWARE | (MIG if fingerprint.node in told else frozenset())
        yield from _mixed(fingerprint, leave)

    yield from over_nodes(evidence, judge)


def _mixed(fingerprint: Fingerprint, leave: AbstractSet[str]) -> Iterator[Found]:
    by_keys: Dict[Tuple[str, ...], List[str]] = {}
    for ordinal, row in deviations(fingerprint).items():
        keys = tuple(key for key in sorted(row) if key not in leave)
        if keys and MODEL.isdisjoint(row):
            by_keys.setdefault(keys, []).append(ordinal)
    rows = {card.ordinal: card for card in cards(fingerprint)}
    each = mapping(facts_of(fingerprint, "gpu").get("each"))
    for keys, ordinals in by_keys.items():
        lines = [
            f"GPU {ordinal}: {_word(key)} {_shown(rows[ordinal].facts.get(key))}, most have "
            f"{_shown(each.get(key))}"
            for ordinal in ordinals
            for key in keys
            if ordinal in rows
        ]
        words = ", ".join(_word(key) for key in keys[:_DETAILS_TOLD])
        yield Found(
            f"{named(rows[name] for name in ordinals if name in rows)} of the node: other {words}",
            path="gpu/devices",
            evidence=tuple(lines[:_DETAILS_TOLD]),
        )


@rule(
    "EA306",
    severity="warning",
    scope="node",
    needs=("gpu",),
    title="different GPU models in one node",
    why="Kernels and memory are not the same for all ranks; the numbers of devices may follow their speed.",
    how_to_fix="Choose GPUs of one model for a job: CUDA_VISIBLE_DEVICES with CUDA_DEVICE_ORDER=PCI_BUS_ID.",
)
def models_are_mixed(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Left to EA301 where other nodes show that it is meant otherwise."""
    yield from over_nodes(
        evidence, _mixed_models, told_between_nodes(evidence, policy, "EA301", "gpu/devices")
    )


def _mixed_models(fingerprint: Fingerprint) -> Iterator[Found]:
    odd = {name for name, row in deviations(fingerprint).items() if not MODEL.isdisjoint(row)}
    if not odd:
        return
    rows = cards(fingerprint)
    products: Dict[str, List[Any]] = {}
    for card in rows:
        products.setdefault(str(card.facts.get("product")), []).append(card)
    yield Found(
        f"{len(products)} models of GPU in one node",
        path="gpu/devices",
        evidence=tuple(f"{named(chosen)}: {product}" for product, chosen in products.items()),
    )


@rule(
    "EA307",
    severity="info",
    scope="node",
    needs=("gpu",),
    title="different VBIOS or InfoROM in one node",
    why="A card that was replaced often has newer firmware; it rarely matters.",
    how_to_fix="Flash the firmware of the vendor's current release on all cards when the node is idle.",
)
def firmware_is_mixed(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """One finding for all nodes: which cards were repaired is no matter of each node."""
    yield from folded(evidence, _mixed_firmware)


def _mixed_firmware(fingerprint: Fingerprint) -> Iterator[Found]:
    each = mapping(facts_of(fingerprint, "gpu").get("each"))
    lines = [
        f"GPU {ordinal} has {_word(key)} {_shown(row[key])}, most have {_shown(each.get(key))}"
        for ordinal, row in deviations(fingerprint).items()
        for key in sorted(FIRMWARE)
        if key in row and MODEL.isdisjoint(row)
    ]
    if lines:
        yield Found(
            "single GPUs have another VBIOS or InfoROM, as after a repair",
            path="gpu/devices",
            evidence=tuple(lines[:_DETAILS_TOLD]),
        )


def _listed(drifts: Sequence[Drift]) -> str:
    words = list(dict.fromkeys(_word(split_path(drift.path)[2]) for drift in drifts))
    more = len(words) - _DETAILS_TOLD
    return ", ".join(words[:_DETAILS_TOLD]) + (f" and {more} more" if more > 0 else "")


def _verb(drifts: Sequence[Drift]) -> str:
    return "differs" if len({split_path(drift.path)[2] for drift in drifts}) == 1 else "differ"


def _word(key: str) -> str:
    return _WORDS.get(key, key.replace("_mhz", "").replace("_", " "))


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)
