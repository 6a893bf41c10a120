"""Cards of one node that are not alike: another model, other settings, another firmware."""

from __future__ import annotations

from typing import AbstractSet, Any, Dict, FrozenSet, Iterator, List, Mapping, Tuple

from envaudit.model.fingerprint import Fingerprint
from envaudit.rules.cards import (
    FIRMWARE,
    HEALTH,
    MIG,
    MODEL,
    Card,
    by_value,
    cards,
    deviations,
    folded,
    named,
    word_of,
)
from envaudit.rules.pernode import facts_of, mapping, over_nodes
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Evidence, Found, rule

_DETAILS_TOLD = 4


@rule(
    "EA307",
    severity="warning",
    scope="node",
    needs=("gpu",),
    title="GPUs of one node are set in different ways",
    why="Ranks of one node run at different speeds, and all wait for the slowest.",
    how_to_fix="Set all GPUs of the node alike (nvidia-smi -i N, as root), at every boot.",
)
def settings_are_mixed(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Without cards of another model and without health; MIG that other nodes do not have is an error."""
    yield from over_nodes(evidence, lambda fingerprint: _settings(fingerprint, HEALTH | FIRMWARE | MIG))
    on_others = _values(evidence, "mig")

    def judge(fingerprint: Fingerprint) -> Iterator[Found]:
        groups = by_value(cards(fingerprint), lambda card: card.facts.get("mig"))
        if (
            "enabled" in groups
            and len(groups) > 1
            and any("mig" in row for row in deviations(fingerprint).values())
        ):
            yield Found(
                f"MIG is enabled on {named(groups.get('enabled', []))} alone",
                path="gpu/devices",
                evidence=tuple(f"{named(chosen)}: {mode}" for mode, chosen in groups.items()),
                hint="Switch MIG to one mode on all GPUs: nvidia-smi -mig 0, as root, with them idle.",
                severity=_worse(fingerprint, on_others, policy),
            )

    yield from over_nodes(evidence, judge)


def _settings(fingerprint: Fingerprint, leave: AbstractSet[str]) -> Iterator[Found]:
    by_keys: Dict[Tuple[str, ...], List[Card]] = {}
    rows = {card.ordinal: card for card in cards(fingerprint)}
    for ordinal, row in deviations(fingerprint).items():
        keys = tuple(key for key in sorted(row) if key not in leave)
        if keys and ordinal in rows and MODEL.isdisjoint(row):
            by_keys.setdefault(keys, []).append(rows[ordinal])
    each = mapping(facts_of(fingerprint, "gpu").get("each"))
    for keys, chosen in by_keys.items():
        lines = [
            f"GPU {card.ordinal}: {word_of(key)} {_shown(card.facts.get(key))}, "
            f"others have {_shown(each.get(key))}"
            for card in chosen
            for key in keys
        ]
        words = ", ".join(word_of(key) for key in keys[:_DETAILS_TOLD])
        yield Found(
            f"{named(chosen)} of the node: other {words}",
            path="gpu/devices",
            evidence=tuple(lines[:_DETAILS_TOLD]),
        )


@rule(
    "EA308",
    severity="warning",
    scope="node",
    needs=("gpu",),
    title="different GPU models in one node",
    why="Kernels and memory are not the same for all ranks; the numbers of devices may follow their speed.",
    how_to_fix="Choose GPUs of one model for a job: CUDA_VISIBLE_DEVICES with CUDA_DEVICE_ORDER=PCI_BUS_ID.",
)
def models_are_mixed(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """An error where other nodes have other models."""
    on_others = _values(evidence, "product")

    def judge(fingerprint: Fingerprint) -> Iterator[Found]:
        if any(not MODEL.isdisjoint(row) for row in deviations(fingerprint).values()):
            models = by_value(cards(fingerprint), lambda card: str(card.facts.get("product")))
            yield Found(
                f"{len(models)} models of GPU in one node",
                path="gpu/devices",
                evidence=tuple(f"{named(chosen)}: {product}" for product, chosen in models.items()),
                severity=_worse(fingerprint, on_others, policy),
            )

    yield from over_nodes(evidence, judge)


def _values(evidence: Evidence, fact: str) -> Mapping[str, FrozenSet[str]]:
    """For each node what its cards have, where a node has cards that differ; else nothing."""
    if not any(fact in row for each in evidence.fingerprints for row in deviations(each).values()):
        return {}
    return {
        each.node: frozenset(str(card.facts.get(fact)) for card in cards(each))
        for each in evidence.fingerprints
    }


def _worse(fingerprint: Fingerprint, values: Mapping[str, FrozenSet[str]], policy: Policy) -> str:
    """`error` where nodes of the same role have other cards, nothing where this is how they all are."""
    own, role = values.get(fingerprint.node), policy.roles.get(fingerprint.node, "")
    peers = (their for node, their in values.items() if policy.roles.get(node, "") == role)
    return "error" if any(their and their != own for their in peers) else ""


@rule(
    "EA309",
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
        f"GPU {ordinal} has {word_of(key)} {_shown(row[key])}, others have {_shown(each.get(key))}"
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


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)
