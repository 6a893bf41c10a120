"""Resource limits of the launch, shared memory, and the space that training needs to start."""

from __future__ import annotations

from functools import partial
from typing import Dict, Iterator, List, Tuple

from envaudit.model.drift import split_path
from envaudit.model.fingerprint import Fingerprint
from envaudit.rules.controlgroups import processors_for_gpus
from envaudit.rules.nodefacts import (
    TRAINING_LAUNCHES,
    by_nodes,
    claimed,
    hcas_of,
    launch_of,
    notes_of,
    number,
    size,
)
from envaudit.rules.pernode import facts_of, mapping, over_nodes, told_between_nodes
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Claim, Evidence, Found, Threshold, difference, rule, threshold

_GIB = 1 << 30
_MORE_SHARED_MEMORY = (
    "Give the container more: --shm-size=16g or --ipc=host, in Kubernetes an emptyDir of "
    "medium Memory at /dev/shm; on a host remount it with a larger size."
)
_UMASK = (
    "What is written there others may not read, or may change. Compare UMASK in login.defs, pam_umask, "
    "UMask= of slurmd or sshd, and start-up files of the shell."
)
_WORDS = {
    "memlock_bytes": "locked memory",
    "cap_ipc_lock": "the right to lock memory",
    "nofile": "open files",
    "nproc": "processes",
    "stack_bytes": "stack",
    "core_bytes": "core files",
    "address_space_bytes": "address space",
    "file_bytes": "file size",
    "cpu_s": "seconds on a processor",
    "dev_shm_gib": "/dev/shm",
    "cpus": "processors",
    "numa_nodes": "NUMA nodes",
    "cpu_quota_millicpus": "CPU time",
    "umask": "umask",
}


@rule(
    "EA125",
    severity="error",
    scope="node",
    title="too little memory may be locked for the HCA",
    why="Registering buffers with the adapter fails: NCCL ends with 'ibv_reg_mr failed', or takes sockets.",
    how_to_fix="Raise it for the way in which training is started: 'memlock unlimited' in limits.conf, "
    "LimitMEMLOCK=infinity for slurmd or sshd, --ulimit memlock=-1 for a container.",
    needs=("limits", "network"),
    thresholds={
        "error_below_bytes": Threshold(_GIB, "bytes", "a soft limit below it is an error, above it a warning")
    },
)
def memlock_too_small(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """A finite soft limit on a node with an HCA; CAP_IPC_LOCK lifts it (ib_umem_get of the kernel)."""
    told = told_between_nodes(evidence, policy, "EA129", "limits/memlock_bytes", "limits/cap_ipc_lock")
    yield from over_nodes(evidence, lambda fingerprint: _memlock(fingerprint, policy), told)


def _memlock(fingerprint: Fingerprint, policy: Policy) -> Iterator[Found]:
    facts = facts_of(fingerprint, "limits")
    limit = mapping(facts.get("memlock_bytes"))
    soft = limit.get("soft")
    if not hcas_of(fingerprint) or facts.get("cap_ipc_lock") is not False or not isinstance(soft, int):
        return
    few = soft < threshold("EA125", "error_below_bytes", policy)
    yield Found(
        f"only {size(soft)} of memory may be locked, and there is an HCA",
        path="limits/memlock_bytes",
        evidence=(f"soft limit {size(soft)}, hard limit {_words(limit.get('hard'))}, no CAP_IPC_LOCK",),
        severity="error" if few else "warning",
    )


@rule(
    "EA126",
    severity="warning",
    scope="node",
    title="/dev/shm is small",
    why="Ranks of one node and data loaders exchange data through it: they end with a bus error, "
    "or NCCL with 'error while creating shared memory segment'.",
    how_to_fix=_MORE_SHARED_MEMORY,
    needs=("limits",),
    thresholds={
        "error_up_to_bytes": Threshold(
            64 << 20, "bytes", "with more than one GPU so little is an error", "Docker's default"
        ),
        "warning_below_bytes": Threshold(_GIB, "bytes", "so little is told"),
    },
    case="Containers of 64 MiB shared memory: single-GPU runs work, and NCCL fails on two GPUs.",
)
def shared_memory_small(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """What training is given is worse than what a session over ssh sees, which is another's."""
    told = told_between_nodes(evidence, policy, "EA129", "limits/dev_shm_gib")
    yield from over_nodes(evidence, lambda fingerprint: _shared_memory(fingerprint, policy), told)


def _shared_memory(fingerprint: Fingerprint, policy: Policy) -> Iterator[Found]:
    size_bytes = notes_of(fingerprint, "limits").get("dev_shm_bytes")
    if not isinstance(size_bytes, int) or size_bytes >= threshold("EA126", "warning_below_bytes", policy):
        return
    gpus = number(facts_of(fingerprint, "gpu").get("count"))
    launch = launch_of(fingerprint)
    severe = size_bytes <= threshold("EA126", "error_up_to_bytes", policy) or launch in TRAINING_LAUNCHES
    level = "info" if launch == "ssh" else "error" if severe and gpus > 1 else "warning"
    among = f" for {gpus} GPUs" if gpus > 1 else ""
    yield Found(f"/dev/shm has {size(size_bytes)}{among}", path="limits/dev_shm_gib", severity=level)


@rule(
    "EA127",
    severity="warning",
    scope="node",
    title="little space is left in /dev/shm or /tmp",
    why="Torch, compilers of kernels and data loaders write there, and fail in the middle of a run.",
    how_to_fix="See what fills it ('du -xh --max-depth=1'): files of ended jobs are often left behind.",
    needs=("limits",),
    thresholds={
        "dev_shm_bytes": Threshold(_GIB, "bytes", "less free space in /dev/shm is told"),
        "tmp_bytes": Threshold(5 * _GIB, "bytes", "less free space in /tmp is told"),
        "full_bytes": Threshold(1 << 20, "bytes", "less free space is none, and an error"),
    },
)
def little_space(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Free space as it was when the probe ran; full or read-only is an error."""
    causes: Dict[Tuple[str, str, str], List[Fingerprint]] = {}
    for fingerprint in evidence.fingerprints:
        for cause in _spaces(fingerprint, policy):
            causes.setdefault(cause, []).append(fingerprint)
    for (message, place, severity), members in causes.items():
        key = _FREE[place]
        lines = by_nodes(members, partial(_free, key=key)) if "free" in message else ()
        path = "limits/dev_shm_gib" if place == "/dev/shm" else "storage/tmp"
        hint = _WRITABLE.format(place=place) if message.endswith("read-only") else ""
        yield Found(message, tuple(one.node for one in members), path, lines, hint, severity=severity)


_WRITABLE = "Mount {place} writable; a container with a read-only root needs a tmpfs or a volume there."
_FREE = {"/dev/shm": "dev_shm_free_bytes", "/tmp": "tmp_free_bytes"}


def _free(fingerprint: Fingerprint, key: str) -> str:
    return f"{size(notes_of(fingerprint, 'limits')[key])} free"


def _spaces(fingerprint: Fingerprint, policy: Policy) -> Iterator[Tuple[str, str, str]]:
    notes = notes_of(fingerprint, "limits")
    storage = facts_of(fingerprint, "storage")
    for place, limit, key in (("/dev/shm", "dev_shm_bytes", "shm"), ("/tmp", "tmp_bytes", "tmp")):
        if _is_read_only(storage, key):
            yield f"{place} is read-only", place, "error"
            continue
        free, least = notes.get(_FREE[place]), threshold("EA127", limit, policy)
        if not isinstance(free, int):
            continue
        whole = notes.get("dev_shm_bytes") if place == "/dev/shm" else None
        if free < threshold("EA127", "full_bytes", policy):
            yield f"{place} is full", place, "error"
        elif free < least and not (isinstance(whole, int) and whole < least):
            # Where it is not larger, EA126 has told it.
            yield f"less than {size(least)} is free in {place}", place, "warning"


def _is_read_only(storage: object, key: str) -> bool:
    mounts = mapping(storage)
    mount = mounts.get(key)
    if isinstance(mount, str) and mount.startswith("as "):
        mount = mounts.get(mount[len("as ") :])
    return mapping(mount).get("access") == "ro"


@rule(
    "EA128",
    severity="warning",
    scope="node",
    title="few files may be open",
    why="Each connection of a rank and each tensor of a data loader takes one: 'Too many open files'.",
    how_to_fix="Raise it for the way in which training is started: 'ulimit -n' up to the hard limit, "
    "'nofile' in limits.conf, LimitNOFILE= for slurmd or sshd.",
    needs=("limits",),
    thresholds={"files": Threshold(4096, "", "a soft limit below it is told")},
)
def few_open_files(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """The soft limit, which is the one that holds."""
    told = told_between_nodes(evidence, policy, "EA129", "limits/nofile")
    yield from over_nodes(evidence, lambda fingerprint: _open_files(fingerprint, policy), told)


def _open_files(fingerprint: Fingerprint, policy: Policy) -> Iterator[Found]:
    limit = mapping(facts_of(fingerprint, "limits").get("nofile"))
    soft = limit.get("soft")
    if isinstance(soft, int) and soft < threshold("EA128", "files", policy):
        yield Found(
            f"only {soft} files may be open",
            path="limits/nofile",
            evidence=(f"soft limit {soft}, hard limit {limit.get('hard')}",),
        )


@difference(
    "EA129",
    severity="warning",
    title="resource limits differ",
    why="What runs on one node runs into a limit on another.",
    of=tuple(f"limits/{name}" for name in _WORDS),
    compared="exactly, /dev/shm within 2 %",
    how_to_fix="Compare limits.conf, what starts the work (slurmd, options of srun, sshd) and those of a "
    "container.",
)
def limits_differ(claim: Claim, policy: Policy) -> Iterator[Found]:
    """As bad as what is wrong with the nodes that differ: an HCA that cannot lock memory is an error."""
    names = list(dict.fromkeys(split_path(drift.path)[1] for drift in claim.drifts if "/" in drift.path))
    judges = {
        "memlock_bytes": _memlock,
        "cap_ipc_lock": _memlock,
        "nofile": _open_files,
        "dev_shm_gib": _shared_memory,
        "cpu_quota_millicpus": processors_for_gpus,
        "cpus": processors_for_gpus,
    }
    found = {
        one.node: [found for name in names if name in judges for found in judges[name](one, policy)]
        for one in claimed(claim)
    }
    wrong = by_nodes(
        claimed(claim), lambda one: "; ".join(sorted({each.message for each in found[one.node]}))
    )
    severe = any(each.severity == "error" for each in (each for of in found.values() for each in of))
    words = ", ".join(dict.fromkeys(_WORDS.get(name, name) for name in names)) or "limits"
    hint = ""
    if len(names) == 1 and names[0] == "dev_shm_gib":
        message, hint = "size of /dev/shm differs", _MORE_SHARED_MEMORY
    elif names == ["umask"]:
        message, hint = "umask differs", _UMASK
    elif len(names) == 1:
        message = f"limit of {words} differs"
    else:
        message = f"limits differ: {words}"
    yield claim.found(message, evidence=wrong, hint=hint, severity="error" if severe else "")


def _words(limit: object) -> str:
    return size(limit) if isinstance(limit, int) else str(limit)
