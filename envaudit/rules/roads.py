"""How ranks reach each other: the road NCCL took, how large a packet may be, how fast, and who may join."""

from __future__ import annotations

from typing import Collection, Dict, Iterator, List, Mapping, Sequence, Tuple

from envaudit.model.checked import map_in, text_in
from envaudit.model.collective import (
    DONE,
    NOT_TESTED,
    SECTION,
    Collectives,
    collective_runs,
    count_in,
    texts_in,
)
from envaudit.model.drift import join_path
from envaudit.model.nodeset import fold
from envaudit.rules.nodefacts import hcas_of
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Evidence, Found, Threshold, rule, threshold

# Of three links one can be the odd one.
_LEAST_LINKS = 3
# The ways inside a node, the best first.
_GRADES = ("P2P", "shared memory", "the network")


@rule(
    "EA610",
    severity="warning",
    scope="cross",
    title="slow rank or link",
    why="Every collective waits for the last rank to come and for the slowest link.",
    needs=(SECTION,),
    thresholds={
        "late_ms": Threshold(5, "ms", "a rank comes later than the others, in most collectives"),
        "lost_percent": Threshold(25, "%", "of the median bandwidth of links are lost on one"),
    },
)
def slow_rank_or_link(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """The rank that is shortest inside is the one that came late: clocks need not agree for that.

    Where somebody is at fault, that is the finding: rounds that look for the culprit measure no speed.
    Ranks of gloo share their cores with everything else, and are as late as the kernel's scheduler makes
    them: they are judged where a policy names a number to judge them by.
    """
    asked = "EA610" in policy.thresholds
    late_ns = threshold("EA610", "late_ms", policy) * 1e6
    lost = threshold("EA610", "lost_percent", policy)
    for run in collective_runs(evidence.fingerprints):
        if run.suspects or (run.backend != "nccl" and not asked):
            continue
        late = count_in(run.straggler, "late_ns") or 0
        rank = count_in(run.straggler, "rank")
        if rank is not None and late > late_ns:
            often = f"in {run.straggler.get('items')} of {run.straggler.get('of')} collectives"
            what = f"{run.words_of(rank)} comes {late / 1e6:.1f} ms after the others {often}"
            yield Found(what, run.nodes_of((rank,)) or run.said_by, join_path(SECTION, "straggler"))
        yield from _slow_links(run, lost)


@rule(
    "EA611",
    severity="error",
    scope="node",
    title="NCCL uses sockets beside an HCA",
    why="It fell back to TCP without a word: everything works, at a tenth of the speed.",
    how_to_fix="Look at NCCL_IB_DISABLE, NCCL_IB_HCA, NCCL_NET, memlock and /dev/infiniband; NCCL_DEBUG=INFO "
    "says why after 'NET/IB'.",
    needs=(SECTION,),
)
def fell_back_to_sockets(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Ranks that reach other nodes by NET/Socket on a node that has an active HCA."""
    with_hca = {one.node for one in evidence.fingerprints if _has_active_hca(hcas_of(one))}
    for run in collective_runs(evidence.fingerprints):
        by_node: Dict[str, List[int]] = {}
        for rank, row in _roads(run):
            if any(way.startswith("NET/Socket") for way in map_in(row, "remote")):
                by_node.setdefault(run.node_of(rank), []).append(rank)
        for node, ranks in by_node.items():
            devices = texts_in(map_in(run.road, str(ranks[0])), "devices")
            if node in with_hca or _names_hca(run):
                told = f"over {', '.join(devices)}" if devices else ""
                what = f"NCCL sends by sockets {told}".rstrip()
                yield Found(what, (node,), join_path(SECTION, "road"), (run.ranks_in_words(ranks),))


@rule(
    "EA612",
    severity="warning",
    scope="cross",
    title="GPUs of a node reach each other the long way",
    why="Where others use NVLink or PCIe directly, this node goes through host memory or the network.",
    how_to_fix="Look at NCCL_P2P_DISABLE, NCCL_SHM_DISABLE, ACS and IOMMU settings, and /dev/shm.",
    needs=(SECTION,),
)
def long_way_inside(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Local ways that are worse than those of most nodes."""
    for run in collective_runs(evidence.fingerprints):
        worst: Dict[str, int] = {}
        for rank, row in _roads(run):
            grades = [_grade(way) for way in map_in(row, "local")]
            if grades:
                node = run.node_of(rank)
                worst[node] = max([worst.get(node, 0), *grades])
        best = min(worst.values(), default=0)
        usual = sum(grade == best for grade in worst.values())
        for node, grade in worst.items():
            if grade > best and usual * 2 > len(worst):
                what = f"ranks reach each other by {_GRADES[grade]}, on others by {_GRADES[best]}"
                yield Found(what, (node,), join_path(SECTION, "road"))


@rule(
    "EA613",
    severity="error",
    scope="cross",
    title="large packets do not arrive",
    why="Connections open and small messages pass; the first large one hangs the launch.",
    how_to_fix="Set one MTU on the interfaces of all nodes and on every switch between them.",
    needs=(SECTION,),
)
def path_mtu(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """A black hole is an error; a smaller path that says so only costs; silence says nothing."""
    for run in collective_runs(evidence.fingerprints):
        if run.mtu_asked and not run.mtu and run.ended.kind in (DONE, NOT_TESTED):
            what = "path MTU: NOT TESTED (there are no two nodes)"
            yield Found(what, run.said_by, join_path(SECTION, "mtu"), severity="incomplete")
        for (state, mtu, own, interface), pairs in _odd_paths(run).items():
            nodes = _common(pairs)
            lines = tuple(f"{first} to {fold(others)}" for first, others in _by_first(pairs))
            where = f"{interface or 'the interface'}, MTU {own}"
            if state == "black_hole":
                what = f"packets above {mtu} bytes vanish ({where})"
                yield Found(what, nodes, join_path(SECTION, "mtu"), lines)
            elif state == "less":
                what = f"the path takes {mtu} bytes ({where})"
                yield Found(what, nodes, join_path(SECTION, "mtu"), lines, severity="warning")
            else:
                what = f"path MTU: NOT TESTED (no answer over UDP; {where})"
                yield Found(what, nodes, join_path(SECTION, "mtu"), lines, severity="incomplete")


@rule(
    "EA614",
    severity="info",
    scope="cross",
    title="hub without a token",
    why="Whoever reaches its port while the run lasts could take a rank's place or say what it pleases.",
    how_to_fix="Set ENVAUDIT_TOKEN on all nodes, or give --token-file.",
    needs=(SECTION,),
)
def unauthenticated(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """The nodes met without proving that they belong together."""
    for run in collective_runs(evidence.fingerprints):
        if run.authenticated is False and len({each.node for each in run.ranks}) > 1:
            yield Found("the nodes met unauthenticated", run.said_by, join_path(SECTION, "authenticated"))


def _slow_links(run: Collectives, lost_percent: float) -> Iterator[Found]:
    """A rank whose links are slow is one finding; so is a link that is slow alone."""
    rates = sorted(run.links.values())
    if len(rates) < _LEAST_LINKS:
        return
    median = rates[len(rates) // 2]
    slow = {pair: rate for pair, rate in run.links.items() if rate * 100 < median * (100 - lost_percent)}
    while slow:
        ends = [rank for pair in slow for rank in pair]
        rank = max(sorted(set(ends)), key=ends.count)
        own = {pair: rate for pair, rate in slow.items() if rank in pair}
        slow = {pair: rate for pair, rate in slow.items() if pair not in own}
        told = f"{_gbps(own.values())}, the median of {len(rates)} links is {_gbps([median])}"
        if len(own) == 1:
            ((first, second),) = own
            what = f"the link between {run.words_of(first)} and {run.words_of(second)} is slow"
            yield Found(what, run.nodes_of((first, second)), join_path(SECTION, "links"), (told,))
        else:
            what = f"{len(own)} links of {run.words_of(rank)} are slow"
            yield Found(what, run.nodes_of((rank,)), join_path(SECTION, "links"), (told,))


def _gbps(milli: Collection[int]) -> str:
    """`6 GB/s`, `6 to 7.5 GB/s`."""
    least, most = min(milli, default=0), max(milli, default=0)
    return f"{least / 1000:.3g}" + (f" to {most / 1000:.3g}" if most > least else "") + " GB/s"


def _roads(run: Collectives) -> Iterator[Tuple[int, Mapping[str, object]]]:
    for name, row in run.road.items():
        yield int(name), row


def _has_active_hca(hcas: Mapping[str, object]) -> bool:
    return any((count_in(map_in(hcas, group), "active") or 0) > 0 for group in hcas)


def _names_hca(run: Collectives) -> bool:
    """Whether NCCL itself found an adapter on some rank, so that sockets are a fall-back there."""
    return any(text_in(row, "network") == "IB" for _, row in _roads(run))


def _grade(way: str) -> int:
    return 0 if way.startswith("P2P") else 1 if way.startswith("SHM") else 2


_Path = Tuple[str, int, int, str]


def _odd_paths(run: Collectives) -> Dict[_Path, List[Tuple[str, str]]]:
    """State, size, own MTU and interface → the ways from one node to another of which that holds."""
    found: Dict[_Path, List[Tuple[str, str]]] = {}
    for node in sorted(run.mtu):
        row = map_in(run.mtu, node)
        own, interface = count_in(row, "mtu") or 0, text_in(row, "interface")
        peers = map_in(row, "peers")
        for other in peers:
            peer = map_in(peers, other)
            key = (text_in(peer, "state"), count_in(peer, "mtu") or 0, own, interface)
            found.setdefault(key, []).append((node, other))
    return found


def _common(pairs: Sequence[Tuple[str, str]]) -> Tuple[str, ...]:
    """The node that all of some ways have in common where there is one and no other, else all of theirs."""
    shared = set(pairs[0]).intersection(*pairs)
    nodes = shared if len(shared) == 1 else {node for pair in pairs for node in pair}
    return tuple(sorted(nodes))


def _by_first(pairs: Sequence[Tuple[str, str]]) -> List[Tuple[str, List[str]]]:
    found: Dict[str, List[str]] = {}
    for first, second in pairs:
        found.setdefault(first, []).append(second)
    return list(found.items())
