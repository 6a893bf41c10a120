"""What joins the GPUs of a node: the NVLink fabric, its manager, and the links of each card."""

from __future__ import annotations

from typing import Any, Iterator, Optional, Tuple

from envaudit.model.drift import Drift
from envaudit.model.fingerprint import Fingerprint
from envaudit.rules.cards import Card, by_value, cards, named, path_of, whole_number
from envaudit.rules.pernode import Facts, facts_of, mapping, over_nodes, told_between_nodes
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Claim, Evidence, Found, difference, rule

_READY = "completed"
_RESTART = (
    "Let the jobs of the node end, restart the fabric manager (systemctl restart nvidia-fabricmanager, "
    "as root), and reset the GPUs or reboot where that is not enough."
)


@rule(
    "EA345",
    severity="error",
    scope="node",
    needs=("gpu",),
    title="GPU has not joined the NVLink fabric",
    why="CUDA or NCCL fails at its start with 'invalid argument', 'system not yet initialized' (802), or "
    "runs without NVLink.",
    how_to_fix=_RESTART,
    case="NCCL ended with 'invalid argument' in its NVLink SHARP transport on eight H100. The driver was "
    "blamed; the fabric manager had been restarted under running jobs.",
)
def fabric_not_joined(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """NVML's fabric state, from Hopper on; GPUs that are in no fabric have none."""
    yield from over_nodes(evidence, _not_joined)


def _not_joined(fingerprint: Fingerprint) -> Iterator[Found]:
    # Without the manager no GPU joins: one cause, one finding.
    if any(True for found in _manager(fingerprint) if found.severity != "warning"):
        return
    rows = cards(fingerprint)
    in_one = {_product(card) for card in rows if isinstance(card.facts.get("fabric_state"), str)}
    outside = [card for card in rows if _product(card) in in_one and _is_in_none(card)]
    if outside:
        message = f"{named(outside)}: in no fabric, and its neighbours are in one"
        yield Found(message, path=path_of(outside, fingerprint, "fabric_state"))
    for (state, status), chosen in by_value(rows, _state).items():
        said = f"fabric state {state}" + (f", status {status}" if status else "")
        fact = "fabric_state" if state != _READY else "fabric_status"
        joined = [card for card in rows if card.facts.get("fabric_state") == _READY and _state(card) is None]
        yield Found(
            f"{named(chosen, rows)}: {said}",
            path=path_of(chosen, fingerprint, fact),
            evidence=(f"{named(joined)}: {_READY}",) if joined else (),
        )


def _is_in_none(card: Card) -> bool:
    facts = card.facts
    told = "fabric_state" in facts and not facts.get("state") and not _is_cut(card)
    return told and facts["fabric_state"] is None


def _is_cut(card: Card) -> bool:
    """Whether MIG cuts the card into slices, which use no NVLink."""
    return card.facts.get("mig") == "enabled"


def _product(card: Card) -> str:
    return str(card.facts.get("product"))


def _state(card: Card) -> Any:
    state, status = card.facts.get("fabric_state"), card.facts.get("fabric_status")
    if not isinstance(state, str) or card.facts.get("state"):
        return None
    failed = status if isinstance(status, int) and not isinstance(status, bool) else 0
    return (state, failed) if state != _READY or failed else None


@rule(
    "EA346",
    severity="error",
    scope="node",
    needs=("gpu",),
    title="NVLink fabric is not healthy",
    why="Links to other GPUs are slow, being rerouted or cut off: collectives hang or crawl.",
    how_to_fix=_RESTART,
)
def fabric_unhealthy(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """By NVML's health mask, which drivers from 545 on have."""
    yield from over_nodes(evidence, _unhealthy)


def _unhealthy(fingerprint: Fingerprint) -> Iterator[Found]:
    rows = cards(fingerprint)
    for troubles, chosen in by_value(rows, _troubles).items():
        words = ", ".join(word.replace("_", " ") for word in troubles)
        path = path_of(chosen, fingerprint, "fabric_health")
        yield Found(f"{named(chosen, rows)}: the fabric reports {words}", path=path)


def _troubles(card: Card) -> Any:
    health = card.facts.get("fabric_health")
    # What did not join is told by EA345.
    if not isinstance(health, list) or not health or _state(card) is not None or card.facts.get("state"):
        return None
    return tuple(sorted(map(str, health)))


@rule(
    "EA347",
    severity="error",
    scope="node",
    needs=("gpu",),
    title="fabric manager does not serve the driver",
    why="On a node with NVSwitches no CUDA program starts without it: 'system not yet initialized' (802).",
    case="All GPUs of a host were listed and none could be used: the fabric manager was of another "
    "release than the driver.",
)
def fabric_manager_fails(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Where NVSwitches and the host's services are seen; on PCIe cards there is nothing to manage."""
    yield from over_nodes(evidence, _manager)


def _manager(fingerprint: Fingerprint) -> Iterator[Found]:
    gpu = facts_of(fingerprint, "gpu")
    manager = mapping(gpu.get("fabric_manager"))
    driver, version = gpu.get("driver"), manager.get("version")
    switches = whole_number(manager.get("switches"))
    evidence = (f"{switches} NVSwitches",) if switches else ()
    if isinstance(version, str) and isinstance(driver, str) and version not in ("as driver", driver):
        yield Found(
            f"the fabric manager is {version}, and the driver is {driver}",
            path="gpu/fabric_manager/version",
            evidence=evidence,
            hint=f"Install the fabric manager of release {driver}, and restart it.",
        )
        return
    what = _not_there(manager)
    if what is None:
        return
    fact, message, hint = what
    states = {str(card.facts.get("fabric_state")) for card in cards(fingerprint)}
    yield Found(
        message,
        path=f"gpu/fabric_manager/{fact}",
        evidence=(
            *evidence,
            *(("all GPUs have joined the fabric nevertheless",) if states == {_READY} else ()),
        ),
        hint=hint,
        severity="warning" if states == {_READY} else "",
    )


def _not_there(manager: Facts) -> Optional[Tuple[str, str, str]]:
    if manager.get("running") is False:
        if manager.get("installed") is False:
            words = "the node has NVSwitches, and no fabric manager is installed"
            return "installed", words, "Install the fabric manager of the driver's release, and start it."
        start = "Start it: systemctl enable --now nvidia-fabricmanager, as root."
        return "running", "the fabric manager is not running", start
    return None


@rule(
    "EA348",
    severity="warning",
    scope="node",
    needs=("gpu",),
    title="NVLinks of a GPU are down",
    why="Traffic takes fewer links, or PCIe: all-reduce runs at the speed of the slowest card.",
    how_to_fix="Reset the GPUs or reboot; where the link stays down, reseat the board or bridge.",
)
def links_are_down(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Fewer than the other cards of the node have, or, behind NVSwitches, than there are."""
    yield from over_nodes(evidence, _down, told_between_nodes(evidence, policy, "EA349", "gpu/each"))


def _down(fingerprint: Fingerprint) -> Iterator[Found]:
    rows = [card for card in cards(fingerprint) if not card.facts.get("state") and not _is_cut(card)]
    up = [_links_up(card) for card in rows]
    switched = _is_switched(fingerprint, rows)
    most = max((number for number in up if number is not None), default=0)

    def fewer(card: Card) -> Any:
        own, wired = _links_up(card), whole_number(card.facts.get("nvlinks"))
        expected = wired if switched else min(most, wired)
        return (own, expected) if own is not None and own < expected else None

    for (own, expected), chosen in by_value(rows, fewer).items():
        yield Found(
            f"{named(chosen, rows)}: {own} of {expected} NVLinks are up",
            path=path_of(chosen, fingerprint, "nvlinks_up"),
            severity="error" if switched else "",
        )


def _links_up(card: Card) -> Optional[int]:
    up = card.facts.get("nvlinks_up")
    return up if isinstance(up, int) and not isinstance(up, bool) else None


def _is_switched(fingerprint: Fingerprint, rows: Any) -> bool:
    """Whether all links are wired, to switches: elsewhere a bridge may use a part of them."""
    manager = mapping(facts_of(fingerprint, "gpu").get("fabric_manager"))
    return bool(manager) or any(isinstance(card.facts.get("fabric_state"), str) for card in rows)


def _is_about_links(drift: Drift, policy: Policy) -> bool:
    """Of the fabric's state only that some nodes are in none: another state is told by EA345."""
    known = [group for group in drift.groups if group.state != "unknown"]
    return drift.path != "gpu/each/fabric_state" or any(not isinstance(group.value, str) for group in known)


@difference(
    "EA349",
    severity="error",
    title="NVLinks differ",
    why="All-reduce runs at the speed of the node with the fewest links, or NCCL chooses other ways there.",
    of=(
        *("gpu/each/nvlinks", "gpu/each/nvlinks_up", "gpu/each/nvlink_mbps", "gpu/each/nvlink_version"),
        "gpu/each/fabric_state",
    ),
    when=_is_about_links,
    follows=("gpu/each/fabric_status", "gpu/each/fabric_health", "gpu/each/nvlink*"),
    order=44,
    how_to_fix="Compare nvidia-smi nvlink --status with a good node; reset the GPUs, then look at the board.",
)
def links_differ(claim: Claim, policy: Policy) -> Iterator[Found]:
    """Of most cards of a node; single cards are told by EA348."""
    only_fabric = all(drift.path == "gpu/each/fabric_state" for drift in claim.drifts)
    yield claim.found("NVLink fabric differs" if only_fabric else "NVLinks differ")
