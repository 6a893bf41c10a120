"""What must agree before torch is imported, because ranks that differ in it hang or crash inside NCCL.

Pure functions over what every supervisor said of its node. What a node does not know (null, or not
there) is not compared, and `unknown` says so.
"""

from __future__ import annotations

import ipaddress
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

ERROR = "error"
WARNING = "warning"

# What a differing value does, most telling first.
_MUST_AGREE: Tuple[Tuple[str, str, str], ...] = (
    ("tool", ERROR, "two versions of envaudit do not ask for the same collectives in the same order"),
    ("torch", ERROR, "ranks with different torch hang or crash when their process group is made"),
    ("torch_git", ERROR, "one version of torch in two builds: ranks may hang or crash in collectives"),
    ("hip", ERROR, "ranks of CUDA and of ROCm, or of two ROCm, cannot talk to each other"),
    ("cuda", ERROR, "ranks built for different CUDA load different NCCL, which refuse or hang"),
    ("nccl", ERROR, "ranks with different NCCL refuse to connect, or hang"),
    ("cudnn", WARNING, "results of one operation may differ between nodes"),
    ("driver", WARNING, "NCCL may choose other ways between nodes"),
    ("python", WARNING, "objects that ranks send to each other may not be read"),
)


class Claim(NamedTuple):
    """What a supervisor says of itself.

    Attributes:
        node: its node's name.
        facts: {"python", "torch", "torch_git", "cuda", "hip", "nccl", "cudnn", "driver": text or null,
            "gpus": [{"uuid", "model"}, ...] in torch's order, "interface": {"name", "address"}, "tool"}.
        ranks: of its workers, where the launcher dealt them; empty where the hub does.
        local_ranks: how many workers it has.
        world: how many ranks the launcher says there are; 0 where it says nothing.
        devices: of its workers, "cuda:3" or "cpu".
    """

    node: str
    facts: Mapping[str, Any]
    ranks: Tuple[int, ...] = ()
    local_ranks: int = 1
    world: int = 0
    devices: Tuple[str, ...] = ()


def compare(claims: Mapping[int, Claim]) -> List[Dict[str, Any]]:
    """Every disagreement, errors first: {"what", "values": {value: [nodes]}, "nodes", "severity", "text"}.

    `nodes` are those that are to be changed: outside the largest group of a value, all where no group is the
    largest; of what is wrong by itself (two ranks on one card) all that have it.
    """
    found: List[Dict[str, Any]] = []
    for what, severity, text in _MUST_AGREE:
        found += _differing(what, severity, text, {i: c.facts.get(what) for i, c in claims.items()}, claims)
    found += _ranks(claims)
    found += _devices(claims)
    found += _interfaces(claims)
    return sorted(found, key=lambda row: row["severity"] != ERROR)


def unknown(claims: Mapping[int, Claim]) -> Dict[str, List[str]]:
    """What could not be compared, and on which nodes it is not known.

    What no node knows is left out for the parts that a machine need not have (CUDA, its driver, ROCm).
    """
    found: Dict[str, List[str]] = {}
    for what, _, _ in _MUST_AGREE:
        missing = sorted({claim.node for claim in claims.values() if claim.facts.get(what) is None})
        nobody_knows = all(claim.facts.get(what) is None for claim in claims.values())
        if missing and not (nobody_knows and what in ("hip", "cuda", "nccl", "cudnn", "driver")):
            found[what] = missing
    return found


def _differing(
    what: str, severity: str, text: str, said: Mapping[int, Optional[Any]], claims: Mapping[int, Claim]
) -> List[Dict[str, Any]]:
    values: Dict[str, List[str]] = {}
    for index in sorted(claims):
        if said.get(index) is not None:
            nodes = values.setdefault(str(said[index]), [])
            if claims[index].node not in nodes:
                nodes.append(claims[index].node)
    return [_row(what, values, severity, text)] if len(values) > 1 else []


def _row(
    what: str,
    values: Mapping[str, Sequence[str]],
    severity: str,
    text: str,
    wrong: Optional[Mapping[str, Sequence[str]]] = None,
) -> Dict[str, Any]:
    """One disagreement; `wrong` are the values that are so by themselves, whoever has them."""
    most_first = sorted(values, key=lambda value: (-len(values[value]), value))
    at_fault = [values[value] for value in most_first] if wrong is None else list(wrong.values())
    if wrong is None and len(at_fault) > 1 and len(at_fault[0]) > len(at_fault[1]):
        # The reference is whoever the most nodes agree with.
        del at_fault[0]
    return {
        "what": what,
        "values": {value: list(values[value]) for value in most_first},
        "nodes": list(dict.fromkeys(node for nodes in at_fault for node in nodes)),
        "severity": severity,
        "text": text,
    }


def _ranks(claims: Mapping[int, Claim]) -> List[Dict[str, Any]]:
    """The launcher's own numbers: one world, every rank once, all dealt or none."""
    worlds = {index: claim.world or None for index, claim in claims.items()}
    text = "the launch gives its processes different world sizes: two launches meet at one hub"
    found = _differing("world", ERROR, text, worlds, claims)
    holders: Dict[int, List[str]] = {}
    for index in sorted(claims):
        for rank in claims[index].ranks:
            holders.setdefault(rank, []).append(claims[index].node)
    twice = {f"rank {rank}": nodes for rank, nodes in sorted(holders.items()) if len(nodes) > 1}
    if twice:
        text = "two processes have one rank: the process group would hang"
        found.append(_row("rank", twice, ERROR, text, wrong=twice))
    dealt = [claim for claim in claims.values() if claim.ranks]
    if dealt and len(dealt) != len(claims):
        some = {"given": [c.node for c in dealt], "none": [c.node for c in claims.values() if not c.ranks]}
        found.append(_row("rank", some, ERROR, "the launcher gave ranks to some processes only"))
    elif dealt and not twice:
        world = max(claim.world for claim in dealt) or len(holders)
        if sorted(holders) != list(range(world)):
            lacking = sorted(set(range(world)) - set(holders))[:16]
            foreign = [rank for rank in holders if not 0 <= rank < world][:16]
            nobody: List[str] = []
            wrong = {f"missing of {world}: {rank}": nobody for rank in lacking}
            wrong.update({f"beyond {world}: {rank}": holders[rank] for rank in foreign})
            text = "the processes that came do not hold every rank once"
            found.append(_row("rank", wrong, ERROR, text, wrong=wrong))
    return found


def _devices(claims: Mapping[int, Claim]) -> List[Dict[str, Any]]:
    """One card for one rank, all on cards or none, all of one model."""
    found: List[Dict[str, Any]] = []
    holders: Dict[str, List[str]] = {}
    kinds: Dict[str, List[str]] = {}
    models: Dict[str, List[str]] = {}
    for index in sorted(claims):
        claim = claims[index]
        for device in claim.devices or ("cpu",) * claim.local_ranks:
            kind, _, ordinal = device.partition(":")
            _note(kinds, kind, claim.node)
            card = _card(claim.facts, ordinal) if kind == "cuda" else {}
            if card.get("uuid"):
                holders.setdefault(str(card["uuid"]), []).append(claim.node)
            if card.get("model"):
                _note(models, str(card["model"]), claim.node)
    shared = {uuid: nodes for uuid, nodes in holders.items() if len(nodes) > 1}
    if shared:
        text = "several ranks share one GPU: NCCL refuses that (duplicate GPU detected)"
        found.append(_row("duplicate_gpu", shared, ERROR, text, wrong=shared))
    if len(kinds) > 1:
        text = "some ranks have a GPU and some none: no process group can hold both"
        found.append(_row("backend", kinds, ERROR, text))
    if len(models) > 1:
        found.append(_row("gpu", models, WARNING, "the slowest model sets the pace of every collective"))
    return found


def _note(table: Dict[str, List[str]], key: str, node: str) -> None:
    nodes = table.setdefault(key, [])
    if node not in nodes:
        nodes.append(node)


def _card(facts: Mapping[str, Any], ordinal: str) -> Mapping[str, Any]:
    cards = facts.get("gpus") or []
    place = int(ordinal or 0)
    return cards[place] if place < len(cards) and isinstance(cards[place], dict) else {}


def _interfaces(claims: Mapping[int, Claim]) -> List[Dict[str, Any]]:
    """An interface must be there, and a loopback one is right only where all ranks are on one node."""
    one_node = len({claim.node for claim in claims.values()}) < 2
    wrong: Dict[str, List[str]] = {}
    right: Dict[str, List[str]] = {}
    absent = False
    for index in sorted(claims):
        interface = claims[index].facts.get("interface")
        if not isinstance(interface, dict):
            continue
        name, address = interface.get("name"), str(interface.get("address") or "")
        if name and not address:
            absent = True
            _note(wrong, f"{name}, which is not there", claims[index].node)
        elif address and is_loopback(address) and not one_node:
            _note(wrong, f"{name or '?'} {address}", claims[index].node)
        elif address:
            _note(right, str(name or "?"), claims[index].node)
    if not wrong:
        return []
    text = "an interface without an address" if absent else "a loopback interface reaches no other node"
    text += ": look at GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME and /etc/hosts"
    return [_row("interface", {**right, **wrong}, ERROR, text, wrong=wrong)]


def is_loopback(address: str) -> bool:
    """Whether an address is of the machine itself; False for what is no address."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False
