"""GPUDirect RDMA: how NICs reach the memory of GPUs, and what lies between them on the PCI bus."""

from __future__ import annotations

from typing import Iterator, Tuple

from envaudit.model.drift import split_path
from envaudit.model.fingerprint import Fingerprint
from envaudit.rules.compatibility import is_older
from envaudit.rules.nodefacts import by_nodes, claimed, is_container, is_seen, notes_of
from envaudit.rules.pernode import facts_of, mapping, over_nodes
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Claim, Evidence, Found, difference, rule

# Earlier ones look for nv_peer_mem alone (ncclIbGdrSupport in src/transport/net_ib.cc).
_NCCL_KNOWS_PEERMEM = "2.23"
# Bits that send what one device writes to another up to the host bridge (PCI Express 4.0, 6.12).
_REDIRECTING = ("ReqRedir", "CmpltRedir", "UpstreamFwd")


@difference(
    "EA440",
    severity="error",
    title="GPUDirect RDMA differs",
    why="Ranks without it copy through host memory: all wait for them, at a third of the bandwidth.",
    of=("topology/gdr",),
    when=lambda drift, policy: is_seen(drift),
    follows=("topology/gdrcopy",),
    how_to_fix="Load nvidia_peermem on all nodes ('modprobe nvidia-peermem', and in /etc/modules-load.d), "
    "or install the open kernel module for dma-buf.",
)
def gdr_differs(claim: Claim, policy: Policy) -> Iterator[Found]:
    """Where all nodes have one way in common, that another is there too is a warning."""
    groups = [group for group in claim.drifts[0].groups if group.state == "present"]
    ways = [set(str(group.value).split("+")) for group in groups]
    common = set.intersection(*ways) - {"none"} if ways else set()
    yield claim.found("GPUDirect RDMA differs", severity="warning" if common else "")


@rule(
    "EA441",
    severity="warning",
    scope="node",
    title="NCCL does not know nvidia_peermem",
    why="It looks for the older nv_peer_mem alone, and turns GPUDirect RDMA off: a tenth of the bandwidth.",
    how_to_fix="Use NCCL 2.23 or newer, or the open kernel module, with which NCCL takes dma-buf.",
    needs=("topology", "libraries"),
    case="An upgrade brought nvidia-peermem: NCCL 2.22 found GPU Direct RDMA disabled and ran at a tenth.",
)
def peermem_unknown(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """nvidia_peermem without dma-buf, under an NCCL before 2.23."""
    yield from over_nodes(evidence, _peermem)


def _peermem(fingerprint: Fingerprint) -> Iterator[Found]:
    nccl = mapping(facts_of(fingerprint, "libraries").get("nccl")).get("version")
    modules = notes_of(fingerprint, "topology").get("peermem")
    alone = facts_of(fingerprint, "topology").get("gdr") == "peermem" and modules == ["nvidia_peermem"]
    if alone and is_older(nccl, _NCCL_KNOWS_PEERMEM):
        yield Found(f"NCCL {nccl} does not look for nvidia_peermem", path="topology/gdr")


@rule(
    "EA442",
    severity="warning",
    scope="node",
    title="ACS is enabled",
    why="Bridges send what GPU and NIC write to each other up to the host: slow, or GPUDirect hangs.",
    how_to_fix="Turn it off in the firmware, or at each boot: 'setpci -s BRIDGE ECAP_ACS+6.w=0000'.",
    needs=("topology", "host"),
    advisory=("ACS",),
)
def acs_enabled(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Bits that redirect, on bare metal; a virtual machine needs them."""
    yield from over_nodes(evidence, _acs)


def _acs(fingerprint: Fingerprint) -> Iterator[Found]:
    acs = mapping(facts_of(fingerprint, "topology").get("acs"))
    if facts_of(fingerprint, "host").get("virtualisation") != "none" or not acs:
        return
    each, devices = str(acs.get("each")), mapping(acs.get("devices"))
    if _redirects(each):
        yield Found("ACS is enabled above GPUs and NICs", path="topology/acs", evidence=(each,))
    odd = sorted(f"{name}: {bits}" for name, bits in devices.items() if _redirects(str(bits)))
    if odd and not _redirects(each):
        names = ", ".join(line.partition(":")[0] for line in odd)
        yield Found(f"ACS is enabled above {names}", path="topology/acs", evidence=tuple(odd[:8]))


def _redirects(bits: str) -> bool:
    return any(bit in bits.split() for bit in _REDIRECTING)


@rule(
    "EA443",
    severity="info",
    scope="node",
    title="IOMMU translates",
    why="What GPU and NIC write to each other may be sent through the IOMMU, which costs bandwidth.",
    how_to_fix="On bare metal boot with iommu=pt, or turn the IOMMU off in the firmware.",
    needs=("topology", "host"),
)
def iommu_translates(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """On bare metal with GPUs and HCAs; a virtual machine needs it."""
    yield from over_nodes(evidence, _iommu)


def _iommu(fingerprint: Fingerprint) -> Iterator[Found]:
    topology = facts_of(fingerprint, "topology")
    modes = str(topology.get("iommu")).split(",")
    metal = facts_of(fingerprint, "host").get("virtualisation") == "none" and not is_container(fingerprint)
    both = bool(topology.get("gpus")) and topology.get("gdr") is not None
    if metal and both and any(mode.startswith("DMA") for mode in modes):
        yield Found(f"the IOMMU translates ({topology['iommu']})", path="topology/iommu")


@difference(
    "EA444",
    severity="warning",
    title="GPUs and NICs are wired otherwise",
    why="NCCL finds other paths and other rails: the node with the longest path sets the pace.",
    of=("topology/gpus", "topology/nics"),
    order=51,
    how_to_fix="Compare 'nvidia-smi topo -m': a card in another slot, NPS or SNC in the firmware.",
)
def wiring_differs(claim: Claim, policy: Policy) -> Iterator[Found]:
    """Link classes of GPUs and NICs, their NUMA nodes and PCI widths."""
    words: Tuple[str, ...] = tuple(sorted({split_path(drift.path)[-1] for drift in claim.drifts}))
    lines = by_nodes(claimed(claim), _widths) if words == ("nics",) else ()
    yield claim.found("GPUs and NICs are wired otherwise", evidence=lines)


def _widths(fingerprint: Fingerprint) -> str:
    nics = facts_of(fingerprint, "topology").get("nics")
    widths = [str(mapping(nic).get("pcie")) for nic in nics] if isinstance(nics, list) else []
    return "PCI links of the NICs: " + ", ".join(widths[:16]) if widths else ""
