"""Whether the GPUs of a node are well: on the bus, at full width and clocks, without complaints."""

from __future__ import annotations

from functools import partial
from typing import Any, Dict, Iterator, List, Mapping, Tuple

from envaudit.model.fingerprint import Fingerprint
from envaudit.rules.cards import Card, by_value, cards, folded, is_linux, named, noted, path_of, whole_number
from envaudit.rules.pernode import facts_of, mapping, over_nodes, told_between_nodes
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Evidence, Found, rule

# NVIDIA, XID Errors: faults of the card, its links or its firmware that no program causes.
_FATAL_XIDS: Mapping[str, str] = {
    "48": "uncorrectable ECC error",
    "74": "NVLink error",
    "79": "fallen off the bus",
    "95": "uncontained memory error",
    "119": "its firmware (GSP) does not answer",
    "120": "its firmware (GSP) failed",
}
# Those a faulty program makes: an illegal address, an exception, a stopped channel.
_OF_PROGRAMS = frozenset(("13", "31", "43"))
_ACTIONS: Mapping[str, str] = {
    "gpu_reset": "reset the GPU (nvidia-smi --gpu-reset -i N, as root, nothing running on it)",
    "bus_reset": "reset the GPU's bus, or reboot",
    "node_reboot": "reboot the node",
    "system_reboot": "reboot the whole system",
    "drain_p2p": "let the jobs that use peer-to-peer end, and reset the GPU",
    "drain_and_reset": "let its jobs end, and reset the GPU",
    "recover_imex_domain": "restart the IMEX domain",
}
_SLOWDOWNS: Mapping[str, str] = {
    "hw_thermal_slowdown": "too hot",
    "hw_power_brake_slowdown": "power brake: the power supply or the rack asks for less",
    "hw_slowdown": "hardware slowdown",
}
_RESET = (
    "Let its jobs end and reset it (nvidia-smi --gpu-reset, as root), else reboot; replace it if it returns."
)


@rule(
    "EA310",
    severity="error",
    scope="node",
    needs=("gpu",),
    title="GPU fell off the bus",
    why="Its rank fails, or hangs all others in their next collective.",
    how_to_fix="Drain the node and power-cycle it; a card that falls off again is to be replaced.",
)
def off_the_bus(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """The bus shows more GPUs than the driver holds, or NVML calls one lost."""
    yield from over_nodes(evidence, fallen, told_between_nodes(evidence, policy, "EA300", "gpu/count"))


def fallen(fingerprint: Fingerprint) -> Iterator[Found]:
    """The finding about GPUs that are on the bus, or were, and that the driver has lost; without nodes."""
    lost = [card for card in cards(fingerprint) if card.facts.get("state") == "lost"]
    if lost:
        path = path_of(lost, fingerprint, "state")
        which = "it" if len(lost) == 1 else "them"
        yield Found(f"{named(lost)} fell off the bus: the driver has lost {which}", path=path)
        return
    inventory = mapping(facts_of(fingerprint, "gpu").get("inventory"))
    on_bus, driven = inventory.get("pci"), inventory.get("proc")
    others = mapping(noted(fingerprint).get("other_drivers"))
    if not isinstance(on_bus, int) or not isinstance(driven, int) or on_bus <= driven + len(others):
        return
    gone = on_bus - driven - len(others)
    errors = fingerprint.sections["gpu"].errors
    yield Found(
        f"{'a GPU' if gone == 1 else f'{gone} GPUs'} fell off the bus: {on_bus} on the PCI bus, and the "
        f"driver has {driven}",
        path="gpu/inventory",
        evidence=tuple(text for text in errors if "fallen off the bus" in text)[:4],
    )


@rule(
    "EA311",
    severity="error",
    scope="node",
    needs=("gpu",),
    title="GPU waits for a reset",
    why="The driver starts nothing new on it, or not reliably.",
)
def reset_required(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """What the driver itself wants done (its recovery action), or that it refuses all calls."""
    yield from over_nodes(evidence, _reset)


def _reset(fingerprint: Fingerprint) -> Iterator[Found]:
    groups = by_value(cards(fingerprint), _wanted)
    for action, chosen in groups.items():
        fact = "state" if action == "reset_required" else "recovery_action"
        advice = _ACTIONS.get(action, "reset it, or reboot the node")
        wants = {"node_reboot": "a reboot of the node", "system_reboot": "a reboot"}.get(action, "a reset")
        yield Found(
            f"{named(chosen, cards(fingerprint))} wait{'s' * (len(chosen) == 1)} for {wants}",
            path=path_of(chosen, fingerprint, fact),
            evidence=(f"the driver says {action}",),
            hint=f"{advice[0].upper()}{advice[1:]}.",
        )


def _wanted(card: Card) -> Any:
    if card.facts.get("state") == "reset_required":
        return "reset_required"
    action = card.facts.get("recovery_action")
    # A card that is gone is told by EA310.
    return action if isinstance(action, str) and action != "none" and not card.facts.get("state") else None


@rule(
    "EA312",
    severity="warning",
    scope="node",
    needs=("gpu",),
    title="hardware slows the GPU down",
    why="It runs at a fraction of its clocks, and all ranks wait for it.",
    how_to_fix="Look at fans, air flow and power supply; nvidia-smi -q -d PERFORMANCE shows it live.",
)
def slowed_down(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """By the hardware's own reasons at this moment; a power cap by software is how GPUs usually run."""
    yield from folded(evidence, _slow)


def _slow(fingerprint: Fingerprint) -> Iterator[Found]:
    for reason, chosen in by_value(cards(fingerprint), _slowdown).items():
        temperatures = [card.notes.get("temperature_c") for card in chosen]
        warm = [str(value) for value in temperatures if isinstance(value, int)]
        one = len(chosen) == 1
        yield Found(
            f"{named(chosen, cards(fingerprint))} {'is' if one else 'are'} slowed down: {_SLOWDOWNS[reason]}",
            path="gpu/devices",
            evidence=(f"{reason}, at {', '.join(warm)} °C" if warm else reason,),
        )


def _slowdown(card: Card) -> Any:
    reasons = card.notes.get("throttle_reasons")
    return next((name for name in _SLOWDOWNS if name in reasons), None) if isinstance(reasons, list) else None


@rule(
    "EA313",
    severity="warning",
    scope="node",
    needs=("gpu",),
    title="GPU mode waits for a reboot",
    why="The next reset changes the node without anybody touching it.",
    how_to_fix="Reset the GPUs or reboot now, or set the mode back.",
)
def mode_pending(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """ECC or MIG is set to another mode than it is in."""
    yield from over_nodes(evidence, _pending)


def _pending(fingerprint: Fingerprint) -> Iterator[Found]:
    for mode in ("ecc", "mig"):
        waiting = by_value(cards(fingerprint), partial(_two_modes, mode))
        for (now, later), chosen in waiting.items():
            yield Found(
                f"{named(chosen, cards(fingerprint))}: {mode.upper()} is {now}, and {later} after a reset",
                path=path_of(chosen, fingerprint, f"{mode}_pending"),
            )


def _two_modes(mode: str, card: Card) -> Any:
    now, later = card.facts.get(mode), card.facts.get(f"{mode}_pending")
    both = isinstance(now, str) and isinstance(later, str)
    return (now, later) if both and now != later else None


@rule(
    "EA314",
    severity="error",
    scope="node",
    needs=("gpu",),
    advisory=("Xid lines of the kernel's log",),
    title="the driver reported a fault of the GPU",
    why="Such a card fails again, mostly under load, and takes the whole job with it.",
    how_to_fix=_RESET,
)
def xid_reported(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Xids since boot; those that programs cause are no sign of a fault, all others are remarks."""
    yield from folded(evidence, _xids)


def _xids(fingerprint: Fingerprint) -> Iterator[Found]:
    counted: Dict[str, Dict[str, int]] = {}
    for name, xids in _reported(fingerprint):
        for number, times in xids.items():
            if number not in _OF_PROGRAMS and whole_number(times):
                counted.setdefault(str(number), {})[name] = times
    rest: List[str] = []
    is_gone = any(True for _ in fallen(fingerprint))
    for number, times_of in sorted(counted.items(), key=lambda pair: (len(pair[0]), pair[0])):
        lines = tuple(f"{name}: {times} since boot" for name, times in times_of.items())
        if number == "79" and is_gone:
            continue  # told by EA310
        if number in _FATAL_XIDS:
            who = ", ".join(times_of)
            yield Found(f"{who}: Xid {number}, {_FATAL_XIDS[number]}", path="gpu/devices", evidence=lines[:4])
        else:
            rest += [f"Xid {number}, {line}" for line in lines]
    if rest:
        yield Found(
            "the driver reported Xids since boot",
            path="gpu/devices",
            evidence=tuple(rest[:4]),
            hint="Look them up among NVIDIA's Xid errors, and in the kernel's log what they came with.",
            severity="info",
        )


def _reported(fingerprint: Fingerprint) -> Iterator[Tuple[str, Mapping[str, Any]]]:
    for card in cards(fingerprint):
        yield f"GPU {card.ordinal}", mapping(card.notes.get("xid"))
    for bus_id, xids in mapping(noted(fingerprint).get("xid_of_others")).items():
        yield f"GPU at {bus_id}", mapping(xids)


@rule(
    "EA315",
    severity="warning",
    scope="node",
    needs=("gpu",),
    title="PCIe link below its width",
    why="Data for this GPU comes at a half or a quarter of the speed.",
    how_to_fix="Reseat the card or its riser; then look at the slot's width in the firmware's settings.",
)
def narrow_link(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """By width alone: the generation drops on every idle GPU."""
    yield from over_nodes(evidence, _narrow)


def _narrow(fingerprint: Fingerprint) -> Iterator[Found]:
    if not is_linux(fingerprint):
        return
    for (now, most), chosen in by_value(cards(fingerprint), _widths).items():
        yield Found(
            f"{named(chosen, cards(fingerprint))}: PCIe link has {now} lanes of {most}",
            path=path_of(chosen, fingerprint, "pcie_width"),
        )


def _widths(card: Card) -> Any:
    now, most = whole_number(card.facts.get("pcie_width")), whole_number(card.facts.get("pcie_width_max"))
    virtual = str(card.facts.get("virtualization")).endswith("vgpu")
    return (now, most) if now and now < most and not virtual and not card.facts.get("state") else None
