"""Ranks as they are started, over the real gloo: what they tell, and what a fault in one of them comes to."""

from __future__ import annotations

import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Dict

import pytest

from envaudit.checks.collectives.items import CollectivePlan, items
from envaudit.checks.collectives.naming import name_culprits
from envaudit.checks.collectives.rank import Task
from envaudit.checks.readiness import Unusable
from envaudit.checks.worker import CONTEXT_LOST
from tests.checks.collectives.launching import run_ranks

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch: nox -s checks")

ARMED = Path(__file__).with_name("armed")
PROJECT = Path(__file__).resolve().parents[3]
SMALL = CollectivePlan(ops=("all_reduce/sum/fp32/1*", "all_gather/fp32", "barrier", "ddp"))


def with_fault(fault: Dict[str, Any]) -> Dict[str, str]:
    """Variables of the rank that has a fault."""
    path = os.pathsep.join((str(ARMED), str(PROJECT)))
    return {"PYTHONPATH": path, "ENVAUDIT_TEST_FAULT": json.dumps(fault)}


def test_two_ranks_go_through_the_whole_list_and_find_it_right() -> None:
    """Every operation, reduction and dtype that gloo takes, at every size; what it does not take is said."""
    told = run_ranks(2, CollectivePlan())
    wanted = [item.name for item in items(CollectivePlan(), "gloo", 2, cuda=False)]
    for rank, each in enumerate(told):
        assert (0, True, None) == (each.status, each.line("end"), each.line("error")), each.complained
        assert wanted == list(each.outcomes), rank
    first, second = (each.outcomes for each in told)
    assert {"ok", "not_run"} == {row["status"] for row in first.values()}
    skipped = {name: row["reason"] for name, row in first.items() if row["status"] == "not_run"}
    assert all("does not take it" in reason for reason in skipped.values())
    assert skipped == {name: row["reason"] for name, row in second.items() if row["status"] == "not_run"}
    must = ("all_reduce/sum/fp32/65537+1", "all_gather/fp16/1021+0", "broadcast/int64/1021+0")
    assert ["ok"] * 3 == [first[name]["status"] for name in must]
    reduced = [name for name in wanted if name.startswith("all_reduce/")]
    assert [first[name]["digest"] for name in reduced] == [second[name]["digest"] for name in reduced]
    assert told[0].line("parameters") == told[1].line("parameters") == told[0].line("expected") is not None
    done = len(wanted) - len(skipped)
    beats = [line for line in told[0].lines if "heartbeat" in line]
    assert beats
    assert all(line["finished"] <= line["entered"] <= done for line in beats)
    assert told[0].line("device")["name"] == "cpu"


def test_four_ranks_see_whose_contribution_is_wrong(tmp_path: Path) -> None:
    """One rank sends nothing but zeros; all of them know, and the hub names it."""
    fault = {"kind": "dropped", "seed": 1}
    told = run_ranks(4, SMALL._replace(ddp=False), environs=[{}, {}, with_fault(fault)])
    outcomes = {rank: each.outcomes for rank, each in enumerate(told)}
    assert [0] * 4 == [each.status for each in told], told[2].complained
    row = outcomes[0]["all_reduce/sum/fp32/1021+0"]
    assert ("wrong", {"kind": "dropped", "ranks": [2]}) == (row["status"], row["wrong"]["residual"])
    gathered = outcomes[3]["all_gather/fp32/1021+0"]["wrong"]
    assert {"2"} == set(gathered["sources"])
    (suspect,) = name_culprits(4, outcomes, {})
    assert ("rank", (2,), True) == (suspect.kind, suspect.ranks, suspect.sure)


def test_exception_at_one_rank_is_told_and_ends_it() -> None:
    """The other hears of it from gloo, and says so, too; nobody hangs."""
    told = run_ranks(2, SMALL, environs=[{}, with_fault({"raise": "CUDA error: an illegal access"})])
    assert "all_reduce/sum/fp32/" in str(told[1].line("error"))
    assert str(told[1].line("error")).endswith("RuntimeError: CUDA error: an illegal access")
    assert [CONTEXT_LOST] * 2 == [each.status for each in told]
    assert told[0].line("error")
    assert not told[0].line("end")


def test_raw_matrix_says_from_whom_bits_arrive_wrong() -> None:
    """A receiver that mixes up who sent what."""
    fault = with_fault({"kind": "wrong_source", "seed": 1})
    told = run_ranks(3, CollectivePlan(), purpose="matrix", environs=[{}, fault])
    good, bad = told[0].line("matrix"), told[1].line("matrix")
    assert ({}, True) == (good["wrong"], len(bad["wrong"]) >= 2)
    assert good["compared"] == bad["compared"] > 0


SETTINGS = """\
import torch
torch.set_default_dtype(torch.float64)
if hasattr(torch, "set_default_device"):
    torch.set_default_device("meta")
torch.set_float32_matmul_precision("medium")
torch.use_deterministic_algorithms(True)
torch.set_flush_denormal(True)
torch.autocast("cpu").__enter__()
import warnings
warnings.simplefilter("error")
"""


def test_settings_of_the_environment_accuse_no_rank(tmp_path: Path) -> None:
    """Other types, another device, and warnings that are errors, at one rank of two."""
    (tmp_path / "sitecustomize.py").write_text(SETTINGS)
    plan = CollectivePlan(dtypes=("fp32", "bf16", "int8"), cap=1021)
    told = run_ranks(2, plan, environs=[{}, {"PYTHONPATH": str(tmp_path), "PYTHONWARNINGS": "default"}])
    for each in told:
        assert (0, None) == (each.status, each.line("error")), each.complained
        assert [] == [name for name, row in each.outcomes.items() if row["status"] == "wrong"]
    assert told[0].line("parameters") == told[1].line("parameters") == told[1].line("expected")


def test_interpreter_without_torch_says_so(tmp_path: Path) -> None:
    """An error, and no traceback for anybody to read."""
    hiding = tmp_path / "torch"
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nclass No:\n    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch': raise ModuleNotFoundError('no torch', name='torch')\n"
        "sys.meta_path.insert(0, No())\n"
    )
    assert not hiding.exists()
    (told,) = run_ranks(1, SMALL, interpreter=sys.executable, environs=[{"PYTHONPATH": str(tmp_path)}])
    assert ("torch is not installed there", CONTEXT_LOST) == (told.line("error"), told.status)


def test_rank_that_takes_other_calls_than_rank_0_goes_no_further() -> None:
    """It says what, where it would have left the others hanging."""
    import torch.distributed as dist

    from envaudit.checks.collectives.abilities import Abilities, Disagreement

    wanted = items(CollectivePlan(dtypes=("fp32", "e4m3")), "gloo", 2, cuda=False)
    store = dist.HashStore()
    here, there = (Abilities("gloo", "cpu", 10) for _ in range(2))
    for each in (here, there):
        each.learn(wanted)
    here.agree(store, rank=0)
    there.agree(store, rank=1)
    there.reasons["all_reduce", "sum", "fp32"] = "not here"
    with pytest.raises(Disagreement, match="all_reduce/sum/fp32"):
        there.agree(store, rank=1)
    refused = {item.name: item.not_run for item in here.judged(wanted) if item.not_run}
    assert refused
    assert all("e4m3" in name and "does not take it" in reason for name, reason in refused.items())


@pytest.mark.parametrize(
    ("lacks", "said"),
    [
        ("torch.distributed.ProcessGroupGloo", "is built without gloo"),
        ("torch._C._c10d_init", "is built without torch.distributed"),
    ],
)
def test_torch_that_is_built_without_its_backend_is_told_so(
    monkeypatch: pytest.MonkeyPatch, lacks: str, said: str
) -> None:
    """No attribute error, of which nobody reads what is to be done."""
    from envaudit.checks.collectives.abilities import Abilities

    monkeypatch.delattr(lacks)
    with pytest.raises(Unusable, match=said):
        Abilities("gloo", "cpu", 10)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rank": 2}, "outside its world"),
        ({"rank": -1}, "outside its world"),
        ({"purpose": "fun"}, "unknown purpose"),
        ({"plan": {"sizes": [0]}}, "a size"),
    ],
)
def test_task_that_is_none_is_refused(change: Dict[str, Any], said: str) -> None:
    """Before anything is joined."""
    task = {
        "rank": 0,
        "world": 2,
        "device": "cpu",
        "backend": "gloo",
        "store": ["127.0.0.1", 1],
        "plan": {},
        "budget_s": 5,
    }
    assert 0 == Task.from_json(task).rank
    with pytest.raises(ValueError, match=said):
        Task.from_json({**task, **change})
