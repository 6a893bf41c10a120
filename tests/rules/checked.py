"""Nodes whose numbers were checked, by way of the facts and notes that the section makes of its runs."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

from envaudit.checks.bits import Mismatch
from envaudit.checks.outcome import Outcome
from envaudit.checks.plan import Plan
from envaudit.checks.section import facts_of_runs, notes_of_runs
from envaudit.checks.supervise import DeviceRun
from envaudit.model import Fingerprint, Section
from tests.diff.nodes import fingerprint

GEMM, EXP = "gemm/bf16/spread", "repeatability/fp32/exp"
MISMATCH = Mismatch(1, 67108864, (3, 17), "53a1", "43a1", (12,), "64.0")


def outcomes(**changes: Any) -> Dict[str, Outcome]:
    """A right product and an operation without a known answer, or what a test makes of the product."""
    product = Outcome(GEMM, "ok", "", "702c5bcbc23db3ad", True, 50, 0, None, 1_400_000, 780_000, None)
    inexact = Outcome(EXP, "ok", "", "e973d25644018468", False, 50, 0, None, 90_000, None, 2_000_000)
    return {GEMM: product._replace(**changes), EXP: inexact}


def gpu(ordinal: int, found: Optional[Mapping[str, Outcome]] = None, **facts: Any) -> DeviceRun:
    """One GPU and what became of its cases."""
    run = DeviceRun(ordinal)
    run.facts = {
        "name": f"cuda:{ordinal}",
        "count": 8,
        "torch": "2.13.0+cu130",
        "cuda": "13.0",
        "model": "NVIDIA H200",
        "uuid": f"GPU-{ordinal:08x}",
        **facts,
    }
    run.cases = [[GEMM, "bf16", "8192x8192x8192"], [EXP, "fp32", "1048576"]]
    run.outcomes = dict(outcomes() if found is None else found)
    return run


def cpu(found: Optional[Mapping[str, Outcome]] = None) -> DeviceRun:
    """A machine without a GPU."""
    run = gpu(0, found, name="cpu", count=0, torch="2.13.0+cpu", cuda=None, model="Some CPU")
    run.facts.pop("uuid")
    return run


def checked(
    node: str, *runs: DeviceRun, readings: Sequence[Dict[str, Any]] = (), plan: Optional[Plan] = None
) -> Fingerprint:
    """A node with the section that its runs make; eight good GPUs without any."""
    devices: List[DeviceRun] = list(runs) or [gpu(ordinal) for ordinal in range(8)]
    notes = notes_of_runs(devices, (), ())
    for row, reading in zip(notes["devices"].values(), readings):
        row["readings"] = reading
    section = Section("checks", 1, "ok", facts_of_runs(devices, plan or Plan()), notes)
    return fingerprint(node, checks=section)
