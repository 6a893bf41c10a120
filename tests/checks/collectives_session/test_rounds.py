"""Rounds that look for the culprit, where not all of what they should tell is told."""

from __future__ import annotations

from typing import Any

import pytest

from envaudit.checks.collectives.ending import DEADLINE, ERROR, EXIT, LOST, NETWORK, SILENT, Ending, Times
from envaudit.checks.collectives.items import CollectivePlan
from envaudit.checks.collectives.rounds import Rounds
from envaudit.checks.collectives.watching import Round

NODES = {rank: f"n{rank}" for rank in range(4)}
GATHER = "all_gather/fp32/1021+0"


class Run:
    """What rounds ask of the run that they are part of, while nothing is launched."""

    def __init__(self) -> None:
        self.places = [type("Place", (), {"rank": rank, "node": node}) for rank, node in NODES.items()]
        self.plan = CollectivePlan()


def row(status: str, *sources: int) -> dict[str, Any]:
    """One rank's outcome of an all_gather."""
    residual = {"kind": "", "ranks": []}
    wrong = {"wrong": 9, "sources": {str(one): 9 for one in sources}, "residual": residual, "guards": 0}
    times = {"shortest_ns": 1000, "median_ns": 1000, "size_bytes": 4084}
    return {"item": GATHER, "status": status, "reason": "", "digest": "", **times, "wrong": wrong}


def ended(groups: Any, endings: dict[int, Ending | None], outcomes: dict[int, Any]) -> Round:
    """A round that is over."""
    made = Round(1, groups, NODES, {GATHER}, 0.0)
    made.endings.update(endings)
    made.outcomes.update(outcomes)
    return made


def suspects(
    monkeypatch: pytest.MonkeyPatch, main: Round, others: list[Round], wrong: list[str]
) -> list[dict[str, Any]]:
    """Who is named after a first round and those that follow it."""
    result: dict[str, Any] = {"suspects": []}
    rounds = Rounds(Run(), 10.0**9, Times())  # type: ignore[arg-type]
    monkeypatch.setattr(rounds, "_launch", lambda groups, purpose, plan: others.pop(0))
    rounds._name(result, main, wrong)
    return result["suspects"]


def test_port_that_another_process_took_meanwhile_is_tried_again_with_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is nobody's fault; one that is always taken is told in the end."""
    text = (
        "rendezvous: DistNetworkError: The server socket has failed to listen on any local network address. "
    )
    taken = Ending(ERROR, (0,), text=f"{text}port: 40000, code: -98, name: EADDRINUSE")
    for endings, tries in (([taken, None], 2), ([None], 1), ([taken] * 9, 3), ([Ending(ERROR)], 1)):
        made = [ended([range(4)], {0: ending}, {}) for ending in endings]
        waiting = list(made)
        rounds = Rounds(Run(), 10.0**9, Times())  # type: ignore[arg-type]
        monkeypatch.setattr(rounds, "_launch_once", lambda *given, waiting=waiting: waiting.pop(0))
        assert made[tries - 1] is rounds._launch([range(4)], "all", CollectivePlan())


@pytest.mark.parametrize("kind", [DEADLINE, EXIT, LOST, SILENT])
def test_pairs_that_are_cut_off_accuse_nobody(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """They would be taken for bad links between ranks that pass with others."""
    main = ended([range(4)], {0: Ending(NETWORK)}, {})
    good = {rank: {GATHER: row("ok")} for rank in range(4)}
    cut = Ending(kind)
    pairs = [
        ended([(0, 3), (1, 2)], {0: None, 1: None}, good),
        ended([(0, 2), (1, 3)], {0: None, 1: None}, good),
        *(ended([(0, 1), (2, 3)], {0: cut, 1: cut}, {}) for _ in range(9)),
    ]
    assert [] == suspects(monkeypatch, main, pairs, [])


def test_sender_is_no_link_because_one_receiver_alone_has_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 1 told that what rank 0 sends is wrong; ranks 2 and 3 ended before they could."""
    main = ended([range(4)], {0: Ending(DEADLINE)}, {0: {GATHER: row("ok")}, 1: {GATHER: row("wrong", 0)}})
    matrix = ended([range(4)], {0: Ending(DEADLINE)}, {})
    matrix.matrix = {1: {"wrong": {"0": 9}, "compared": 9}}
    cut = Ending(DEADLINE)
    pairs = [ended([(0, 1), (2, 3)], {0: cut, 1: cut}, {}) for _ in range(9)]
    assert [] == suspects(monkeypatch, main, [matrix, *pairs], [GATHER])
