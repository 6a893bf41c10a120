"""What several rules ask of a node's facts and notes, and of a difference between nodes."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Tuple

from envaudit.model.drift import Drift, split_path
from envaudit.model.fingerprint import Fingerprint
from envaudit.model.nodeset import fold, natural_key
from envaudit.rules.pernode import Facts, facts_of, mapping
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Claim, Evidence

# Started like this, a probe sees what training sees; over ssh it sees a session of its own.
TRAINING_LAUNCHES = ("slurm", "inband", "exec")
INFINIBAND = "InfiniBand"
_LINES = 8
_UNITS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def launch_of(fingerprint: Fingerprint) -> str:
    """How the probe was started; empty where that is not known."""
    launch = facts_of(fingerprint, "host").get("launch")
    return launch if isinstance(launch, str) else ""


def role_of(fingerprint: Fingerprint, policy: Policy) -> str:
    """The role that a policy gives the node; empty for none."""
    return policy.roles.get(fingerprint.node.partition("@")[0], "")


def judged_of(evidence: Evidence, nodes: Iterable[Fingerprint]) -> Tuple[str, ...]:
    """The names of those among them that are judged, and not only held against."""
    judged = {one.node for one in evidence.fingerprints}
    return tuple(one.node for one in nodes if one.node in judged)


def far_from_median(
    members: List[Fingerprint], values: List[int], percent: float
) -> Tuple[List[Fingerprint], int]:
    """Those whose value is further than so many percent from the median, and the median.

    Of two nodes, or two halves, nobody can tell which is right: all are given, with 0.
    """
    middle = sorted(values)[(len(values) - 1) // 2]
    off = [one for one, value in zip(members, values) if 100 * abs(value - middle) > percent * middle]
    return (members, 0) if 2 * len(off) >= len(members) else (off, middle)


def is_container(fingerprint: Fingerprint) -> bool:
    """Whether the node is known to be a container."""
    return facts_of(fingerprint, "host").get("container") not in (None, "none")


def notes_of(fingerprint: Fingerprint, section: str) -> Facts:
    """The notes of a section that was read, wholly or in part; none otherwise."""
    read = fingerprint.sections.get(section)
    return read.notes if read is not None and read.status in ("ok", "partial") else {}


def hcas_of(fingerprint: Fingerprint) -> Facts:
    """Model and link layer → facts of the host channel adapters; empty where none is seen."""
    return mapping(facts_of(fingerprint, "network").get("hcas"))


def has_infiniband(fingerprint: Fingerprint) -> bool:
    """Whether one of its adapters speaks InfiniBand, rather than Ethernet."""
    return any(str(group).endswith(f" {INFINIBAND}") for group in hcas_of(fingerprint))


def rows(folded: object) -> Dict[str, Dict[str, Any]]:
    """By ordinal, in order, the facts of the devices that deviate from the others: `devices` of a fold."""
    devices = mapping(mapping(folded).get("devices"))
    return {ordinal: dict(mapping(devices[ordinal])) for ordinal in sorted(devices, key=natural_key)}


def number(value: object) -> int:
    """A count that should be there; 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def says(drift: Drift, *keys: str) -> bool:
    """Whether a difference is one of these facts: by the end of its path, or inside a map of it."""
    if split_path(drift.path)[-1] in keys:
        return True
    return any(key in group.value for group in drift.groups if isinstance(group.value, dict) for key in keys)


def assigned(name: str, value: object) -> str:
    """`NCCL_IB_HCA=mlx5`; quoted where a space at an end, which NCCL takes as it is, would not be seen."""
    text = str(value)
    return f"{name}={text if text == text.strip() else repr(text)}"


def is_seen(drift: Drift) -> bool:
    """Whether no group has null beside others' values, which means that it was not seen there.

    Of a map that some nodes lack, what the others have in it is compared below, and null stands for it.
    """
    values = [group.value for group in drift.groups if group.state == "present"]
    return all(value is None for value in values) or all(value is not None for value in values)


def by_nodes(nodes: Iterable[Fingerprint], words_of: Callable[[Fingerprint], str]) -> Tuple[str, ...]:
    """`node[03-04]: 8 MiB`, the nodes of which the same is said together; nothing said, no line."""
    lines: Dict[str, List[str]] = {}
    for fingerprint in nodes:
        words = words_of(fingerprint)
        if words:
            lines.setdefault(words, []).append(fingerprint.node)
    told = [f"{fold(names)}: {words}" for words, names in lines.items()]
    if len(told) > _LINES:
        told = [*told[: _LINES - 1], f"and {len(told) - _LINES + 1} more"]
    return tuple(told)


def claimed(claim: Claim) -> Tuple[Fingerprint, ...]:
    """The fingerprints of the nodes that a claim is about."""
    return tuple(one for one in claim.evidence.fingerprints if one.node in claim.nodes)


def taken_along(evidence: Evidence, policy: Policy, rules: Iterable[str], path: str) -> Iterator[str]:
    """The nodes of which one of these rules tells a difference at or below `path`, as cause or symptom.

    As `pernode.told_between_nodes`: a rule that a policy or a waiver quiets tells nothing.
    """
    for rule_id in rules:
        if policy.quiets(rule_id):
            continue
        for claim in evidence.claims.get(rule_id, ()):
            drifts = (*claim.drifts, *claim.following)
            if any(drift.path == path or drift.path.startswith(f"{path}/") for drift in drifts):
                yield from claim.nodes


def setting(fingerprint: Fingerprint, name: str) -> Mapping[str, Any]:
    """A variable as it is in effect on a node, {"value", "origin"}; empty where it is not set."""
    env = facts_of(fingerprint, "env")
    if name.startswith("NCCL_"):
        return mapping(mapping(env.get("nccl")).get(name))
    value = mapping(env.get("variables")).get(name)
    return {} if value is None else {"value": value, "origin": "environment"}


def size(count_bytes: float) -> str:
    """`64 MiB`, `1.5 GiB`: a number of bytes as people say it."""
    unit, name = next(((unit, name) for unit, name in _UNITS if count_bytes >= unit), (1, "bytes"))
    return f"{count_bytes / unit:.1f}".replace(".0", "") + f" {name}"
