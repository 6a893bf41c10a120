"""Reports of small and large fleets, as the page of `report/html.py` is tried with.

PROVENANCE: made by hand from the healthy node of `tests/cases`; the faults are those of `faults_of`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List, Tuple

from envaudit.diff import compare
from envaudit.model import Fingerprint, Missing, Section, Verdict
from envaudit.report import Report, Stage
from envaudit.rules import Evidence, judge
from tests.cases.nodes import USUAL, node
from tests.report.cases import DOWN, HOSTILE

PACKAGES = 60
# What closes a script, opens one, and turns a line round.
SCRIPT = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>\u2028\u202e"


def faults_of(number: int) -> Dict[str, Any]:
    """One of five faults, by the node's number."""
    faults: Tuple[Dict[str, Any], ...] = (
        {"gpu/driver": "570.86.15", "cuda/libcuda/version": "570.86.15"},
        {"libraries/nccl/version": "2.26.5"},
        {"gpu/devices": {"3": {"persistence": "disabled"}}},
        {f"packages/distributions/package-{number % PACKAGES:03d}/version": f"9.{number}"},
        {"env/nccl/NCCL_ALGO": {"value": SCRIPT, "origin": "environment"}},
    )
    return faults[number % len(faults)]


def fleet(nodes: int, outliers: int) -> List[Fingerprint]:
    """Nodes of eight GPUs, of which every n-th so that `outliers` do has a fault."""
    shape = USUAL._replace(packages={f"package-{index:03d}": f"1.{index}" for index in range(PACKAGES)})
    every = nodes // outliers
    made = [
        node(f"node{number:04d}", shape, faults_of(number // every) if number % every == 0 else None)
        for number in range(1, nodes + 1)
    ]
    unread = Section("gpu", made[1].sections["gpu"].schema, "error", errors=(f"nvml: {HOSTILE}",))
    made[1] = replace(made[1], sections={**made[1].sections, "gpu": unread})
    return made


def with_links(nodes: List[Fingerprint]) -> List[Fingerprint]:
    """The first nodes with a run of collectives of two ranks each; the last link is slow."""
    ranks = [{"rank": rank, "node": nodes[rank // 2].node, "local_rank": rank % 2} for rank in range(8)]
    links = {
        f"{a}-{b}": 348_000 if a // 2 == b // 2 else 46_100 + 7 * b + a for b in range(8) for a in range(b)
    }
    links["6-7"], links["2-5"] = 340_000, 3_050
    facts: Dict[str, Any] = {"ended": "done", "world": 8, "backend": "nccl", "cases": {}, "suspects": []}
    notes: Dict[str, Any] = {"ranks": ranks, "figures": {"items": {}, "links": links}}
    section = Section("collectives", 1, "ok", facts, notes)
    return [
        replace(each, sections={**each.sections, "collectives": section}) if place < 4 else each
        for place, each in enumerate(nodes)
    ]


def page(nodes: int, outliers: int, missing: int) -> Report:
    """What a gate reports of a fleet."""
    made = with_links(fleet(nodes, outliers))
    gone = {f"node{nodes + number:04d}": DOWN for number in range(1, missing + 1)}
    gone = {**gone, "corrupt01": Missing("corrupt", SCRIPT, HOSTILE)}
    drifts = compare(made)
    found = judge(Evidence(tuple(made), gone, drifts))
    return Report(
        command="gate",
        tool="0.1.0",
        verdict=Verdict.of(found),
        findings=found,
        drifts=drifts,
        missing=gone,
        nodes=tuple(each.node for each in made),
        elapsed_s=21.4,
        stages=(
            Stage("lock", "fresh", 0.4),
            Stage("nodes", f"{nodes} of {nodes + len(gone)} answered", 5.1),
            Stage("lock=node", f"{nodes} of {nodes} match train.conda-lock.yml (412 packages)"),
            Stage("clock", "within 0.3 ms ± 0.1 ms", 0.2),
            Stage("kernels", f"{8 * nodes} GPUs, 34 operations each, all exact", 14.7),
        ),
        fingerprints=tuple(made),
    )
