"""Host channel adapters and MTUs that are not the same on all nodes.

A port that is down changes half a dozen facts: the count of active ports, what deviates, what the
settings resolve to. It is one finding, that of its cause.
"""

from __future__ import annotations

from typing import Iterable, Iterator, List

from envaudit.model.drift import Drift, split_path
from envaudit.model.fingerprint import Fingerprint
from envaudit.rules.claiming import has_two_values
from envaudit.rules.nodefacts import (
    INFINIBAND,
    by_nodes,
    claimed,
    has_infiniband,
    hcas_of,
    is_seen,
    notes_of,
    rows,
    says,
)
from envaudit.rules.pernode import mapping
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Claim, Found, difference

SELECTION = "network/selection/**"
# With an adapter its interface, its place in the tree of PCI devices and its driver come and go.
_WITH_HCA = (
    "network/hcas/**",
    SELECTION,
    "network/interfaces/infiniband/**",
    "network/interfaces/*/*/count",
    "network/interfaces/*/*/devices/**",
    "network/interfaces/*/mlx5_core",
    "network/modules/**",
    "network/verbs*",
    "topology/gpus",
    "topology/nics",
    "topology/gdr",
    "topology/one_iommu_group",
)
_PORTS_TOLD = 8


def _counts(drift: Drift, policy: Policy) -> bool:
    """Whether adapters are missing, rather than not well: a group of them, or its cards and ports."""
    segments = split_path(drift.path)
    return is_seen(drift) and (len(segments) < 4 or segments[3] in ("cards", "ports"))


@difference(
    "EA400",
    severity="error",
    title="HCAs differ",
    why="NCCL uses as many rails as it finds: ranks with fewer hang at the start, or slow all others down.",
    of=("network/hcas", "network/hcas/*/cards", "network/hcas/*/ports"),
    when=_counts,
    follows=_WITH_HCA,
    order=43,
    how_to_fix="Look for the card: 'lspci | grep -i mellanox', 'dmesg | grep mlx5', then its slot.",
)
def hcas_differ(claim: Claim, policy: Policy) -> Iterator[Found]:
    """Model, link layer or number; of Ethernet adapters beside InfiniBand only a warning."""
    groups = {split_path(drift.path)[2] for drift in claim.drifts if drift.path != "network/hcas"}
    models = [group.rpartition(" ")[0] for group in groups]
    beside = groups and not any(group.endswith(f" {INFINIBAND}") for group in groups)
    milder = beside and any(has_infiniband(one) for one in claim.evidence.fingerprints)
    lines = by_nodes(claimed(claim), lambda one: _inventory(one, groups))
    layer = len(groups) == 2 and len(set(models)) == 1
    message = "link layer of HCAs differs" if layer else "HCAs differ"
    yield claim.found(message, evidence=lines, severity="warning" if milder else "")


def _inventory(fingerprint: Fingerprint, groups: Iterable[str]) -> str:
    own = hcas_of(fingerprint)
    told = [f"{mapping(own.get(group)).get('ports', 0)} ports of {group}" for group in sorted(groups)]
    return ", ".join(told)


@difference(
    "EA401",
    severity="error",
    title="HCA port is down",
    why="Its ranks share another rail or have none: the job hangs at its start, or runs at half speed.",
    of=("network/hcas/*/active", "network/hcas/*/devices/**"),
    when=lambda drift, policy: says(drift, "state", "active"),
    follows=(
        "network/hcas/*/active",
        "network/hcas/*/each/rate",
        "network/hcas/*/each/active_mtu",
        "network/hcas/*/devices/**",
        "network/interfaces/infiniband/**",
        "network/interfaces/*/*/count",
        "network/interfaces/*/*/devices/**",
        "network/interfaces/*/*/each/speed_mbps",
        SELECTION,
    ),
    order=44,
    how_to_fix="See 'ibstat' and 'dmesg | grep mlx5'; then cable, switch port and subnet manager.",
)
def port_down(claim: Claim, policy: Policy) -> Iterator[Found]:
    """One finding, although the count of active ports and the selection change with it.

    Where the nodes that differ are those whose ports are up, that is a warning: they are cabled otherwise.
    """
    down = {one.node: _ports_down(one) for one in claimed(claim)}
    lines = by_nodes(claimed(claim), lambda one: ", ".join(down[one.node][:_PORTS_TOLD]))
    if down and not any(down.values()):
        yield claim.found("HCA ports are up on some nodes only", severity="warning")
        return
    one_each = max((len(ports) for ports in down.values()), default=1) == 1
    yield claim.found("HCA port is down" if one_each else "HCA ports are down", evidence=lines)


def _ports_down(fingerprint: Fingerprint) -> List[str]:
    """`mlx5_3:1 (port 3 of MT4129 InfiniBand) down, polling`."""
    notes = mapping(notes_of(fingerprint, "network").get("hcas"))
    found = []
    for group, facts in sorted(hcas_of(fingerprint).items()):
        for ordinal, row in rows(facts).items():
            if "state" in row:
                name = mapping(mapping(notes.get(group)).get(ordinal)).get("name")
                place = f"port {ordinal} of {group}"
                found.append(f"{f'{name} ({place})' if name else place} is {row['state']}")
    return found


@difference(
    "EA402",
    severity="error",
    title="MTU differs",
    why="Large packets are dropped on the way: the job hangs with its first large message, not at its start.",
    of=("network/interfaces/**", "network/hcas/**"),
    when=lambda drift, policy: says(drift, "mtu", "active_mtu"),
    follows=("network/hcas/*/each/active_mtu", "network/hcas/*/devices/*/active_mtu"),
    how_to_fix="Set one MTU on all interfaces of a network: in netplan, NetworkManager or the CNI plugin.",
)
def mtu_differs(claim: Claim, policy: Policy) -> Iterator[Found]:
    """Of interfaces, and the active MTU of RoCE ports that follows from it."""
    yield claim.found("MTU differs")


@difference(
    "EA403",
    severity="error",
    title="HCA rate differs",
    why="A collective is as fast as its slowest link: one port of half the rate halves it for all ranks.",
    of=("network/hcas/**",),
    when=lambda drift, policy: says(drift, "rate"),
    follows=("network/interfaces/*/*/each/speed_mbps", "network/interfaces/*/*/devices/*/speed_mbps"),
    how_to_fix="See 'ibstat' and 'mlxlink -d DEVICE'; then the cable and the settings of the switch port.",
)
def rate_differs(claim: Claim, policy: Policy) -> Iterator[Found]:
    """Rate and width stand in one fact, `200 Gb/sec (4X HDR)`."""
    yield claim.found("HCA rate differs")


@difference(
    "EA404",
    severity="warning",
    title="HCA firmware differs",
    why="Firmware decides about congestion control, adaptive routing and the faults that were mended.",
    of=("network/hcas/**",),
    when=lambda drift, policy: says(drift, "firmware", "board"),
    how_to_fix="Bring the firmware of these nodes to the others': 'mlxfwmanager', then a reboot.",
)
def firmware_differs(claim: Claim, policy: Policy) -> Iterator[Found]:
    """Firmware, or the board that it is for."""
    boards = any(says(drift, "board") for drift in claim.drifts)
    yield claim.found("HCA board differs" if boards else "HCA firmware differs")


# Modules that come with OFED, or with the kernel's own RDMA; others are drivers of single interfaces.
_OF_RDMA = ("mlx", "ib_", "rdma", "irdma", "iw_", "bnxt_re", "efa", "erdma", "mana_ib")


def _of_a_release(drift: Drift, policy: Policy) -> bool:
    """Whether versions differ, or one that belongs to RDMA is there on some nodes only."""
    return has_two_values(drift) or split_path(drift.path)[-1].startswith(("ofed", *_OF_RDMA))


@difference(
    "EA405",
    severity="warning",
    title="OFED or RDMA drivers differ",
    why="User-space verbs and kernel drivers of two releases were never tested with each other.",
    of=("network/ofed", "network/modules/**"),
    when=_of_a_release,
    how_to_fix="Install one release of MLNX_OFED or DOCA-OFED on all nodes, or none.",
)
def ofed_differs(claim: Claim, policy: Policy) -> Iterator[Found]:
    """The release, and the versions that the kernel modules state."""
    ofed = any(drift.path == "network/ofed" for drift in claim.drifts)
    yield claim.found("OFED differs" if ofed else "network drivers differ")
