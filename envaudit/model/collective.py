"""What the section `collectives` of some nodes says: one run of all of them, told by each.

Every node that stayed to the end carries the same result, and rules say each thing once. A node that lost
the hub has a result of its own, which counts only where nobody has a better one.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from envaudit.model.checked import map_in, text_in
from envaudit.model.fingerprint import Fingerprint
from envaudit.model.section import Section

SECTION = "collectives"

# Names of rows: a rank, and a link between two.
_RANK = re.compile(r"\d{1,7}\Z", re.ASCII)
_LINK = re.compile(r"(\d{1,7})-(\d{1,7})\Z", re.ASCII)

# How a run may end. The first is the only one that says something of every collective.
DONE, NOT_TESTED, HUB_LOST = "done", "not_tested", "hub_lost"
ENDINGS = (
    DONE,
    "mismatch",
    "missing",
    "unreachable",
    "lost",
    "exit",
    "silent",
    "stuck",
    "error",
    "network",
    "deadline",
    HUB_LOST,
    NOT_TESTED,
)

# The statuses of a case, worst first; `not_run` is never a pass.
STATUSES = ("wrong", "error", "not_run", "ok")

_NAMED_RANKS = 16


class Ended(NamedTuple):
    """How a run ended.

    Attributes:
        kind: one of ENDINGS.
        text: the same in one line.
        ranks: those at fault, where it is known.
        nodes: theirs, or the ones that never came.
        victims: ranks that failed because of those.
        stderr: the last words of a worker at fault.
    """

    kind: str
    text: str = ""
    ranks: Tuple[int, ...] = ()
    nodes: Tuple[str, ...] = ()
    victims: Tuple[int, ...] = ()
    stderr: str = ""


class Rank(NamedTuple):
    """One rank, its place, and what torch says of its device."""

    rank: int
    node: str
    local_rank: int
    device: Mapping[str, Any]


class Mismatch(NamedTuple):
    """Something in which the nodes differ and must not, found before torch was imported.

    Attributes:
        what: `nccl`, `torch`, `duplicate_gpu`, ...
        severity: `error` where a launch would hang or crash, else `warning`.
        text: in one line.
        values: each value, and the nodes that have it.
        nodes: those that are to be changed.
    """

    what: str
    severity: str
    text: str
    values: Tuple[Tuple[str, Tuple[str, ...]], ...]
    nodes: Tuple[str, ...]


class Suspect(NamedTuple):
    """Who the evidence says is at fault.

    Attributes:
        kind: what is wrong, `source`, `receiver`, `link`.
        ranks: the suspect, or those of which one is.
        nodes: theirs.
        link: two ranks where it is the way between them.
        sure: whether the evidence leaves no other.
        how: by which evidence, in words.
    """

    kind: str
    ranks: Tuple[int, ...]
    nodes: Tuple[str, ...]
    link: Tuple[int, ...]
    sure: bool
    how: str


class Case(NamedTuple):
    """One collective with one dtype and size: `all_reduce/sum/fp32/65537+1`."""

    name: str
    status: str
    wrong_ranks: Tuple[int, ...] = ()
    reason: str = ""


class Figure(NamedTuple):
    """How fast one collective was, as nccl-tests counts it, in thousandths of 10⁹ bytes a second."""

    name: str
    algbw_milli_gbps: Optional[int]
    busbw_milli_gbps: Optional[int]
    size_bytes: int
    median_ns: Optional[int]


class Collectives(NamedTuple):
    """One run.

    Attributes:
        said_by: the nodes that carry this result.
        ended: how it ended.
        requested: whether it was asked for by name.
        world: how many ranks it had, 0 where it did not come to that.
        supervisors: how many processes met.
        backend: `nccl` or `gloo`; empty where nothing was started.
        authenticated: whether the hub knew its members by a token; None where nobody met.
        asked: the plan; empty where path MTUs alone were asked for.
        ranks: in order.
        mismatches: what was found before torch.
        cases: by name.
        suspects: the likeliest first.
        parameters: digest of the parameters after the step of DDP, empty where there was none.
        figures: of the cases that were timed.
        straggler: {"rank", "items", "of", "late_ns"}: the rank that is last in so many of so many
            collectives, and by how much; empty where there is none.
        latency_ns: of the smallest collective, None where it is not known.
        links: (rank, rank) → thousandths of 10⁹ bytes a second.
        clock: node → offset from the hub's clock and its bound, in ns.
        road: rank → what NCCL took (`checks/collectives/road.py`); empty without a GPU.
        mtu: node → what its probes of path MTU found (`checks/collectives/mtu.py`); empty where not asked.
        mtu_asked: whether they were asked for.
        took_ms: of the phases.
    """

    said_by: Tuple[str, ...]
    ended: Ended
    requested: bool = False
    world: int = 0
    supervisors: int = 0
    backend: str = ""
    authenticated: Optional[bool] = None
    asked: Mapping[str, Any] = {}
    ranks: Tuple[Rank, ...] = ()
    mismatches: Tuple[Mismatch, ...] = ()
    cases: Mapping[str, Case] = {}
    suspects: Tuple[Suspect, ...] = ()
    parameters: str = ""
    figures: Mapping[str, Figure] = {}
    straggler: Mapping[str, Any] = {}
    latency_ns: Optional[int] = None
    links: Mapping[Tuple[int, int], int] = {}
    clock: Mapping[str, Tuple[int, int]] = {}
    road: Mapping[str, Any] = {}
    mtu: Mapping[str, Any] = {}
    mtu_asked: bool = False
    took_ms: Mapping[str, int] = {}

    def nodes_of(self, ranks: Iterable[int]) -> Tuple[str, ...]:
        """The nodes of some ranks, each once, in the order of the ranks."""
        place = {each.rank: each.node for each in self.ranks}
        return tuple(dict.fromkeys(place[rank] for rank in ranks if rank in place))

    def node_of(self, rank: int) -> str:
        """The node of a rank, empty where it is not known."""
        return next(iter(self.nodes_of((rank,))), "")

    def ranks_in_words(self, ranks: Iterable[int]) -> str:
        """`rank 1 (node01), ranks 2, 3 (node02)`."""
        by_node: Dict[str, List[int]] = {}
        for rank in ranks:
            by_node.setdefault(self.node_of(rank), []).append(rank)
        parts = []
        for node, each in by_node.items():
            shown = ", ".join(map(str, each[:_NAMED_RANKS])) + (" ..." if len(each) > _NAMED_RANKS else "")
            parts.append(f"rank{'s' if len(each) > 1 else ''} {shown}" + (f" ({node})" if node else ""))
        return ", ".join(parts) or "no rank"

    def words_of(self, rank: int) -> str:
        """`rank 3 (node02)`, or `rank 3` where its node is not known."""
        nodes = self.nodes_of((rank,))
        return f"rank {rank} ({nodes[0]})" if nodes else f"rank {rank}"


def section_of(fingerprint: Fingerprint) -> Optional[Section]:
    """The section, where its facts say anything."""
    section = fingerprint.sections.get(SECTION)
    return section if section is not None and section.status in ("ok", "partial") else None


def collective_runs(fingerprints: Iterable[Fingerprint]) -> List[Collectives]:
    """Each run that some node tells of, once; the one that says most comes first."""
    said: Dict[str, List[Tuple[str, Section]]] = {}
    for fingerprint in fingerprints:
        section = section_of(fingerprint)
        if section is not None:
            said.setdefault(_key(section), []).append((fingerprint.node, section))
    runs = [_run(each) for each in said.values()]
    better = [run for run in runs if run.ended.kind != HUB_LOST]
    told = {node for run in better for node in _nodes_told(run)}
    lost = [run for run in runs if run.ended.kind == HUB_LOST and not told.issuperset(run.said_by)]
    return sorted([*better, *lost], key=lambda run: (-len(run.ranks), -len(run.said_by)))


def _key(section: Section) -> str:
    """Equal where two nodes tell the same of the same run."""
    return json.dumps([section.facts, section.notes.get("ended"), section.notes.get("ranks")], sort_keys=True)


def _nodes_told(run: Collectives) -> Tuple[str, ...]:
    return (*(each.node for each in run.ranks), *run.ended.nodes)


def _run(said: Sequence[Tuple[str, Section]]) -> Collectives:
    facts, notes = said[0][1].facts, said[0][1].notes
    reasons = map_in(notes, "reasons")
    figures = map_in(notes, "figures")
    authenticated = facts.get("authenticated")
    return Collectives(
        said_by=tuple(node for node, _ in said),
        ended=_ended(facts, map_in(notes, "ended")),
        requested=facts.get("requested") is True,
        world=count_in(facts, "world") or 0,
        supervisors=count_in(notes, "supervisors") or 0,
        backend=text_in(facts, "backend"),
        authenticated=authenticated if isinstance(authenticated, bool) else None,
        asked=map_in(facts, "asked"),
        ranks=tuple(sorted(map(_rank, _maps(notes.get("ranks"))), key=lambda each: each.rank)),
        mismatches=tuple(map(_mismatch, _maps(notes.get("mismatches")))),
        cases={
            name: _case(name, row, text_in(reasons, name))
            for name, row in map_in(facts, "cases").items()
            if isinstance(row, Mapping)
        },
        suspects=tuple(map(_suspect, _maps(facts.get("suspects")))),
        parameters=text_in(facts, "parameters"),
        figures={name: _figure(name, row) for name, row in _rows(map_in(figures, "items"))},
        straggler=map_in(figures, "straggler"),
        latency_ns=count_in(figures, "latency_ns"),
        links=_links(map_in(figures, "links")),
        clock=_clock(map_in(notes, "clock")),
        # These two each node tells of its own ranks and ways.
        road={
            rank: row
            for _, each in said
            for rank, row in map_in(each.notes, "road").items()
            if _RANK.match(rank) and isinstance(row, Mapping)
        },
        mtu={node: map_in(each.notes, "mtu") for node, each in said if map_in(each.notes, "mtu")},
        mtu_asked="mtu" in notes,
        took_ms={name: ms for name, ms in map_in(notes, "took_ms").items() if isinstance(ms, int)},
    )


def _ended(facts: Mapping[str, Any], row: Mapping[str, Any]) -> Ended:
    kind = text_in(facts, "ended")
    return Ended(
        # What a newer node calls by a word that is not known here has at least not ended well.
        kind if kind in ENDINGS else "error",
        text_in(row, "text") or kind,
        numbers_in(row, "ranks"),
        texts_in(row, "nodes"),
        numbers_in(row, "victims"),
        text_in(row, "stderr"),
    )


def _rank(row: Mapping[str, Any]) -> Rank:
    return Rank(
        count_in(row, "rank") or 0,
        text_in(row, "node"),
        count_in(row, "local_rank") or 0,
        map_in(row, "device"),
    )


def _mismatch(row: Mapping[str, Any]) -> Mismatch:
    values = map_in(row, "values")
    severity = "warning" if text_in(row, "severity") == "warning" else "error"
    return Mismatch(
        text_in(row, "what"),
        severity,
        text_in(row, "text"),
        tuple((value, texts_in(values, value)) for value in values),
        texts_in(row, "nodes"),
    )


def _case(name: str, row: Mapping[str, Any], reason: str) -> Case:
    status = text_in(row, "status")
    return Case(name, status if status in STATUSES else "not_run", numbers_in(row, "wrong_ranks"), reason)


def _suspect(row: Mapping[str, Any]) -> Suspect:
    return Suspect(
        text_in(row, "kind"),
        numbers_in(row, "ranks"),
        texts_in(row, "nodes"),
        numbers_in(row, "link"),
        row.get("sure") is True,
        text_in(row, "how"),
    )


def _figure(name: str, row: Mapping[str, Any]) -> Figure:
    return Figure(
        name,
        count_in(row, "algbw"),
        count_in(row, "busbw"),
        count_in(row, "size_bytes") or 0,
        count_in(row, "median_ns"),
    )


def _links(table: Mapping[str, Any]) -> Dict[Tuple[int, int], int]:
    found = {}
    for name in table:
        link = _LINK.match(name)
        rate = count_in(table, name)
        if link is not None and rate is not None:
            found[int(link[1]), int(link[2])] = rate
    return found


def _clock(table: Mapping[str, Any]) -> Dict[str, Tuple[int, int]]:
    pairs = {node: numbers_in(table, node) for node in table}
    return {node: (pair[0], pair[1]) for node, pair in pairs.items() if len(pair) == 2}


def _rows(table: Mapping[str, Any]) -> List[Tuple[str, Mapping[str, Any]]]:
    return [(name, row) for name, row in table.items() if isinstance(row, Mapping)]


def _maps(value: object) -> List[Mapping[str, Any]]:
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, (list, tuple)) else []


def count_in(table: Mapping[str, Any], key: str) -> Optional[int]:
    """The number at a key, None where there is none or it is below zero."""
    value = table.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def numbers_in(table: Mapping[str, Any], key: str) -> Tuple[int, ...]:
    """The integers of the list at a key."""
    value = table.get(key)
    listed: Sequence[Any] = value if isinstance(value, (list, tuple)) else ()
    return tuple(each for each in listed if isinstance(each, int) and not isinstance(each, bool))


def texts_in(table: Mapping[str, Any], key: str) -> Tuple[str, ...]:
    """The texts of the list at a key."""
    value = table.get(key)
    listed: Sequence[Any] = value if isinstance(value, (list, tuple)) else ()
    return tuple(each for each in listed if isinstance(each, str))
