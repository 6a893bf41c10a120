"""The memory of the GPUs: ECC errors, rows and pages that are taken out of use."""

from __future__ import annotations

from typing import Any, Iterator

from envaudit.model.fingerprint import Fingerprint
from envaudit.rules.cards import Card, by_value, cards, folded, named, path_of, whole_number
from envaudit.rules.pernode import mapping, over_nodes
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Evidence, Found, Threshold, rule, threshold

# XID Errors that say of an uncorrectable error what EA350 would: EA314 tells them.
_MEMORY_XIDS = ("48", "95")
_RESET = "Let its jobs end, and reset the GPU (nvidia-smi --gpu-reset -i N, as root) or reboot."


@rule(
    "EA350",
    severity="warning",
    scope="node",
    needs=("gpu",),
    title="uncorrectable ECC errors since boot",
    why="Each one ended a process, or will; a card that has had some has more of them.",
    how_to_fix="Reset the GPU, so that its bad rows are remapped; replace a card on which they come back.",
    thresholds={"errors": Threshold(1, "", "from so many uncorrectable errors since boot on")},
)
def uncorrectable_errors(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Since the driver was loaded; those of its whole life are history."""
    most = threshold("EA350", "errors", policy)

    def judge(fingerprint: Fingerprint) -> Iterator[Found]:
        bad = [card for card in cards(fingerprint) if _uncorrected(card) >= max(1, most)]
        if bad:
            lines = tuple(f"GPU {card.ordinal}: {_uncorrected(card)}" for card in bad[:8])
            message = f"{named(bad, cards(fingerprint))}: uncorrectable ECC errors since boot"
            yield Found(message, path="gpu/devices", evidence=lines)

    yield from folded(evidence, judge)


def _uncorrected(card: Card) -> int:
    if any(number in mapping(card.notes.get("xid")) for number in _MEMORY_XIDS):
        return 0
    return whole_number(card.notes.get("ecc_uncorrected"))


@rule(
    "EA351",
    severity="error",
    scope="node",
    needs=("gpu",),
    title="GPU has too many SRAM errors",
    why="The vendor's limit for uncorrectable errors on the chip is passed: more will follow.",
    how_to_fix="Take the node out of service and have the GPU replaced.",
)
def sram_threshold(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """By the driver's own word, from Ampere on."""
    yield from _flagged(evidence, "sram_threshold_exceeded", "uncorrectable SRAM errors beyond the limit")


@rule(
    "EA352",
    severity="error",
    scope="node",
    needs=("gpu",),
    title="row remapping failed",
    why="A bad row of memory stays in use, and the next access to it ends the job.",
    how_to_fix="Take the node out of service and have the GPU replaced.",
)
def remapping_failed(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """No spare row is left for it."""
    yield from _flagged(evidence, "remapped_failure", "a bad memory row could not be remapped")


@rule(
    "EA353",
    severity="warning",
    scope="node",
    needs=("gpu",),
    title="row remapping waits for a reset",
    why="A bad row of memory is in use until then.",
    how_to_fix=_RESET,
)
def remapping_pending(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """From Ampere on."""
    yield from _flagged(evidence, "remapped_pending", "a bad memory row is remapped at the next reset")


@rule(
    "EA354",
    severity="warning",
    scope="node",
    needs=("gpu",),
    title="page retirement waits for a reboot",
    why="A bad page of memory is in use until then.",
    how_to_fix=_RESET,
)
def retirement_pending(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Before Ampere pages are retired where rows are remapped since."""
    yield from _flagged(evidence, "retired_pending", "a bad memory page is retired at the next reboot")


def _flagged(evidence: Evidence, fact: str, words: str) -> Iterator[Found]:
    def is_set(card: Card) -> Any:
        return True if card.facts.get(fact) is True else None

    def judge(fingerprint: Fingerprint) -> Iterator[Found]:
        for chosen in by_value(cards(fingerprint), is_set).values():
            message = f"{named(chosen, cards(fingerprint))}: {words}"
            yield Found(message, path=path_of(chosen, fingerprint, fact))

    yield from over_nodes(evidence, judge)
