"""Links between ranks as a square: how fast each was, by itself, in the rounds of pairs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from envaudit.model.collective import collective_runs
from envaudit.model.fingerprint import Fingerprint
from envaudit.model.nodeset import natural_key

# Beyond this a square is no longer read; the slowest links are.
_SQUARE = 64
_SLOWEST = 20
_STEPS = 9


class Link(NamedTuple):
    """One link in both directions.

    Attributes:
        ends: two labels.
        milli_gbps: thousandths of 10⁹ bytes a second.
        step: 0, the slowest of all, to 9, the fastest; equal ratios are equal steps, for a link inside a
            node is an order of magnitude faster than one between nodes.
    """

    ends: tuple[str, str]
    milli_gbps: int
    step: int

    @property
    def words(self) -> str:
        """`12.3`, GB/s."""
        digits = 0 if self.milli_gbps >= 100_000 else 1 if self.milli_gbps >= 10_000 else 2
        return f"{self.milli_gbps / 1000:.{digits}f}"


class Links(NamedTuple):
    """What is known of the links.

    Attributes:
        labels: rows and columns: ranks, or nodes where there are too many ranks; empty where these
            are too many as well.
        cells: a pair of labels → the slowest link between them.
        slowest: the slowest of all links, the slowest first.
        measured: how many links were.
        by_node: whether the labels are nodes.
    """

    labels: tuple[str, ...]
    cells: dict[tuple[str, str], Link]
    slowest: tuple[Link, ...]
    measured: int
    by_node: bool


def links_of(fingerprints: Iterable[Fingerprint]) -> Links | None:
    """The link matrix of the run that these nodes took part in; None where none was measured."""
    for run in collective_runs(fingerprints):
        if run.links:
            return _square(dict(run.links), {each.rank: each.node for each in run.ranks if each.node})
    return None


def _square(rates: dict[tuple[int, int], int], nodes: dict[int, str]) -> Links:
    ranks = sorted({rank for pair in rates for rank in pair})
    least = min(rates.values())
    # 0 where all are alike, to a float at least.
    spread = math.log((max(rates.values()) + 1) / (least + 1))

    def link(ends: tuple[str, str], rate: int) -> Link:
        share = math.log((rate + 1) / (least + 1)) / spread if spread else 1.0
        return Link(ends, rate, int(share * _STEPS))

    names = {rank: f"{rank} ({nodes[rank]})" if rank in nodes else str(rank) for rank in ranks}
    slowest_first = sorted(rates.items(), key=lambda item: (item[1], item[0]))
    slowest = tuple(link((names[a], names[b]), rate) for (a, b), rate in slowest_first[:_SLOWEST])
    by_node = len(ranks) > _SQUARE and all(rank in nodes for rank in ranks)
    label = {rank: nodes[rank] if by_node else str(rank) for rank in ranks}
    labels = tuple(sorted(set(label.values()), key=natural_key))
    if len(labels) > _SQUARE:
        return Links((), {}, slowest, len(rates), by_node)
    cells: dict[tuple[str, str], Link] = {}
    for (a, b), rate in slowest_first:
        for ends in ((label[a], label[b]), (label[b], label[a])):
            # The slowest comes first, and stays.
            cells.setdefault(ends, link(ends, rate))
    return Links(labels, cells, slowest, len(rates), by_node)
