"""What control groups allow: memory and threads that are fewer on some nodes, processors for the GPUs."""

from __future__ import annotations

from functools import partial
from typing import Callable, Dict, Iterator, List, Optional, Tuple

from envaudit.model.fingerprint import Fingerprint
from envaudit.rules.nodefacts import (
    TRAINING_LAUNCHES,
    by_nodes,
    far_from_median,
    judged_of,
    launch_of,
    notes_of,
    number,
    role_of,
    size,
)
from envaudit.rules.pernode import Facts, facts_of, mapping, over_nodes, told_between_nodes
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Evidence, Found, Threshold, rule, threshold

UNLIMITED = "unlimited"
_PERCENT = Threshold(2, "%", "from the median of the nodes of one role and launch; more is told")
_HOW = "Compare the way in which the work is started: Slurm's --mem and cgroup.conf, the limits of a pod or "
# A limit and whether it is the control group's, rather than all that the machine has.
Allowed = Optional[Tuple[int, bool]]


@rule(
    "EA135",
    severity="warning",
    scope="cross",
    title="control groups allow less memory on some nodes",
    why="The kernel ends ranks and data loaders there ('oom-kill', exit code 137), or slows them down at "
    "memory.high, while the other nodes go on.",
    how_to_fix=_HOW + "container, systemd's MemoryMax= and MemoryHigh=.",
    needs=("limits", "host"),
    advisory=("control group",),
    thresholds={"percent": _PERCENT},
)
def memory_allowed_differs(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Of all groups on the way to the root the smallest; without one, the memory that the node has."""
    most = threshold("EA135", "percent", policy)
    for off, middle in _apart(evidence, policy, _memory, most):
        more = f"; the median is {size(middle)}" if middle else ""
        lines = by_nodes(off, partial(_memory_words, more=more))
        message = f"the memory that control groups allow differs by more than {most:g} %"
        yield Found(message, judged_of(evidence, off), "limits", lines)


@rule(
    "EA136",
    severity="warning",
    scope="cross",
    title="control groups allow fewer threads on some nodes",
    why="Ranks, NCCL and data loaders start hundreds of threads each: 'can't start new thread' there.",
    how_to_fix=_HOW + "container (podPidsLimit of the kubelet, --pids-limit), systemd's TasksMax=.",
    needs=("limits", "host"),
    advisory=("control group",),
    thresholds={"percent": _PERCENT},
)
def threads_allowed_differ(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Without a limit, as many as the kernel has process ids."""
    most = threshold("EA136", "percent", policy)
    for off, middle in _apart(evidence, policy, _threads, most):
        more = f"; the median is {middle}" if middle else ""
        lines = by_nodes(off, partial(_thread_words, more=more))
        message = f"the number of threads that control groups allow differs by more than {most:g} %"
        yield Found(message, judged_of(evidence, off), "limits", lines)


@rule(
    "EA137",
    severity="warning",
    scope="node",
    title="fewer processors than GPUs",
    why="Each GPU is fed by a process that is always busy: they wait for each other, and the GPUs for them.",
    how_to_fix="Ask for more: 'srun --cpus-per-task' (it isn't taken over from sbatch), a pod's or "
    "container's CPU limit.",
    needs=("limits", "gpu"),
    advisory=("control group",),
    thresholds={"millicpus": Threshold(1000, "", "thousandths of a processor for each GPU; fewer is told")},
)
def few_processors(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Of the whole job or container; what one task of several is bound to says nothing of the others."""
    told = told_between_nodes(evidence, policy, "EA129", "limits/cpu_quota_millicpus", "limits/cpus")
    yield from over_nodes(evidence, lambda fingerprint: processors_for_gpus(fingerprint, policy), told)


def processors_for_gpus(fingerprint: Fingerprint, policy: Policy) -> Iterator[Found]:
    """EA137 of one node. A session over ssh is not what training is started in."""
    gpu = facts_of(fingerprint, "gpu")
    gpus = number(mapping(gpu.get("visible")).get("count")) or number(gpu.get("count"))
    quota = number(facts_of(fingerprint, "limits").get("cpu_quota_millicpus"))
    cpus = number(_group(fingerprint).get("cpus"))
    allowed = [millicpus for millicpus in (quota, 1000 * cpus) if millicpus]
    if not allowed or launch_of(fingerprint) not in (*TRAINING_LAUNCHES, "local"):
        return
    if min(allowed) < gpus * threshold("EA137", "millicpus", policy):
        words = f"{min(allowed) / 1000:g} processor{'s' * (min(allowed) != 1000)}"
        whose = "a quota" if min(allowed) == quota else "the processors"
        yield Found(
            f"{words} for {gpus} GPU{'s' * (gpus != 1)}",
            path="limits/cpu_quota_millicpus",
            evidence=(f"{whose} of the control group",),
        )


def _group(fingerprint: Fingerprint) -> Facts:
    return mapping(notes_of(fingerprint, "limits").get("control_group"))


def _memory(fingerprint: Fingerprint) -> Allowed:
    group = _group(fingerprint)
    limits = [group.get("memory_max_bytes"), group.get("memory_high_bytes")]
    whole = number(notes_of(fingerprint, "host").get("memory_bytes"))
    return _smallest(limits, whole)


def _threads(fingerprint: Fingerprint) -> Allowed:
    whole = number(mapping(facts_of(fingerprint, "host").get("sysctl")).get("kernel.pid_max"))
    return _smallest([_group(fingerprint).get("pids_max")], whole)


def _smallest(limits: List[object], whole: int) -> Allowed:
    """The limit that holds, None where the first, or what there is without it, is not known."""
    known = [number(limit) for limit in limits if number(limit)]
    if known and (not whole or min(known) < whole):
        return min(known), True
    return (whole, False) if whole and limits[0] is not None else None


def _apart(
    evidence: Evidence, policy: Policy, allowed: Callable[[Fingerprint], Allowed], percent: float
) -> Iterator[Tuple[List[Fingerprint], int]]:
    """Of each role and launch in which a control group limits a node, those far from the median, and that."""
    alike: Dict[Tuple[str, str], List[Fingerprint]] = {}
    for fingerprint in evidence.everything:
        if allowed(fingerprint) is not None:
            key = (role_of(fingerprint, policy), launch_of(fingerprint))
            alike.setdefault(key, []).append(fingerprint)
    for members in alike.values():
        told = [allowed(one) or (0, False) for one in members]
        if not any(limited for _, limited in told):
            continue
        off, middle = far_from_median(members, [value for value, _ in told], percent)
        if judged_of(evidence, off):
            yield off, middle


def _memory_words(fingerprint: Fingerprint, more: str) -> str:
    value, limited = _memory(fingerprint) or (0, False)
    return (size(value) if limited else f"all of its {size(value)}, no limit") + more


def _thread_words(fingerprint: Fingerprint, more: str) -> str:
    value, limited = _threads(fingerprint) or (0, False)
    return (str(value) if limited else f"no limit but the kernel's, {value}") + more
