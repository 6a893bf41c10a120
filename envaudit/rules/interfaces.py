"""Interfaces, bonds and their subnets: not the same on all nodes, or not well on one."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, Set, Tuple

from envaudit.model.drift import Drift, split_path
from envaudit.model.fingerprint import Fingerprint
from envaudit.rules.network import SELECTION
from envaudit.rules.nodefacts import by_nodes, claimed, is_seen, notes_of, number, rows, says, taken_along
from envaudit.rules.pernode import facts_of, mapping, over_nodes
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Claim, Evidence, Found, difference, rule

_MAX_TOLD = 8


@difference(
    "EA420",
    severity="warning",
    title="interface is down",
    why="What went over it goes another way, or nowhere.",
    of=("network/interfaces/*/*/devices/**",),
    when=lambda drift, policy: says(drift, "state"),
    follows=(
        "network/interfaces/*/*/devices/**",
        "network/interfaces/*/*/each/speed_mbps",
        "network/interfaces/bond/**",
        SELECTION,
    ),
    order=45,
    how_to_fix="See 'ip link' and 'ethtool' on it; then the cable and the switch port.",
)
def interface_down(claim: Claim, policy: Policy) -> Iterator[Found]:
    """An error where the interface is one that NCCL, Gloo or UCX would take."""
    lines = by_nodes(claimed(claim), _interfaces_down)
    chosen = any(drift.path.startswith("network/selection/") for drift in claim.following)
    if not lines:
        yield claim.found("interfaces are up on some nodes only")
        return
    yield claim.found("interface is down", evidence=lines, severity="error" if chosen else "")


def _interfaces_down(fingerprint: Fingerprint) -> str:
    names = mapping(notes_of(fingerprint, "network").get("interfaces"))
    down = [str(name) for name, row in names.items() if mapping(row).get("up") is False]
    drivers = [
        f"one of {driver} ({kind})"
        for kind, of_kind in sorted(_interfaces(fingerprint).items())
        for driver, facts in sorted(mapping(of_kind).items())
        if any("state" in row for row in rows(facts).values())
    ]
    return ", ".join(down if down and drivers else drivers)


def _interfaces(fingerprint: Fingerprint) -> Mapping[str, Any]:
    return mapping(facts_of(fingerprint, "network").get("interfaces"))


@rule(
    "EA421",
    severity="warning",
    scope="node",
    title="member of a bond is down",
    why="The bond carries on at half its rate, and the next fault of it takes the node off the network.",
    how_to_fix="See /proc/net/bonding; then the cable and the switch port of the member.",
    needs=("network",),
)
def bond_member_down(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """A bond with fewer members that carry than it has."""
    told = taken_along(evidence, policy, ("EA420", "EA422"), "network/interfaces/bond")
    yield from over_nodes(evidence, _bonds, frozenset(told))


def _bonds(fingerprint: Fingerprint) -> Iterator[Found]:
    for driver, facts in sorted(mapping(_interfaces(fingerprint).get("bond")).items()):
        each = mapping(mapping(facts).get("each"))
        for row in [each, *({**each, **row} for row in rows(facts).values())]:
            members, up = number(row.get("members")), row.get("members_up")
            if isinstance(up, int) and up < members:
                path = f"network/interfaces/bond/{driver}"
                yield Found(f"only {up} of {members} members of a bond are up", path=path)
                break


@difference(
    "EA422",
    severity="warning",
    title="members of a bond differ",
    why="The bond has another rate on these nodes, and the next fault may take one off the network.",
    of=("network/interfaces/bond/**",),
    when=lambda drift, policy: says(drift, "members", "members_up"),
    follows=("network/interfaces/bond/*/each/speed_mbps", "network/interfaces/*/*/count", SELECTION),
    order=46,
    how_to_fix="See /proc/net/bonding; then the cable and the switch port of the member.",
)
def bond_members_differ(claim: Claim, policy: Policy) -> Iterator[Found]:
    """How many it has, and how many carry."""
    lines = by_nodes(
        claimed(claim), lambda one: "; ".join(dict.fromkeys(found.message for found in _bonds(one)))
    )
    yield claim.found("member of a bond is down" if lines else "members of a bond differ", evidence=lines)


def _counts(drift: Drift) -> bool:
    """Whether interfaces are missing, not set otherwise: a kind, a driver of it, or how many it has."""
    segments = split_path(drift.path)
    return is_seen(drift) and (len(segments) < 5 or segments[4] == "count")


@difference(
    "EA424",
    severity="warning",
    title="interfaces differ",
    why="Ranks meet on another network or at another speed, and all wait for the slowest.",
    of=("network/interfaces/**",),
    when=lambda drift, policy: _counts(drift) or says(drift, "speed_mbps"),
    follows=("network/modules/*", "network/selection/*/*/speed_mbps"),
    order=51,
    how_to_fix="Compare 'ip -br address', and 'ethtool' of the slow one; then cable, switch port and driver.",
)
def interfaces_differ(claim: Claim, policy: Policy) -> Iterator[Found]:
    """Their kinds, drivers, number or speed."""
    if not any(map(_counts, claim.drifts)):
        meant = {tuple(split_path(drift.path)[2:4]) for drift in claim.drifts}
        lines = by_nodes(claimed(claim), lambda one: _named(one, meant))
        yield claim.found("speed of interfaces differs", evidence=lines)
        return
    only_counts = all(drift.path.endswith("/count") for drift in claim.drifts)
    message = "number of interfaces differs" if only_counts else "interfaces differ"
    yield claim.found(message, evidence=by_nodes(claimed(claim), _inventory))


def _named(fingerprint: Fingerprint, meant: Set[Tuple[str, ...]]) -> str:
    """The interfaces of some kinds and drivers: `eno1`, or `one of ens1f0, ens1f1`."""
    noted = mapping(notes_of(fingerprint, "network").get("interfaces"))
    rows_of = {str(name): mapping(row) for name, row in noted.items()}
    names = [name for name, row in rows_of.items() if (row.get("kind"), row.get("driver")) in meant]
    return ("one of " if len(names) > 1 else "") + ", ".join(names[:_MAX_TOLD])


def _inventory(fingerprint: Fingerprint) -> str:
    """`8 infiniband of mlx5_core, 1 physical of igb`."""
    return ", ".join(
        f"{mapping(facts).get('count')} {kind} of {driver}"
        for kind, of_kind in sorted(_interfaces(fingerprint).items())
        for driver, facts in sorted(mapping(of_kind).items())
    )


@rule(
    "EA423",
    severity="info",
    scope="node",
    title="two interfaces in one subnet",
    why="Answers leave by the interface of the first route, whichever they came in by: one link carries all, "
    "or the switch drops them.",
    how_to_fix="Give each rail a subnet of its own, or set routes by source and "
    "net.ipv4.conf.all.arp_ignore=1, rp_filter=2.",
    needs=("network",),
)
def two_in_one_subnet(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """A warning where NCCL takes both for its sockets."""
    yield from over_nodes(evidence, _subnets)


def _subnets(fingerprint: Fingerprint) -> Iterator[Found]:
    import ipaddress  # 5 ms, which a command that judges no network need not pay

    notes = notes_of(fingerprint, "network")
    selection = mapping(mapping(notes.get("selection")).get("NCCL_SOCKET_IFNAME")).get("names")
    taken = selection if isinstance(selection, list) else []
    networks: Dict[str, List[str]] = {}
    for name, row in sorted(mapping(notes.get("interfaces")).items()):
        addresses = mapping(row).get("addresses")
        if mapping(row).get("up") is not True or not isinstance(addresses, list):
            continue
        for text in addresses:
            try:
                network = ipaddress.ip_interface(str(text)).network
            except ValueError:
                continue
            # A single address has no network, and each interface has its link-local one.
            if network.num_addresses > 1 and not network.is_link_local:
                members = networks.setdefault(str(network), [])
                members += [] if name in members else [name]
    both = [members for members in networks.values() if len(members) > 1]
    if both:
        used = any(sum(name in taken for name in members) > 1 for members in both)
        names = "; ".join(dict.fromkeys(", ".join(members) for members in both))
        yield Found(
            f"interfaces share a subnet: {names}",
            path="network/interfaces",
            severity="warning" if used else "",
        )
