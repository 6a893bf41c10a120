"""Reports of collectives, good and bad, for the goldens and for what holds of any report."""

from __future__ import annotations

from typing import Any, Dict, Sequence

from hypothesis import strategies as st

from envaudit.checks.collectives.supervising import of_one_rank
from envaudit.cli.checkwords import outcome_words
from envaudit.model import Fingerprint, Verdict
from envaudit.model.collective import (
    ENDINGS,
    STATUSES,
    Case,
    Collectives,
    Ended,
    Figure,
    Mismatch,
    Rank,
    Suspect,
    collective_runs,
)
from envaudit.report import Report
from envaudit.rules import Evidence, judge
from tests.rules.collectiveruns import DDP, GATHER, SUM, ended, result, telling

TOOL = "0.1.0"
IB = {
    "version": "2.27.5+cuda12.9",
    "network": "IB",
    "devices": ["mlx5_0:1/IB", "mlx5_1:1/IB"],
    "nvls": True,
    "local": {"P2P/CUMEM": 24},
    "remote": {"NET/IB/GDRDMA": 8},
}
SOCKET = {**IB, "network": "Socket", "devices": ["eth0:10.0.0.1"], "remote": {"NET/Socket": 8}}
EVEN = {"interface": "eth0", "address": "10.0.0.1", "mtu": 9000, "equal": 1, "peers": {}}


def ranks(fleet: Sequence[Fingerprint], *, verbose: bool = False) -> Report:
    """What `check --only collectives` reports."""
    found = judge(Evidence(tuple(fleet), sections=("collectives",), comparing=False))
    runs = collective_runs(fleet)
    return Report(
        command="check",
        tool=TOOL,
        verdict=Verdict.of(found),
        findings=found,
        nodes=tuple(one.node for one in fleet),
        sections=("collectives",),
        comparing=False,
        outcome=outcome_words((), runs[0]),
        elapsed_s=6.2,
        verbose=verbose,
        collectives=tuple(runs),
    )


def linked(count: int, slow: int) -> Dict[str, Any]:
    """A good run of NCCL over so many nodes with every link, of which one rank has slow ones."""
    names = [f"node{number:02d}" for number in range(1, count + 1)]
    made = result(nodes=names, backend="nccl")
    made["figures"]["links"] = {
        f"{first}-{second}": 6_000 if slow in (first, second) else 45_000 + 100 * first
        for first in range(count)
        for second in range(first + 1, count)
    }
    return made


def _wrong() -> Dict[str, Any]:
    made = linked(4, 3)
    how = "column 2 of all_gather is wrong at every rank"
    suspect = {"kind": "source", "ranks": [2], "nodes": ["node03"], "link": [], "sure": True, "how": how}
    made["suspects"] = [suspect]
    for name in (SUM, GATHER):
        made["cases"][name] = {"status": "wrong", "wrong_ranks": [0, 1, 3], "reason": "9 of 65537 elements"}
    made["parameters"] = None
    made["cases"][DDP] = {"status": "wrong", "wrong_ranks": [0, 1, 2, 3], "reason": "other digests"}
    return made


def _stuck() -> Dict[str, Any]:
    how = ended(
        "stuck",
        "node02: entered 15 collectives, the others 16",
        ranks=[1],
        nodes=["node02"],
        victims=[0],
        stderr="RuntimeError: \x1b[31mred\x1b[0m\n",
    )
    return result(ended=how, cases={SUM: {"status": "ok", "wrong_ranks": []}})


_FOUR = ["node01", "node02", "node03", "node04"]
_GPU_ROAD = {"node01": {"0": IB}, "node02": {"1": SOCKET}}

RANK_CASES: Dict[str, Report] = {
    "ranks_good": ranks(telling(result(ranks_each=2), mtu={"node01": EVEN, "node02": EVEN})),
    "ranks_verbose": ranks(telling(result()), verbose=True),
    "ranks_gpu_socket": ranks(telling(result(backend="nccl"), road=_GPU_ROAD)),
    "ranks_wrong": ranks(telling(_wrong(), _FOUR)),
    "ranks_stuck": ranks(telling(_stuck())),
    "ranks_many_links": ranks(telling(linked(40, 7), [f"node{number:02d}" for number in range(1, 41)])),
    "ranks_alone": ranks(telling(of_one_rank(), ["node01"])),
}

_TEXTS = st.text(max_size=12)
_NUMBERS = st.lists(st.integers(0, 9), max_size=3).map(tuple)
_NAMES = st.lists(st.sampled_from(["node01", "node02"]), max_size=2).map(tuple)
_COUNTS = st.one_of(st.none(), st.integers(0, 2**62))
RUNS = st.builds(
    Collectives,
    said_by=st.just(("node01",)),
    ended=st.builds(Ended, st.sampled_from(ENDINGS), _TEXTS, _NUMBERS, _NAMES, _NUMBERS, _TEXTS),
    requested=st.booleans(),
    world=st.integers(0, 9),
    supervisors=st.integers(0, 9),
    backend=st.sampled_from(["", "gloo", "nccl"]),
    authenticated=st.sampled_from([None, True, False]),
    asked=st.sampled_from([{}, {"sizes": [3], "ddp": True}]),
    ranks=st.lists(
        st.builds(Rank, st.integers(0, 9), _TEXTS, st.integers(0, 9), st.just({})), max_size=3
    ).map(tuple),
    mismatches=st.lists(
        st.builds(
            Mismatch,
            _TEXTS,
            st.sampled_from(["error", "warning"]),
            _TEXTS,
            st.lists(st.tuples(_TEXTS, _NAMES), max_size=2, unique_by=lambda each: each[0]).map(tuple),
            _NAMES,
        ),
        max_size=2,
    ).map(tuple),
    cases=st.lists(st.builds(Case, _TEXTS, st.sampled_from(STATUSES), _NUMBERS, _TEXTS), max_size=3).map(
        lambda cases: {case.name: case for case in cases}
    ),
    suspects=st.lists(
        st.builds(Suspect, _TEXTS, _NUMBERS, _NAMES, _NUMBERS, st.booleans(), _TEXTS), max_size=2
    ).map(tuple),
    parameters=_TEXTS,
    figures=st.lists(
        st.builds(Figure, _TEXTS, _COUNTS, _COUNTS, st.integers(0, 2**40), _COUNTS), max_size=2
    ).map(lambda figures: {figure.name: figure for figure in figures}),
    straggler=st.sampled_from([{}, {"rank": 1, "items": 3, "of": 4, "late_ns": 5}, {"rank": "x"}]),
    latency_ns=_COUNTS,
    links=st.dictionaries(
        st.tuples(st.integers(0, 40), st.integers(0, 40)), st.integers(0, 2**40), max_size=4
    ),
    clock=st.just({"node01": (-5, 7)}),
    road=st.sampled_from([{}, {"0": IB}, {"0": {"local": 3, "devices": "x"}, "1": {}}]),
    mtu=st.sampled_from([{}, {"node01": EVEN}, {"node01": {"mtu": "x", "peers": 3}}]),
    took_ms=st.just({"all": 3}),
)
