"""The machines under the environment: memory and processors that are not the same on all nodes."""

from __future__ import annotations

from functools import partial
from typing import Dict, Iterator, List, Set

from envaudit.model.drift import Drift
from envaudit.model.fingerprint import Fingerprint
from envaudit.rules.nodefacts import by_nodes, far_from_median, judged_of, notes_of, role_of, size
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Claim, Evidence, Found, Threshold, difference, rule, threshold

_VENDORS = ("Intel", "AMD")
# The tree of GPUs and NICs is that of the processors' host bridges and NUMA nodes.
_WIRING = ("topology/gpus", "topology/nics", "topology/iommu", "host/kernel_arguments")


@rule(
    "EA100",
    severity="warning",
    scope="cross",
    title="host memory differs",
    why="A memory module may have failed; data loaders and offloading run out of memory on that node first.",
    how_to_fix="Compare 'dmidecode -t memory' and the kernel's 'edac' messages with those of another node.",
    needs=("host",),
    thresholds={"percent": Threshold(2, "%", "from the median of the role; more is told")},
)
def memory_differs(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Within a role. Of two nodes, or two halves, nobody can tell which is right: both are named."""
    roles: Dict[str, List[Fingerprint]] = {}
    for fingerprint in evidence.everything:
        if _memory(fingerprint):
            roles.setdefault(role_of(fingerprint, policy), []).append(fingerprint)
    most = threshold("EA100", "percent", policy)
    for members in roles.values():
        off, middle = far_from_median(members, list(map(_memory, members)), most)
        nodes = judged_of(evidence, off)
        if nodes:
            apart = f"; the median of {len(members)} is {size(middle)}" if middle else ""
            lines = by_nodes(off, partial(_size, more=apart))
            yield Found(f"host memory differs by more than {most:g} %", nodes, "host", lines)


def _memory(fingerprint: Fingerprint) -> int:
    told = notes_of(fingerprint, "host").get("memory_bytes")
    return told if isinstance(told, int) else 0


def _size(fingerprint: Fingerprint, more: str) -> str:
    return f"{size(_memory(fingerprint))}{more}"


def _vendors(drift: Drift) -> Set[str]:
    models = [group.value for group in drift.groups if isinstance(group.value, str)]
    return {vendor for vendor in _VENDORS for model in models if vendor in model}


@difference(
    "EA101",
    severity="warning",
    title="Intel and AMD processors",
    why="Another instruction set and other host bridges: libraries choose other kernels, NCCL other paths, "
    "and the slowest node sets the pace.",
    of=("host/cpu/model",),
    when=lambda drift, policy: len(_vendors(drift)) > 1,
    follows=("host/cpu/**", *_WIRING),
    order=45,
    compared="by vendor",
    how_to_fix="Keep one job on one kind of node: a Slurm feature or constraint, a node pool.",
)
def vendors_differ(claim: Claim, policy: Policy) -> Iterator[Found]:
    """The counts of processors and the tree of PCI devices follow from it."""
    yield claim.found("Intel and AMD processors are mixed")


@difference(
    "EA102",
    severity="warning",
    title="processors differ",
    why="Data loading and host-side work take another time on each node, and the slowest sets the pace.",
    of=(
        "host/cpu",
        "host/cpu/model",
        "host/cpu/sockets",
        "host/cpu/cores",
        "host/cpu/threads",
        "host/cpu/numa_nodes",
    ),
    when=lambda drift, policy: not drift.path.endswith("/governor"),
    follows=_WIRING,
    order=46,
    how_to_fix="Where the model is one, look for another setting of the firmware: SMT, cores, NPS or SNC.",
)
def processors_differ(claim: Claim, policy: Policy) -> Iterator[Found]:
    """Model, sockets, cores, threads and NUMA nodes."""
    names = [drift.path.rpartition("/")[2] for drift in claim.drifts]
    what = {"model": "processor", "numa_nodes": "number of NUMA nodes"}
    if len(names) == 1 and names[0] != "cpu":
        yield claim.found(f"{what.get(names[0], f'number of {names[0]}')} differs")
    else:
        yield claim.found("processors differ")


@difference(
    "EA103",
    severity="warning",
    title="distribution differs",
    why="Other system libraries and another kernel: what is built or loaded from the system is not the same.",
    of=("host/distribution/name",),
    follows=("host/distribution/**", "host/glibc", "host/kernel", "host/sysctl/**"),
    order=12,
    how_to_fix="Install the nodes, or start their containers, from one image.",
)
def distributions_differ(claim: Claim, policy: Policy) -> Iterator[Found]:
    """Its version, the C library and the kernel follow from it."""
    yield claim.found("distribution differs")
