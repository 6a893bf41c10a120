"""Section `checks`: what every operation came to on every device of the node. On request only.

Facts:

    usable    "ok", or why torch or its GPUs cannot be used at all
    device    "cuda", or "cpu" where the machine has no GPU; null where nothing could be tried
    count     how many devices were tried
    asked     {"parts": [...], "ops": [...], "repeats": 0, "memory_permille": 900, "compile": false,
               "seed": ..., "budget_s": 30}: equal work has equal words here
    each      {"card": {...}, "cases": {"gemm/bf16/spread": {"status": "ok", "digest": "702c...",
               "exact": true, "dtype": "bf16", "shape": "8192x8192x8192"}, ...}}: what most devices say;
               `card` is what must agree before bits of inexact operations may be compared: model,
               multiprocessors, capability, driver, torch, cuda, cublas, cudnn, triton, and the
               variables that change libraries' results (`flags`); on a CPU also `threads` and `isa`
    devices   {"3": {"cases": {"gemm/bf16/spread": {"status": "wrong", ...}}}}: by ordinal, where one
              deviates, and in what

A status is one of `checks/outcome.py`; `digest` is left out where there is none.

Notes:
    devices   {"3": {"uuid", "bus_id", "cases": {case: {"reason", "repeats", "wrong_repeats",
               "mismatch", "median_ns", "milli_tflops", "milli_gbps", "tested_bytes"}}, "readings": {...}}}
    took_ms   of the whole run
    readings  why there are none, where that is so
"""

from __future__ import annotations

import json
import os
import stat
import time
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from envaudit.checks.answer import Answer
from envaudit.checks.cards import NO_ANSWER, Card, Cards
from envaudit.checks.launch import die_with_parent
from envaudit.checks.meter import Meter
from envaudit.checks.outcome import Outcome
from envaudit.checks.plan import Plan, plan_of
from envaudit.checks.readiness import gpus_of_machine
from envaudit.checks.supervise import DeviceRun, Started, Tell, supervise

SCHEMA = 1
# The run's own budget is what ends it; the node's deadline stands above this one.
DEADLINE_S = 24 * 3600.0

# A device's words that are no part of what must agree.
_OWN_WORDS = ("name", "count", "uuid", "memory_mib")


def read(context: Any) -> Answer:
    """Run what is asked for, under the audited interpreter; absent where there is no torch."""
    if context.static or not context.live:
        return Answer("error", {}, {}, ("nothing of this environment is executed: no kernel was run",))
    die_with_parent()
    plan = plan_of(context.options)
    began = time.monotonic()
    cards, why_no_readings = Cards.open(plan.case_limit_s)
    visible = cards.visible(context.environ) if cards else None
    started = Started(
        interpreter=str(context.interpreter["executable"]),
        environ=dict(context.environ),
        cwd=context.workdir if os.path.isdir(context.workdir) else "/",
        gpus=len(visible) if visible else gpus_of_machine(),
        busy=_busy(cards, visible),
        only=_only(context.options),
    )
    meter = Meter(cards, visible) if cards and visible else None
    if meter:
        meter.start()
    with _Progress(str(context.options.get("check_progress") or "")) as tell:
        runs = supervise(started, plan, tell, began)
    if why_no_readings.startswith(NO_ANSWER):
        for run in runs:
            # What never told of its device hangs in the driver, too.
            run.unusable = run.unusable or ("" if run.facts else why_no_readings)
    readings = meter.stop() if meter else []
    if runs and all(run.absent for run in runs):
        return Answer("absent", {}, {"took_ms": _ms_since(began), "why": runs[0].absent})
    facts = facts_of_runs(runs, plan, driver=cards.driver if cards else "")
    notes = notes_of_runs(runs, visible or (), readings)
    notes["took_ms"] = _ms_since(began)
    if not readings and facts["device"] == "cuda":
        notes["readings"] = why_no_readings or "which card is which is not known here"
    return Answer("ok", facts, notes)


def facts_of_runs(runs: Sequence[DeviceRun], plan: Plan, driver: str = "") -> Dict[str, Any]:
    """The facts: what most devices say, and where one deviates."""
    rows = {str(run.ordinal): _row(run, driver) for run in runs}
    each, devices = folded(rows)
    reasons = {run.unusable for run in runs}
    unusable = sorted(reasons)
    if len(reasons) > 1:
        unusable = [f"GPU {run.ordinal}: {run.unusable}" for run in runs if run.unusable]
    kinds = {run.facts["name"].partition(":")[0] for run in runs if run.facts}
    return {
        "usable": "; ".join(unusable) or "ok",
        "device": sorted(kinds)[-1] if kinds else None,
        "count": len(runs),
        "asked": plan.to_json(),
        "each": each,
        "devices": devices,
    }


def notes_of_runs(
    runs: Sequence[DeviceRun], visible: Sequence[Card], readings: Sequence[Dict[str, Any]]
) -> Dict[str, Any]:
    """What is of one device alone: who it is, how fast and how hot it ran, how a result was wrong."""
    rows: Dict[str, Any] = {}
    for run in runs:
        row: Dict[str, Any] = {"uuid": run.facts.get("uuid"), "memory_mib": run.facts.get("memory_mib")}
        place = _card_place(run, visible)
        if place is not None:
            row["uuid"] = row["uuid"] or visible[place].uuid
            row["bus_id"] = visible[place].bus_id
            if place < len(readings):
                row["readings"] = readings[place]
        row["cases"] = {name: _figures(outcome) for name, outcome in run.outcomes.items()}
        rows[str(run.ordinal)] = {key: value for key, value in row.items() if value is not None}
    return {"devices": rows}


def _card_place(run: DeviceRun, visible: Sequence[Card]) -> Optional[int]:
    """Which card a device is: by its UUID where torch tells one, else by its place."""
    uuid = run.facts.get("uuid")
    if uuid:
        return next((place for place, card in enumerate(visible) if card.uuid == uuid), None)
    is_gpu = str(run.facts.get("name", "cuda")).startswith("cuda")
    return run.ordinal if is_gpu and run.ordinal < len(visible) else None


def _row(run: DeviceRun, driver: str) -> Dict[str, Any]:
    known = {case[0]: case for case in run.cases}
    cases = {}
    for name, outcome in run.outcomes.items():
        cases[name] = {"status": outcome.status, "exact": outcome.exact}
        if outcome.digest:
            cases[name]["digest"] = outcome.digest
        if name in known:
            cases[name].update(dtype=known[name][1], shape=known[name][2])
    card = {key: value for key, value in run.facts.items() if key not in _OWN_WORDS}
    if driver and run.facts.get("name", "").startswith("cuda"):
        card["driver"] = driver
    return {"card": card, "cases": cases}


def _figures(outcome: Outcome) -> Dict[str, Any]:
    row = outcome.to_json()
    known = {"case", "status", "digest", "exact"}
    return {name: row[name] for name in row if name not in known and row[name]}


def folded(rows: Mapping[str, Dict[str, Any]]) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """What most rows say, key by key; and by row what it says otherwise.

    A tie goes to the row that comes first.
    """
    each: Dict[str, Any] = {"card": {}, "cases": {}}
    others: Dict[str, Any] = {}
    for part in each:
        keys = {key: None for row in rows.values() for key in row[part]}
        for key in keys:
            said = [json.dumps(row[part].get(key), sort_keys=True) for row in rows.values()]
            most = max(said, key=said.count)
            if json.loads(most) is not None:
                each[part][key] = json.loads(most)
            for name, text in zip(rows, said):
                if text != most:
                    others.setdefault(name, {}).setdefault(part, {})[key] = rows[name][part].get(key)
    return each, others


def _only(options: Mapping[str, Any]) -> Optional[int]:
    ordinal = options.get("check_only")
    return ordinal if isinstance(ordinal, int) and not isinstance(ordinal, bool) and ordinal >= 0 else None


def _busy(cards: Optional[Cards], visible: Optional[List[Card]]) -> Dict[int, str]:
    if cards is None or visible is None:
        return {}
    found = {ordinal: cards.busy(card) for ordinal, card in enumerate(visible)}
    return {ordinal: f"the GPU is busy: {who}" for ordinal, who in found.items() if who}


def _ms_since(began: float) -> int:
    return int((time.monotonic() - began) * 1000)


class _Progress:
    """Writes how far the run is into a file that whoever asked has made; tells nobody without one."""

    def __init__(self, path: str) -> None:
        self._fd = -1
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK) if path else -1
        except OSError:
            pass
        if self._fd >= 0 and not stat.S_ISREG(os.fstat(self._fd).st_mode):
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Optional[Tell]:
        return self._tell if self._fd >= 0 else None

    def __exit__(self, *_: Any) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def _tell(self, done: int, total: int) -> None:
        try:
            # Padded, so that a shorter line leaves nothing of a longer one.
            os.pwrite(self._fd, f"{done} 0 {total} 0".ljust(60).encode("ascii") + b"\n", 0)
        except OSError:
            pass  # a full disk costs the bar alone
