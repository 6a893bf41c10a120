"""Judging a large fleet by all rules, apart from reading and comparing it."""

from __future__ import annotations

import statistics
import time
from typing import Any, Dict, List, Tuple

from envaudit.diff import compare
from envaudit.model import Fingerprint, Snapshot
from envaudit.model.codec import decode_snapshot, encode_snapshot
from envaudit.rules import Evidence, judge
from tests.bench.synthetic_fleet import CAPTURED_AT, TOOL
from tests.cases.nodes import USUAL, node

PACKAGES = 500


def judging_s(nodes: int, outliers: int, runs: int) -> float:
    """The median time that judging nodes takes, of which the last `outliers` differ.

    Each node has eight GPUs, eight rails and 500 packages; an outlier has another driver, another
    NCCL, a GPU that is set otherwise and a package of its own. They are as they come out of a store.
    """
    fleet = _fleet(nodes, outliers)
    evidence = Evidence(tuple(fleet), drifts=compare(fleet))
    # The rules are imported, and their patterns compiled, once a command.
    assert outliers == len({name for finding in judge(evidence) for name in finding.nodes})
    times: List[float] = []
    for _ in range(runs):
        # What rules keep of a node is kept as long as the node is.
        evidence = Evidence(_as_stored(fleet), drifts=evidence.drifts)
        began = time.perf_counter()
        judge(evidence)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def _fleet(nodes: int, outliers: int) -> List[Fingerprint]:
    shape = USUAL._replace(packages={f"package-{index:03d}": f"1.{index}" for index in range(PACKAGES)})
    return [
        node(f"node{number:04d}", shape, _faults(number) if number > nodes - outliers else None)
        for number in range(1, nodes + 1)
    ]


def _faults(number: int) -> Dict[str, Any]:
    return {
        "gpu/driver": "570.86.15",
        "cuda/libcuda/version": "570.86.15",
        "libraries/nccl/version": "2.26.5",
        "gpu/devices": {"3": {"persistence": "disabled"}},
        f"packages/distributions/package-{number % PACKAGES:03d}/version": f"9.{number}",
    }


def _as_stored(fleet: List[Fingerprint]) -> Tuple[Fingerprint, ...]:
    text = encode_snapshot(Snapshot(tuple(fleet)), captured_at=CAPTURED_AT, tool=TOOL)
    return decode_snapshot(text, "bench").fingerprints
