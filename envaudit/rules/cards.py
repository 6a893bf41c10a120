"""The GPUs of a node one by one, and findings about some of them, told once for all nodes alike."""

from __future__ import annotations

import weakref
from typing import (
    Any,
    Callable,
    Dict,
    FrozenSet,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Sequence,
    Tuple,
)

from envaudit.model.fingerprint import Fingerprint
from envaudit.model.section import Section
from envaudit.rules.pernode import Facts, facts_of, mapping
from envaudit.rules.registry import Evidence, Found

# More GPUs than any node has; a node that claims more is not believed.
_CARDS_MAX = 64
_NODES_TOLD = 4

# What is wrong with a GPU whatever others are: its own rules tell it, on each node.
HEALTH = frozenset(
    (
        *("state", "recovery_action", "remapped_pending", "remapped_failure", "retired_pending"),
        *("sram_threshold_exceeded", "fabric_state", "fabric_status", "fabric_health", "nvlinks_up"),
        *("pcie_width", "ecc_pending", "mig_pending", "persistence", "compute_mode"),
    )
)
MODEL = frozenset(("product", "compute_capability"))
FIRMWARE = frozenset(("vbios", "inforom"))
MIG = frozenset(("mig", "mig_instances"))
MIG_CASE = (
    "One A100 cut into two slices: torch saw one device where two were expected, and ended with an assertion."
)

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


class Card(NamedTuple):
    """One GPU: its number as NVML counts, its facts, and what was only noted of it."""

    ordinal: str
    facts: Facts
    notes: Facts


# Each rule asks again. By the section's id, and gone with the section.
_KNOWN: Dict[int, Tuple[weakref.ref[Section], List[Card]]] = {}


def cards(fingerprint: Fingerprint) -> List[Card]:
    """The NVIDIA GPUs of a node, by ordinal; a fact that is not known of one is not in its facts."""
    section = fingerprint.sections.get("gpu")
    if section is None:
        return []
    key = id(section)
    known = _KNOWN.get(key)
    if known is None or known[0]() is not section:
        known = (weakref.ref(section, lambda gone: _KNOWN.pop(key, None)), _cards(fingerprint))
        _KNOWN[key] = known
    return known[1]


def _cards(fingerprint: Fingerprint) -> List[Card]:
    gpu, notes = facts_of(fingerprint, "gpu"), noted(fingerprint)
    each, devices = mapping(gpu.get("each")), mapping(gpu.get("devices"))
    count = gpu.get("count")
    listed = range(min(max(count, 0), _CARDS_MAX)) if isinstance(count, int) else ()
    told = mapping(notes.get("devices"))
    names = {str(number) for number in listed} | {name for name in (*devices, *told) if _is_ordinal(name)}
    ordered = sorted(names, key=int)[:_CARDS_MAX]
    return [
        Card(name, _merged(each, mapping(devices.get(name))), mapping(told.get(name))) for name in ordered
    ]


def _merged(each: Facts, own: Facts) -> Facts:
    return {**each, **own} if own else each


def _is_ordinal(name: object) -> bool:
    return isinstance(name, str) and name.isascii() and name.isdigit() and len(name) < 4


def noted(fingerprint: Fingerprint) -> Facts:
    """The notes of the section `gpu`."""
    section = fingerprint.sections.get("gpu")
    return section.notes if section is not None and section.status in ("ok", "partial") else {}


def named(chosen: Iterable[Card], of: Sequence[Card] = ()) -> str:
    """`GPU 3`, `GPUs 0-2, 5`, or `all 8 GPUs` where these are all that `of` has."""
    numbers = [int(card.ordinal) for card in chosen]
    if len(numbers) > 1 and len(numbers) == len(of):
        return f"all {len(numbers)} GPUs" if len(numbers) > 2 else "both GPUs"
    ranges: List[List[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    words = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)
    return f"GPU{'s' * (len(numbers) > 1)} {words}"


def by_value(chosen: Iterable[Card], value: Callable[[Card], Any]) -> Dict[Any, List[Card]]:
    """The GPUs grouped by a value of each, without those for which it is None or no single value."""
    groups: Dict[Any, List[Card]] = {}
    for card in chosen:
        key = value(card)
        if key is None:
            continue
        try:
            groups.setdefault(key, []).append(card)
        except TypeError:
            pass  # a list or map, where the probe tells a word: nothing that could be judged
    return groups


def whole_number(value: object) -> int:
    """A count; 0 for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def path_of(chosen: Sequence[Card], fingerprint: Fingerprint, fact: str) -> str:
    """The path at which a fact of some GPUs stands: in their own row, or in the row that most share."""
    devices = mapping(facts_of(fingerprint, "gpu").get("devices"))
    deviating = [card for card in chosen if fact in mapping(devices.get(card.ordinal))]
    if deviating and len(deviating) == len(chosen):
        return f"gpu/devices/{deviating[0].ordinal}/{fact}" if len(chosen) == 1 else "gpu/devices"
    return f"gpu/each/{fact}"


def usable(fingerprint: Fingerprint) -> Sequence[Card]:
    """The GPUs that this launch may use; all, where what was noted does not tell which."""
    rows = cards(fingerprint)
    shown = mapping(facts_of(fingerprint, "gpu").get("visible"))
    text = noted(fingerprint).get("visible")
    # The numbers of NVIDIA_VISIBLE_DEVICES are those of the host.
    if shown.get("variable") != "CUDA_VISIBLE_DEVICES" or not isinstance(text, str):
        return rows
    entries = [entry.strip() for entry in text.split(",")][: whole_number(shown.get("count"))]

    def is_meant(card: Card) -> bool:
        ids = [str(card.notes.get("uuid"))]
        slices = card.notes.get("mig_devices")
        ids += [str(mapping(one).get("uuid")) for one in slices] if isinstance(slices, list) else []
        # A UUID may be shortened to what is unique.
        return any(
            entry == card.ordinal or (len(entry) > 4 and any(one.startswith(entry) for one in ids))
            for entry in entries
        )

    chosen = [card for card in rows if is_meant(card)]
    return chosen or ([] if shown.get("count") == 0 else rows)


def folded(
    evidence: Evidence,
    judge: Callable[[Fingerprint], Iterable[Found]],
    left_out: FrozenSet[str] = frozenset(),
) -> Iterator[Found]:
    """As `over_nodes`, also where only the evidence differs: then each line names its node.

    Args:
        evidence: whose fingerprints are judged.
        judge: yields findings without nodes.
        left_out: nodes of which another rule speaks already.
    """
    alike: Dict[Found, List[Tuple[str, Found]]] = {}
    for fingerprint in evidence.fingerprints:
        if fingerprint.node not in left_out:
            for found in judge(fingerprint):
                alike.setdefault(found._replace(evidence=()), []).append((fingerprint.node, found))
    for bare, told in alike.items():
        lines = told[0][1].evidence
        if any(found.evidence != lines for _, found in told):
            lines = tuple(f"{node}: {'; '.join(found.evidence)}" for node, found in told[:_NODES_TOLD])
            if len(told) > _NODES_TOLD:
                lines += (f"and {len(told) - _NODES_TOLD} more nodes",)
        yield bare._replace(nodes=tuple(node for node, _ in told), evidence=lines)


def is_linux(fingerprint: Fingerprint) -> bool:
    """Whether the driver is the Linux driver: neither that of Windows under WSL nor a Jetson's."""
    return facts_of(fingerprint, "gpu").get("platform") in (None, "linux")


def deviations(fingerprint: Fingerprint) -> Mapping[str, Facts]:
    """By ordinal, what a GPU has otherwise than most of its node."""
    devices = mapping(facts_of(fingerprint, "gpu").get("devices"))
    return {name: mapping(devices[name]) for name in sorted(filter(_is_ordinal, devices), key=int)}


def word_of(fact: str) -> str:
    """How a fact of a card is called: `power limit`."""
    return _WORDS.get(fact, fact.replace("_mhz", "").replace("_", " "))
