"""Section `collectives`: what the collectives of a run came to, as every node of it tells. On request only.

Facts, which all nodes that stayed to the end share:

    ended      how the run ended: "done", "mismatch", "missing", ... (`model/collective.py`)
    requested  whether it was asked for by name
    world      ranks, 0 where it did not come to that
    backend    "nccl" or "gloo"; null where nothing was started
    authenticated   whether the hub knew its members by a token
    asked      the plan, equal work has equal words here; null where path MTUs alone were asked for
    cases      {"all_reduce/sum/fp32/65537+1": {"status": "ok"}, ...}; a wrong one has `wrong_ranks`
    suspects   [{"kind", "ranks", "nodes", "link", "sure", "how"}], the likeliest first
    parameters digest of the parameters after the step of DDP, equal on all ranks; null without one

Notes:
    ended      {"kind", "text", "ranks", "nodes", "victims", "stderr"}
    ranks      [{"rank", "node", "local_rank", "device"}]
    mismatches [{"what", "values": {value: [nodes]}, "severity", "text"}]
    reasons    {case: why}, for every status but "ok"
    figures    {"items": {case: {"algbw", "busbw" (thousandths of 10⁹ B/s), "median_ns"}}, "straggler",
               "latency_ns", "links": {"0-1": thousandths of 10⁹ B/s}}
    clock      {node: [offset_ns, bound_ns]} from the hub's clock
    road       {rank: ...} of the ranks of this node (`road.py`)
    mtu        the row of this node (`mtu.py`), where it was asked for
    supervisors, took_ms
"""

from __future__ import annotations

import time
from typing import Any, Dict, Mapping, Optional, Tuple

from envaudit.checks.answer import Answer
from envaudit.checks.collectives.asked import Asked, asked_of
from envaudit.checks.collectives.layout import Layout
from envaudit.checks.collectives.supervising import (
    Machine,
    Said,
    alone,
    busy_in_words,
    layout_of,
    machine_of,
    ms_since,
    not_tested,
    of_one_rank,
    supervise_ranks,
)
from envaudit.checks.launch import die_with_parent

SCHEMA = 1
# The run's own times are what end it; the node's deadline stands above this one.
DEADLINE_S = 24 * 3600.0

_TEXT_MAX = 2000
_STDERR_MAX = 4000


def read(context: Any) -> Answer:
    """Take part in the run that the options describe; with one rank say that nothing was tested."""
    if context.static or not context.live:
        return Answer("error", {}, {}, ("nothing of this environment is executed: no rank was started",))
    die_with_parent()
    began = time.monotonic()
    asked = asked_of(context.options)
    machine = machine_of(str(context.interpreter["executable"]), context.environ, context.workdir)
    layout = layout_of(machine, asked.local_ranks, asked.names)
    obstacle = "" if asked.seat.count > 1 else _obstacle(context, machine, layout)
    if obstacle:
        said = Said(not_tested(obstacle), {}, None)
    elif alone(asked, layout):
        said = Said(of_one_rank(), {}, None)
    else:
        hub = (asked.seat.host, asked.seat.port)

        def hello() -> Dict[str, Any]:
            from envaudit.checks.collectives.hello import hello_of

            facts = hello_of(_reader(context), context.environ, machine.cards, hub)
            return {**facts, "busy": busy_in_words(machine, layout) or None}

        before = (lambda: context.section("checks")) if asked.kernels else None
        said = supervise_ranks(asked, layout, hello, machine, before)
    return answer_of(asked, said, took_ms=ms_since(began))


def answer_of(asked: Asked, said: Said, *, took_ms: int) -> Answer:
    """The section of a result."""
    result = said.result
    reasons = {name: row["reason"] for name, row in result["cases"].items() if row.get("reason")}
    facts = {
        "ended": result["ended"]["kind"],
        "requested": asked.requested,
        "world": result["world"],
        "backend": result["backend"],
        "authenticated": result["authenticated"],
        "asked": asked.plan.to_json() if asked.collectives else None,
        "cases": {name: _case(row) for name, row in result["cases"].items()},
        "suspects": result["suspects"],
        "parameters": result["parameters"],
    }
    notes = {
        "ended": {
            **result["ended"],
            "text": str(result["ended"].get("text") or "")[:_TEXT_MAX],
            "stderr": str(result["ended"].get("stderr") or "")[-_STDERR_MAX:],
        },
        "ranks": result["ranks"],
        "mismatches": result["mismatches"],
        "unknown": result.get("unknown") or {},
        "reasons": reasons,
        "figures": result["figures"],
        "clock": result["clock"],
        "road": said.road,
        "supervisors": result["supervisors"],
        "took_ms": {**result["took_ms"], "all": took_ms},
    }
    if asked.mtu:
        notes["mtu"] = said.mtu
    return Answer("ok", facts, notes)


def _obstacle(context: Any, machine: Machine, layout: Layout) -> str:
    """Why no rank of this machine alone can run; what several nodes lack, they tell each other."""
    try:
        if context.section("torch").status == "absent":
            return "torch is not installed there"
    except Exception:  # it cannot be read: whoever starts a rank will see
        return ""
    return busy_in_words(machine, layout)


def _case(row: Mapping[str, Any]) -> Dict[str, Any]:
    said: Dict[str, Any] = {"status": row["status"]}
    if row["status"] != "ok" and row.get("wrong_ranks"):
        said["wrong_ranks"] = row["wrong_ranks"]
    return said


def _reader(context: Any) -> Any:
    """Gives other sections' facts and notes; what cannot be read is not known."""

    def read_section(name: str) -> Tuple[Mapping[str, Any], Mapping[str, Any]]:
        try:
            answer: Optional[Any] = context.section(name)
        except Exception:  # whatever a section raises, its facts are not known then
            answer = None
        return ({}, {}) if answer is None else (answer.facts, answer.notes)

    return read_section
