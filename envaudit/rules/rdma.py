"""RDMA as NCCL uses it: verbs, GIDs of RoCE, GPUDirect, and the PCI devices between GPU and NIC."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterator, List, Mapping, Set

from envaudit.model.drift import join_path, split_path
from envaudit.model.fingerprint import Fingerprint
from envaudit.rules.compatibility import is_older
from envaudit.rules.nodefacts import (
    by_nodes,
    claimed,
    has_infiniband,
    hcas_of,
    is_container,
    is_seen,
    notes_of,
    rows,
    setting,
    taken_along,
)
from envaudit.rules.pernode import facts_of, mapping, over_nodes, told_between_nodes
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Claim, Evidence, Found, Threshold, difference, rule, threshold

_GID = "network/selection/roce_gid"
# NCCL chooses the GID itself from 2.21 on; before, it takes the first (its release notes).
_NCCL_CHOOSES_GID = "2.21"
_RATE = re.compile(r"(\d{1,5})(?:\.\d+)? Gb/sec \((\d{1,2})X")


@rule(
    "EA430",
    severity="error",
    scope="node",
    title="HCA without verbs",
    why="NCCL and UCX cannot use the adapter, and fall back to sockets: a tenth of the bandwidth.",
    how_to_fix="On a host: 'modprobe ib_uverbs'. A container is given them with --device=/dev/infiniband, "
    "or by the device plugin of the cluster.",
    needs=("network",),
)
def no_verbs(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Adapters in /sys and no uverbs in /dev: a warning in a container or if all are Ethernet."""
    told = taken_along(evidence, policy, ("EA400", "EA431"), "network/verbs")
    yield from over_nodes(evidence, _verbs, frozenset(told))


def _verbs(fingerprint: Fingerprint) -> Iterator[Found]:
    if hcas_of(fingerprint) and facts_of(fingerprint, "network").get("verbs") is False:
        hard = has_infiniband(fingerprint) and not is_container(fingerprint)
        yield Found(
            "HCAs are there, and /dev/infiniband has no uverbs device",
            path="network/verbs",
            severity="" if hard else "warning",
        )


@difference(
    "EA431",
    severity="warning",
    title="verbs on some nodes only",
    why="Ranks with RDMA and ranks without do not find each other, or all fall back to sockets.",
    of=("network/verbs", "network/verbs_lacking"),
    when=lambda drift, policy: is_seen(drift),
    how_to_fix="On a host: 'modprobe ib_uverbs'; give the container /dev/infiniband, as the others have it.",
)
def verbs_differ(claim: Claim, policy: Policy) -> Iterator[Found]:
    """An error where InfiniBand is there and cannot be used."""
    hard = any(has_infiniband(one) for one in claimed(claim))
    if all(drift.path == "network/verbs_lacking" for drift in claim.drifts):
        what = "the number of HCAs without verbs differs"
    else:
        what = "/dev/infiniband is usable on some nodes only"
    yield claim.found(what, severity="error" if hard else "")


@rule(
    "EA432",
    severity="error",
    scope="node",
    title="RoCE with a GID that does not route",
    why="NCCL speaks RoCE v1, or has no address: it fails with 'ibv_modify_qp failed' or times out.",
    how_to_fix="Unset NCCL_IB_GID_INDEX with NCCL 2.21 or newer; else set it to the RoCE v2 GID of the "
    "IPv4 address, which 'show_gids' names.",
    needs=("network",),
)
def gid_does_not_route(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """The GID that NCCL uses on Ethernet ports: by its index, or the first with an older NCCL."""
    told = told_between_nodes(evidence, policy, "EA433", _GID)
    yield from over_nodes(evidence, _gids, told)


def _gids(fingerprint: Fingerprint) -> Iterator[Found]:
    facts = mapping(mapping(facts_of(fingerprint, "network").get("selection")).get("roce_gid"))
    nccl = mapping(facts_of(fingerprint, "libraries").get("nccl")).get("version")
    if not facts:
        return
    if facts.get("by") == "own choice":
        if is_older(nccl, _NCCL_CHOOSES_GID):
            yield Found(
                f"NCCL {nccl} takes GID 0 of RoCE ports, which is RoCE v1 on most adapters",
                path=_GID,
                severity="warning",
            )
        return
    each = mapping(facts.get("each"))
    bad: Dict[str, int] = {}
    for row in (each, *({**each, **row} for row in rows(facts).values())):
        word = "is not there" if "state" in row else "is RoCE v1" if row.get("roce") == 1 else ""
        if word:
            bad[word] = bad.get(word, 0) + 1
    index = setting(fingerprint, "NCCL_IB_GID_INDEX").get("value")
    for word in bad:
        evidence = (f"of {_ports_with(facts, word)}",) if not _is_bad(each, word) else ()
        yield Found(f"GID {index}, which NCCL_IB_GID_INDEX names, {word}", path=_GID, evidence=evidence)


def _is_bad(row: Mapping[str, Any], word: str) -> bool:
    return "state" in row if word == "is not there" else row.get("roce") == 1


def _ports_with(facts: Mapping[str, Any], word: str) -> str:
    return ", ".join(f"port {ordinal}" for ordinal, row in rows(facts).items() if _is_bad(row, word))


@difference(
    "EA433",
    severity="error",
    title="RoCE GIDs differ in kind",
    why="A port with RoCE v1 or IPv6 does not reach one with RoCE v2 over IPv4: connecting times out.",
    of=(_GID,),
    follows=(f"{_GID}/**",),
    order=48,
    how_to_fix="Give each port its IPv4 address, and unset NCCL_IB_GID_INDEX with NCCL 2.21 or newer.",
)
def gids_differ(claim: Claim, policy: Policy) -> Iterator[Found]:
    """Version of RoCE and family of the address; the index may differ. Who chooses is a warning."""
    keys = {split_path(drift.path)[-1] for drift in claim.drifts}
    mild = keys <= {"by", "address"} and not any("state" in str(drift.groups) for drift in claim.drifts)
    lines = by_nodes(claimed(claim), _gid_words)
    yield claim.found("RoCE GIDs differ", evidence=lines, severity="warning" if mild else "")


def _gid_words(fingerprint: Fingerprint) -> str:
    notes = mapping(mapping(notes_of(fingerprint, "network").get("selection")).get("roce_gid"))
    indices: Set[str] = {str(mapping(row).get("index")) for row in notes.values()}
    facts = mapping(mapping(facts_of(fingerprint, "network").get("selection")).get("roce_gid"))
    each = mapping(facts.get("each"))
    kind = f"RoCE v{each['roce']}, {each.get('family')}" if each.get("roce") else ""
    return f"GID {', '.join(sorted(indices))}: {kind}" if kind and indices else kind


@rule(
    "EA434",
    severity="warning",
    scope="node",
    title="HCA port is slower than it could be",
    why="A collective is as fast as its slowest rail.",
    how_to_fix="See 'mlxlink -d DEVICE' for the lanes that came up; reseat or change the cable.",
    needs=("network",),
    thresholds={"infiniband_lanes": Threshold(2, "lanes", "fewer on an InfiniBand port are told")},
)
def slow_port(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """A port slower than its siblings of the node, or an InfiniBand port that came up with one lane.

    The maximum of a port is nowhere in /sys: a whole node that is slow shows against the others.
    """
    told = set(taken_along(evidence, policy, ("EA403",), "network/hcas"))
    yield from over_nodes(evidence, lambda one: _slow_ports(one, policy), frozenset(told))


def _slow_ports(fingerprint: Fingerprint, policy: Policy) -> Iterator[Found]:
    least = threshold("EA434", "infiniband_lanes", policy)
    for group, facts in sorted(hcas_of(fingerprint).items()):
        usual = str(mapping(mapping(facts).get("each")).get("rate"))
        match = _RATE.match(usual)
        path = join_path("network", "hcas", str(group))
        if match and str(group).endswith(" InfiniBand") and int(match[2]) < least:
            yield Found(f"ports of {group} came up with one lane: {usual}", path=path)
        slow: Dict[str, List[str]] = {}
        for ordinal, row in rows(facts).items():
            own = _RATE.match(str(row.get("rate")))
            if match and own and int(own[1]) != int(match[1]):
                slow.setdefault(str(row["rate"]), []).append(ordinal)
        for rate, ordinals in slow.items():
            yield Found(f"port {', '.join(ordinals)} of {group} has {rate}, the others {usual}", path=path)
