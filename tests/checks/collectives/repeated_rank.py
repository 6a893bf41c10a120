"""A rank that joins one group after the other, in one process: what a campaign of thousands of runs needs.

It is started as a worker is, reads tasks of `checks/collectives/rank.py` one a line, each with a `prefix`
of the store and perhaps a `fault`, and answers each with one line of outcomes or a matrix.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from datetime import timedelta
from typing import Any, Dict, List, Mapping

from envaudit.checks.collectives import rank as ranks
from envaudit.checks.collectives.abilities import Abilities
from envaudit.checks.collectives.calls import Scene
from envaudit.checks.collectives.items import items
from tests.checks.collectives.faults import Armed, Fault


def main() -> None:
    """Answer tasks until standard input ends."""
    out = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    host, port, world, rank = json.loads(sys.stdin.readline())
    store = dist.TCPStore(host, port, world, rank == 0, timedelta(seconds=120))
    abilities = Abilities("gloo", "cpu", 60)
    for line in sys.stdin:
        row = json.loads(line)
        try:
            answer = _answer(row, store, abilities)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        out.write(json.dumps(answer) + "\n")
        out.flush()
    os._exit(0)


def _answer(row: Mapping[str, Any], base: Any, abilities: Abilities) -> Dict[str, Any]:
    import torch.distributed as dist

    task = ranks.Task.from_json(row)
    wanted = items(task.plan, task.backend, task.world, cuda=False)
    matrix = list(ranks.MATRIX_ITEMS)
    abilities.learn([*wanted, *matrix])
    store = dist.PrefixStore(row["prefix"], base)
    limit = timedelta(seconds=task.budget_s)
    dist.init_process_group("gloo", store=store, rank=task.rank, world_size=task.world, timeout=limit)
    scene = Scene(task.rank, task.world, "cpu", "gloo", abilities.forms)
    runner = ranks.Runner(task, scene, ranks.Progress(lambda what: None))
    armed = Armed(Fault(**row["fault"])) if row.get("fault") else None
    answer: Dict[str, Any] = {}
    try:
        if task.purpose == ranks.MATRIX:
            answer["matrix"] = runner.matrix(abilities.judged(matrix))
        else:
            outcomes: List[Dict[str, Any]] = [
                runner.run(item) for item in abilities.judged(wanted) if item.op != "ddp"
            ]
            answer["outcomes"] = {outcome["item"]: outcome for outcome in outcomes}
        dist.barrier()
    finally:
        if armed:
            armed.disarm()
        dist.destroy_process_group()
    return answer


if __name__ == "__main__":
    main()
