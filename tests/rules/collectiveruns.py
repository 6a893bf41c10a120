"""Nodes that tell of a run of collectives, by way of the section that the product makes of a result."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, Optional, Sequence

from envaudit.checks.collectives.asked import Asked
from envaudit.checks.collectives.ending import Ending
from envaudit.checks.collectives.result import blank_result, own_result
from envaudit.checks.collectives.section import answer_of
from envaudit.checks.collectives.supervising import Said
from envaudit.model import Fingerprint, Section
from tests.diff.nodes import fingerprint

NODES = ("node01", "node02")
SUM, GATHER, DDP = "all_reduce/sum/fp32/65537+1", "all_gather/bf16/1021+0", "ddp"


def result(*, ranks_each: int = 1, nodes: Sequence[str] = NODES, **changes: Any) -> Dict[str, Any]:
    """A good run of gloo, or what a test makes of it."""
    made = blank_result(Ending("done"))
    places = [(node, local) for node in nodes for local in range(ranks_each)]
    made.update(
        world=len(places),
        supervisors=len(nodes),
        backend="gloo",
        authenticated=True,
        ranks=[
            {"rank": rank, "node": node, "local_rank": local, "device": {"name": "cpu"}}
            for rank, (node, local) in enumerate(places)
        ],
        cases={name: {"status": "ok", "wrong_ranks": []} for name in (SUM, GATHER, DDP)},
        parameters="2e867cfbe6509db5",
    )
    made["figures"] = {
        "items": {
            SUM: {
                "algbw": 900,
                "busbw": 900,
                "size_bytes": 262148,
                "shortest_ns": 290000,
                "median_ns": 300000,
            },
            DDP: {
                "algbw": None,
                "busbw": None,
                "size_bytes": 0,
                "shortest_ns": 9000000,
                "median_ns": 9500000,
            },
        },
        "straggler": None,
        "latency_ns": 120000,
        "links": {},
    }
    made.update(changes)
    return made


def ended(kind: str, text: str, **more: Any) -> Dict[str, Any]:
    """How a run ended."""
    return {"kind": kind, "text": text, "ranks": [], "nodes": [], "victims": [], "stderr": "", **more}


def telling(
    said: Mapping[str, Any],
    nodes: Sequence[str] = NODES,
    *,
    asked: Optional[Asked] = None,
    road: Optional[Mapping[str, Mapping[str, Any]]] = None,
    mtu: Optional[Mapping[str, Mapping[str, Any]]] = None,
    **sections: Any,
) -> List[Fingerprint]:
    """Nodes that all carry one result; of its road and its MTU each tells its own."""
    found = []
    for node in nodes:
        own = Said(dict(said), dict((road or {}).get(node, {})), dict((mtu or {}).get(node, {})) or None)
        made = answer_of((asked or Asked())._replace(mtu=mtu is not None), own, took_ms=900)
        facts, notes = json.loads(json.dumps([made.facts, dict(made.notes)]))
        section = Section("collectives", 1, made.status, facts, notes)
        found.append(fingerprint(node, collectives=section, **sections))
    return found


def lost_hub(node: str) -> Fingerprint:
    """A node that was cut off, and has only its own word."""
    (alone,) = telling(own_result("hub_lost", "the hub is gone", ["node01"]), [node])
    return alone
