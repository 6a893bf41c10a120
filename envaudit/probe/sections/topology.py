"""How near GPUs and NICs are to each other, and what lies between them.

Facts, where GPUs or HCAs are; ordinals count by PCI address, as CUDA's do with
CUDA_DEVICE_ORDER=PCI_BUS_ID and NVML's always:

    gpus        [{"numa": 0, "gpus": "X NODE SYS", "nics": "PIX SYS"}, ...]: of each GPU its NUMA node,
                and what lies between it and each GPU and NIC, in the words of `nvidia-smi topo -m`
                over PCI (NVLink is the section gpu's): X, PIX, PXB, PHB, NODE, SYS, `?` where unknown
    nics        [{"kind": "hca", "numa": 0, "pcie": "x16 32 GT/s"}, ...]: the HCAs or, where none is,
                the Ethernet interfaces that are PCI devices
    iommu       the kernel's type of the groups that GPUs and NICs are in: identity (passthrough), DMA
                or DMA-FQ (translated), several with commas; "off" where the kernel makes no groups
    one_iommu_group    whether a GPU and a NIC are in one group
    gdr         how an HCA reaches the memory of NVIDIA's GPUs: "dmabuf", "peermem", "dmabuf+peermem" or
                "none"; null where there is no HCA, or the kernel modules are not to be seen
    gdrcopy     "loaded", "loaded, no /dev/gdrdrv" or "none"
    acs         {"each": "off", "devices": {"gpu3": "ReqRedir UpstreamFwd"}}: the ACS bits that are set on
                any bridge above a device; null where they cannot be read, which takes root

A list of maps is one fact: a link, a GPU or an HCA that is other or missing is one difference. Two
nodes whose buses are numbered otherwise and that are wired alike have equal facts.

dma-buf is what CUDA's DMA_BUF_SUPPORTED says without asking CUDA: NVIDIA's open kernel module from
515 on, a kernel from 5.12 on (ibv_reg_dmabuf_mr). peermem is the module nvidia_peermem, or
nv_peer_mem before it; of AMD's GPUs, the amdkfd client among the kernel's memory peers.

Absent where neither a GPU nor an HCA is on a PCI bus that was looked at: a CPU-only node has nothing
to say here, its Ethernet interfaces are the section network's. In a container that was given neither
the same, though /sys shows the host's.

Notes: addresses, names, group numbers, bits of each bridge, the modules behind peermem.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional, Sequence, Tuple

from envaudit.probe import acs, pci_gpus, pcitree
from envaudit.probe.context import Answer, Context
from envaudit.probe.pcitree import Device, Nic
from envaudit.probe.virtualisation import container_kind

SCHEMA = 1

_GROUPS = "/sys/kernel/iommu_groups"
_MODULES = "/sys/module"
_PEERMEM = ("nvidia_peermem", "nv_peer_mem")
_AMD_PEER = "/sys/kernel/mm/memory_peers/amdkfd"
_DMABUF_DRIVER = 515
_DMABUF_KERNEL = (5, 12)
_MOST = 64


def read(context: Context) -> Answer:
    """The tree of GPUs and NICs; absent where neither is and that was seen."""
    notes: Dict[str, Any] = {}
    try:
        known = pcitree.addresses(context)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and context.is_dir("/sys/bus"):
            return Answer("absent", {}, notes)
        why = f"{pcitree.DEVICES}: {error.strerror}: whether a GPU or an HCA is there is unknown"
        return Answer("error", {}, notes, [why])
    on_bus, untold = pcitree.gpus(context, known)
    gpus, hcas = _given(context, on_bus, pcitree.hcas(context), notes)
    if not gpus and not hcas:
        if untold:
            why = f"{untold} PCI devices do not tell their vendor: whether one is a GPU is unknown"
            return Answer("error", {}, notes, [why])
        return Answer("absent", {}, notes)
    nics = hcas or pcitree.ethernet(context)
    if max(len(gpus), len(nics)) > _MOST:
        notes["not_examined"] = {"GPUs and NICs": f"beyond the first {_MOST} of each"}
        gpus, nics = gpus[:_MOST], nics[:_MOST]
    facts: Dict[str, Any] = {
        "gpus": [_gpu(gpu, gpus, nics) for gpu in gpus],
        "nics": [
            {
                "kind": nic.kind,
                "numa": nic.device.numa,
                "pcie": pcitree.link_width(context, nic.device.address),
            }
            for nic in nics
        ],
        "gdr": _gdr(context, notes) if hcas and gpus else None,
        "gdrcopy": _gdrcopy(context),
    }
    notes["gpus"] = [gpu.address for gpu in gpus]
    notes["nics"] = [{"name": nic.name, "address": nic.device.address} for nic in nics]
    named = [(f"gpu{number}", gpu) for number, gpu in enumerate(gpus)]
    named += [(f"nic{number}", nic.device) for number, nic in enumerate(nics)]
    facts.update(_iommu(context, named, notes))
    facts["acs"] = _acs(context, named, notes)
    return Answer("ok", facts, notes)


def _given(
    context: Context, gpus: List[Device], hcas: List[Nic], notes: Dict[str, Any]
) -> Tuple[List[Device], List[Nic]]:
    """Those that a process here may use: a container is given its own, and /sys shows the host's."""
    if container_kind(context) == "none":
        return gpus, hcas
    host = {"gpus": len(gpus), "hcas": len(hcas)}
    driven = context.exists("/dev/nvidiactl") or context.exists("/dev/kfd")
    try:
        # NVIDIA's container runtime leaves in it those that the container was given.
        given = context.list_dir("/proc/driver/nvidia/gpus")
    except OSError:
        given = []
    gpus = [gpu for gpu in gpus if gpu.address in given or not given] if driven else []
    hcas = hcas if context.exists("/dev/infiniband") else []
    if host != {"gpus": len(gpus), "hcas": len(hcas)}:
        notes["host"] = host
    return gpus, hcas


def _gpu(gpu: Device, gpus: Sequence[Device], nics: Sequence[Nic]) -> Dict[str, Any]:
    return {
        "numa": gpu.numa,
        "gpus": " ".join(pcitree.link_class(gpu, other) or "?" for other in gpus),
        "nics": " ".join(pcitree.link_class(gpu, nic.device) or "?" for nic in nics),
    }


def _iommu(context: Context, devices: Sequence[Tuple[str, Device]], notes: Dict[str, Any]) -> Dict[str, Any]:
    """`iommu` and `one_iommu_group`; null where the kernel's groups are not to be seen."""
    try:
        any_group = bool(context.list_dir(_GROUPS))
    except OSError:
        return {"iommu": None, "one_iommu_group": None}
    if not any_group:
        return {"iommu": "off", "one_iommu_group": None}
    groups: Dict[str, str] = {}
    for name, device in devices:
        try:
            number = context.readlink(f"{pcitree.DEVICES}/{device.address}/iommu_group").rpartition("/")[2]
        except OSError:
            continue
        groups[name] = number[:20]
    notes["iommu_groups"] = groups
    types = {context.peek(f"{_GROUPS}/{number}/type") for number in groups.values()}
    told = sorted(kind[:20] for kind in types if kind)
    with_gpu = {number for name, number in groups.items() if name.startswith("gpu")}
    with_nic = {number for name, number in groups.items() if name.startswith("nic")}
    return {
        "iommu": ",".join(told) if told and None not in types else None,
        "one_iommu_group": bool(with_gpu & with_nic) if with_gpu and with_nic else None,
    }


def _gdr(context: Context, notes: Dict[str, Any]) -> Optional[str]:
    if context.exists(_AMD_PEER):
        return "peermem"
    module = pci_gpus.kernel_module(context)
    peermem = [name for name in _PEERMEM if context.is_dir(f"{_MODULES}/{name}")]
    notes["peermem"] = peermem
    dmabuf = _has_dmabuf(context, module) if module else None
    if dmabuf is None and not peermem:
        return None
    ways = [name for name, there in (("dmabuf", dmabuf), ("peermem", peermem)) if there]
    return "+".join(ways) or "none"


def _has_dmabuf(context: Context, module: pci_gpus.KernelModule) -> Optional[bool]:
    """None where the versions of module or kernel cannot be told."""
    kernel = re.match(r"(\d{1,3})\.(\d{1,3})", context.peek("/proc/sys/kernel/osrelease") or "")
    driver = re.match(r"\d{1,5}", module.version or "")
    if not kernel or not driver:
        return None
    return (
        module.flavour == "open"
        and int(driver[0]) >= _DMABUF_DRIVER
        and (int(kernel[1]), int(kernel[2])) >= _DMABUF_KERNEL
    )


def _gdrcopy(context: Context) -> Optional[str]:
    if context.is_dir(f"{_MODULES}/gdrdrv"):
        return "loaded" if context.exists("/dev/gdrdrv") else "loaded, no /dev/gdrdrv"
    return "none" if context.is_dir(_MODULES) else None


def _acs(
    context: Context, devices: Sequence[Tuple[str, Device]], notes: Dict[str, Any]
) -> Optional[Dict[str, Any]]:
    if any(device.host_bridge is None for _, device in devices):
        return None
    bits: Dict[str, List[str]] = {}
    for bridge in sorted({bridge for _, device in devices for bridge in device.bridges}):
        read = acs.control(context, bridge)
        if read is None:
            why = "the configuration space of PCI bridges beyond its first 64 bytes takes root"
            notes.setdefault("not_examined", {})["ACS"] = why
            return None
        bits[bridge] = read
    notes["acs"] = {bridge: acs.above([bridge], bits) for bridge in bits}
    told = {name: acs.above(device.bridges, bits) for name, device in devices}
    values = list(told.values())
    each = max(values, key=values.count)
    return {"each": each, "devices": {name: value for name, value in told.items() if value != each}}
