"""What the settings resolve to on a node, and the names by which nodes find each other."""

from __future__ import annotations

from functools import partial
from typing import Dict, Iterator, List, Set, Tuple

from envaudit.model.drift import split_path
from envaudit.model.fingerprint import Fingerprint
from envaudit.rules.nodefacts import (
    TRAINING_LAUNCHES,
    assigned,
    by_nodes,
    claimed,
    launch_of,
    notes_of,
    setting,
    taken_along,
)
from envaudit.rules.pernode import Facts, facts_of, mapping, over_nodes, told_between_nodes
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Claim, Evidence, Found, difference, rule

_NAMES = (
    "NCCL_SOCKET_IFNAME",
    "NCCL_IB_HCA",
    "GLOO_SOCKET_IFNAME",
    "TP_SOCKET_IFNAME",
    "UCX_NET_DEVICES",
)
# Whoever of these speaks of a node's selection has named the cause.
_CAUSES = ("EA400", "EA401", "EA420", "EA450", "EA451", "EA475")
_MAX_TOLD = 8
_LF = "Save the file that sets it with LF at the ends of its lines ('dos2unix')."
# A rendezvous there is that of one node alone.
_LOOPBACK = ("127.", "localhost", "::1")


def _selection(fingerprint: Fingerprint, name: str) -> Facts:
    return mapping(mapping(facts_of(fingerprint, "network").get("selection")).get(name))


def _chosen(fingerprint: Fingerprint, name: str) -> List[str]:
    """The names that a variable takes, from the notes."""
    notes = mapping(mapping(notes_of(fingerprint, "network").get("selection")).get(name))
    names = notes.get("names")
    return [str(one) for one in names] if isinstance(names, list) else []


def _told(evidence: Evidence, policy: Policy, name: str) -> Set[str]:
    places = (f"network/selection/{name}", f"env/nccl/{name}", f"env/variables/{name}")
    return {node for place in places for node in taken_along(evidence, policy, _CAUSES, place)}


@rule(
    "EA470",
    severity="error",
    scope="node",
    title="a setting names nothing that is there",
    why="It ends at its start with 'no socket interface found', or takes sockets instead of the HCA.",
    how_to_fix="Name an interface that is there ('ip -br address', 'ibv_devices'), exclude instead "
    "('NCCL_SOCKET_IFNAME=^docker,lo'), or unset it.",
    needs=("network", "env"),
)
def names_nothing(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """NCCL_SOCKET_IFNAME, NCCL_IB_HCA and their like that no interface or active HCA port matches."""
    for name in _NAMES:
        told = frozenset(_told(evidence, policy, name))
        yield from over_nodes(evidence, partial(_nothing, name=name), told)


def _nothing(fingerprint: Fingerprint, name: str) -> Iterator[Found]:
    facts, row = _selection(fingerprint, name), setting(fingerprint, name)
    if not row or not facts or facts.get("disabled") is True:
        return
    if name == "NCCL_IB_HCA" and setting(fingerprint, "NCCL_NET").get("value") == "Socket":
        return
    excluded = "first" in facts and facts["first"] is None and facts.get("by") == name
    loopback = bool(chosen := _chosen(fingerprint, name)) and all(one == "lo" for one in chosen)
    if facts.get("matched") == 0 or excluded or loopback:
        what = "leaves nothing but the loopback" if loopback else "matches nothing"
        yield Found(
            f"{assigned(name, row.get('value'))} {what}",
            path=f"network/selection/{name}",
            evidence=tuple(_where(row) + _there(fingerprint, name)),
            hint=_LF if _ends_with_cr(row) else "",
        )


def _where(row: Facts) -> List[str]:
    lines = [] if row.get("origin") == "environment" else [f"set in {row.get('origin')}"]
    if _ends_with_cr(row):  # no version of NCCL strips it (setEnvFile in src/misc/param.cc)
        lines.append("its line ends with CR LF, and the CR is taken along")
    return lines


def _ends_with_cr(row: Facts) -> bool:
    return str(row.get("value")).endswith("\r")


def _there(fingerprint: Fingerprint, name: str) -> List[str]:
    """What is there to be named."""
    notes = notes_of(fingerprint, "network")
    if name in ("NCCL_IB_HCA", "UCX_NET_DEVICES"):
        ports = [row for of in mapping(notes.get("hcas")).values() for row in mapping(of).values()]
        found = sorted(str(mapping(port).get("name")) for port in ports)
    else:
        found = sorted(str(one) for one in mapping(notes.get("interfaces")))
    return [f"here are {', '.join(found[:_MAX_TOLD])}"] if found else []


@rule(
    "EA471",
    severity="warning",
    scope="node",
    title="NCCL_IB_HCA names a port that is not there",
    why="These ranks have fewer rails than the setting means them to have.",
    how_to_fix="See 'ibstat' for the port; or name the cards that are there.",
    needs=("network", "env"),
)
def idle_hca(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Some of its names match an active port, others none."""
    told = frozenset(_told(evidence, policy, "NCCL_IB_HCA"))
    yield from over_nodes(evidence, _idle, told)


def _idle(fingerprint: Fingerprint) -> Iterator[Found]:
    facts, row = _selection(fingerprint, "NCCL_IB_HCA"), setting(fingerprint, "NCCL_IB_HCA")
    idle = facts.get("idle")
    if facts.get("matched") and isinstance(idle, list) and idle:
        names = ", ".join(str(one) for one in idle[:_MAX_TOLD])
        yield Found(
            f"NCCL_IB_HCA names {names}, which is no active port",
            path="network/selection/NCCL_IB_HCA",
            evidence=(assigned("NCCL_IB_HCA", row.get("value")), *_where(row)),
            hint=_LF if _ends_with_cr(row) else "",
        )


@rule(
    "EA472",
    severity="warning",
    scope="node",
    title="a name takes more than itself",
    why="NCCL takes names as prefixes: eth1 takes eth10 too, and ranks meet on a network that nobody meant.",
    needs=("network", "env"),
)
def prefix_trap(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """A whole name in NCCL_SOCKET_IFNAME or NCCL_IB_HCA that is the beginning of another one here."""
    for name in ("NCCL_SOCKET_IFNAME", "NCCL_IB_HCA"):
        yield from over_nodes(evidence, partial(_prefixes, name=name))


def _prefixes(fingerprint: Fingerprint, name: str) -> Iterator[Found]:
    told = _selection(fingerprint, name).get("named")
    named = [str(one) for one in told] if isinstance(told, list) else []
    taken = [one.partition(":")[0] for one in _chosen(fingerprint, name)]
    trapped: Dict[str, List[str]] = {}
    for whole in named:
        more = sorted({one for one in taken if one.startswith(whole) and one not in named})
        if more:
            trapped[whole] = more
    for whole, more in sorted(trapped.items()):
        value = setting(fingerprint, name).get("value")
        yield Found(
            f"{name}={value}: {whole} also takes {', '.join(more[:_MAX_TOLD])}",
            path=f"network/selection/{name}",
            hint=f"Write {name}=={value}: with '=' before the list its names are whole names.",
        )


@rule(
    "EA473",
    severity="error",
    scope="node",
    title="own name is a loopback address",
    why="Gloo and torch's store tell the other nodes to connect to 127.0.0.1: they connect to themselves, "
    "and time out.",
    how_to_fix="Remove the host's name from the line of 127.0.1.1 in /etc/hosts, or set "
    "GLOO_SOCKET_IFNAME in the launch script.",
    needs=("host",),
)
def own_name_is_loopback(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Several nodes, or a launch of training; GLOO_SOCKET_IFNAME settles it."""
    told = told_between_nodes(evidence, policy, "EA474", "host/own_name")
    # What is known of a lock, and a report from elsewhere, stand among the fingerprints and are no node.
    nodes = [one.node for one in evidence.fingerprints if one.node and one.source != "import"]
    several = len({node.partition("@")[0] for node in nodes}) > 1
    yield from over_nodes(evidence, lambda one: _loopback(one, several), told)


def _loopback(fingerprint: Fingerprint, several: bool) -> Iterator[Found]:
    several = several or _belongs_to_several(fingerprint)
    loopback = facts_of(fingerprint, "host").get("own_name") == "loopback"
    # Without the section nobody knows whether the variable is set.
    known = bool(facts_of(fingerprint, "env"))
    if several and loopback and known and not setting(fingerprint, "GLOO_SOCKET_IFNAME"):
        yield Found("the host's own name resolves to a loopback address", path="host/own_name")


def _belongs_to_several(fingerprint: Fingerprint) -> bool:
    """Whether the launch of one node is one of several: in-band, the rendezvous says so."""
    launch = launch_of(fingerprint)
    if launch != "inband":
        return launch in TRAINING_LAUNCHES
    master = mapping(notes_of(fingerprint, "env").get("variables")).get("MASTER_ADDR")
    return isinstance(master, str) and not master.startswith(_LOOPBACK)


@difference(
    "EA474",
    severity="warning",
    title="own names resolve otherwise",
    why="Gloo and torch's store tell the other nodes the address of the own name.",
    of=("host/own_name",),
    how_to_fix="Make /etc/hosts and the name service the same on all nodes; no own name at 127.0.1.1.",
)
def own_name_differs(claim: Claim, policy: Policy) -> Iterator[Found]:
    """An error where the nodes that differ have a loopback address."""
    bad = [found for one in claimed(claim) for found in _loopback(one, True)]
    if bad:
        yield claim.found(bad[0].message, severity="error")
    else:
        yield claim.found("own name differs in what it resolves to")


@difference(
    "EA475",
    severity="warning",
    title="settings resolve otherwise",
    why="Ranks use another network, or another number of rails, though they are set alike.",
    of=("network/selection/**",),
    order=52,
    how_to_fix="Compare 'ip -br address' and 'ibstat'; name interfaces that all nodes have.",
)
def selection_differs(claim: Claim, policy: Policy) -> Iterator[Found]:
    """An error where something resolves to nothing, or to another set of HCAs."""
    names = list(dict.fromkeys(_name(drift.path) for drift in claim.drifts))
    nothing = by_nodes(
        claimed(claim),
        lambda one: "; ".join(found.message for name in names for found in _nothing(one, name)),
    )
    keys = {split_path(drift.path)[2:4] for drift in claim.drifts}
    rails = bool(keys & {("NCCL_IB_HCA", "matched"), ("NCCL_IB_HCA", "models"), ("NCCL_IB_HCA", "disabled")})
    lines = nothing or by_nodes(claimed(claim), lambda one: _takes(one, names))
    what = ", ".join(name for name in names if name) or "the network"
    message = f"{what} resolves otherwise"
    if nothing:
        message = f"{what} resolves to nothing"
    yield claim.found(message, evidence=lines, severity="error" if nothing or rails else "")


def _name(path: str) -> str:
    return split_path(path)[2] if path.count("/") > 1 else ""


def _takes(fingerprint: Fingerprint, names: List[str]) -> str:
    told = [(name, _chosen(fingerprint, name)[:_MAX_TOLD]) for name in names]
    return "; ".join(f"{name} takes {', '.join(taken)}" for name, taken in told if taken)


@rule(
    "EA476",
    severity="error",
    scope="cross",
    title="MASTER_ADDR is not one for all",
    why="Ranks wait for each other at two places, and the start of the job times out.",
    how_to_fix="Set it once, in the batch script: the first host of 'scontrol show hostnames'.",
    needs=("env",),
)
def master_differs(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Between nodes of one Slurm job, of which alone it is known that they belong together."""
    jobs: Dict[str, List[Fingerprint]] = {}
    for fingerprint in evidence.fingerprints:
        job, master = _job(fingerprint)
        if job and master:
            jobs.setdefault(job, []).append(fingerprint)
    for members in jobs.values():
        masters = {_job(one)[1] for one in members}
        if len(masters) > 1:
            nodes = tuple(one.node for one in members)
            lines = by_nodes(members, lambda one: f"MASTER_ADDR={_job(one)[1]}")
            yield Found("MASTER_ADDR differs between nodes of one job", nodes, "env", lines)


def _job(fingerprint: Fingerprint) -> Tuple[str, str]:
    variables = mapping(notes_of(fingerprint, "env").get("variables"))
    return str(variables.get("SLURM_JOB_ID") or ""), str(variables.get("MASTER_ADDR") or "")
