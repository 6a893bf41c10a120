"""Every way in which a run ends early, with real gloo between real workers on the loopback interface."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.checks.collectives_session.launch_of import Launch

pytestmark = pytest.mark.skipif(
    find_spec("torch") is None, reason="needs torch beside the tests: nox -s checks"
)


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Launch]:
    """Three supervisors of one rank each."""
    with Launch(tmp_path, 3) as launch:
        yield launch


def brief(result: dict[str, Any]) -> tuple[str, list[int], list[str], list[int]]:
    """How it ended, who is at fault, where, and whom it took along."""
    ended = result["ended"]
    return ended["kind"], ended["ranks"], ended["nodes"], ended["victims"]


def test_run_of_healthy_nodes_ends_done_with_one_result_for_all(three: Launch) -> None:
    """What comes before the collectives is done on each node, and heartbeats go on meanwhile."""
    three.start_all(before_s=1)
    results = [three.result(index) for index in range(3)]
    assert ("done", [], [], []) == brief(results[0])
    assert results[0] == results[1] == results[2]
    assert 3 == results[0]["world"] == len(results[0]["ranks"])
    assert {"ok"} == {row["status"] for row in results[0]["cases"].values()}
    assert 10 == len(results[0]["cases"])
    assert results[0]["took_ms"]["before"] >= 1000
    assert [] == three.left_after()


def test_worker_that_is_killed_is_named_within_a_second(three: Launch) -> None:
    """Its peers complain of a closed connection: they are victims."""
    three.start_all()
    began = three.await_collectives()
    (worker,) = three.workers(2)
    os.kill(worker, signal.SIGKILL)
    result = three.result(0)
    assert time.monotonic() - began < 4
    assert ("exit", [2], ["node02"], [0, 1]) == brief(result)
    assert "SIGKILL" in result["ended"]["text"]
    assert result == three.result(1) == three.result(2)
    assert [] == three.left_after()


def test_supervisor_that_is_killed_is_lost_with_its_ranks(tmp_path: Path) -> None:
    """Its workers die with it."""
    with Launch(tmp_path, 2, local_ranks=2) as launch:
        launch.start_all()
        launch.await_collectives()
        began = time.monotonic()
        launch.processes[1].kill()
        result = launch.result(0)
        assert time.monotonic() - began < 4
        assert ("lost", [2, 3], ["node01"], [0, 1]) == brief(result)
        assert [] == launch.left_after()


def test_first_supervisor_that_is_killed_leaves_the_others_a_result_of_their_own(three: Launch) -> None:
    """The hub goes with it."""
    three.start_all()
    three.await_collectives()
    began = time.monotonic()
    three.processes[0].kill()
    for index in (1, 2):
        result = three.result(index)
        assert "hub_lost" == result["ended"]["kind"]
        assert ["node00"] == result["ended"]["nodes"]
    assert time.monotonic() - began < 4
    assert [] == three.left_after()


def test_stopped_worker_is_silent(three: Launch) -> None:
    """Nobody complains; its heartbeat is what is missing."""
    three.start_all()
    three.await_collectives()
    began = time.monotonic()
    (worker,) = three.workers(1)
    os.kill(worker, signal.SIGSTOP)
    result = three.result(0)
    assert 2.5 < time.monotonic() - began < 7
    assert ("silent", [1], ["node01"], [0, 2]) == brief(result)
    assert result == three.result(1)
    assert [] == three.left_after()


def test_stopped_supervisor_is_silent_and_the_others_end(three: Launch) -> None:
    """Its port is open still, so that its node is there: what has stopped is the process."""
    three.start_all()
    three.await_collectives()
    began = time.monotonic()
    stopped = three.processes[2]
    os.kill(stopped.pid, signal.SIGSTOP)
    result = three.result(0)
    assert 2.5 < time.monotonic() - began < 12
    assert ("silent", [2], ["node02"]) == brief(result)[:3]
    assert "its process has stopped" in result["ended"]["text"]
    assert result == three.result(1)
    os.kill(stopped.pid, signal.SIGCONT)
    assert three.result(2)["ended"]["kind"] in ("silent", "hub_lost")
    assert [] == three.left_after()


def test_first_supervisor_that_is_stopped_is_told_from_a_dead_network(three: Launch) -> None:
    """The others end by themselves: the hub's port is open, and nothing comes from it."""
    three.start_all()
    three.await_collectives()
    os.kill(three.processes[0].pid, signal.SIGSTOP)
    for index in (1, 2):
        result = three.result(index)
        assert ("hub_lost", ["node00"]) == (result["ended"]["kind"], result["ended"]["nodes"])
        assert "its process has stopped" in result["ended"]["text"]
    os.kill(three.processes[0].pid, signal.SIGKILL)
    assert [] == three.left_after()


def test_rank_that_hangs_in_python_is_stuck_though_its_heart_beats(three: Launch) -> None:
    """It has entered fewer collectives than the others."""
    three.start_all({1: "hang"})
    three.await_collectives()
    began = time.monotonic()
    result = three.result(0)
    assert 2.5 < time.monotonic() - began < 7
    assert ("stuck", [1], ["node01"], [0, 2]) == brief(result)
    assert [] == three.left_after()


def test_exception_is_told_with_its_text_and_by_no_other_rank(three: Launch) -> None:
    """The others' connections break, and that is not their fault."""
    three.start_all({2: "raise"})
    three.await_collectives()
    began = time.monotonic()
    result = three.result(0)
    assert time.monotonic() - began < 4
    assert ("error", [2], ["node02"], [0, 1]) == brief(result)
    assert "illegal memory access" in result["ended"]["text"]
    assert [] == three.left_after()


def test_wrong_interface_at_one_rank_is_an_error_of_that_rank(three: Launch) -> None:
    """Gloo finds no address for the name, at that rank alone."""
    for index in range(3):
        three.start(index, environ={"GLOO_SOCKET_IFNAME": "nosuch0" if index == 1 else "lo"})
    result = three.result(0)
    assert ("error", [1], ["node01"], [0, 2]) == brief(result)
    assert "nosuch0" in result["ended"]["text"]
    assert [] == three.left_after()


def test_deadline_ends_a_run_that_goes_on(three: Launch) -> None:
    """All are well and slow; the total time is what ends them."""
    three.limits["total_s"] = 8.0
    three.plan["repeats"] = 100
    three.start_all()
    began = three.await_collectives()
    result = three.result(0)
    assert time.monotonic() - began < 12
    assert ("deadline", [], [], [0, 1, 2]) == brief(result)
    assert {"not_run"} <= {row["status"] for row in result["cases"].values()} | {"not_run"}
    assert [] == three.left_after()


def test_rank_that_stays_away_from_a_collective_is_found_in_pairs(tmp_path: Path) -> None:
    """All have entered and none comes out: the pairs with that rank do not either."""
    with Launch(tmp_path, 3) as launch:
        launch.start_all({1: "away"})
        launch.await_collectives()
        result = launch.result(0)
        assert ("network", [1], ["node01"], [0, 2]) == brief(result)
        (suspect,) = result["suspects"]
        assert ([1], True) == (suspect["ranks"], suspect["sure"])
        assert {"0-2"} == set(result["figures"]["links"])
        assert [] == launch.left_after()


def test_rank_whose_sums_are_wrong_is_named_and_the_run_is_whole(three: Launch) -> None:
    """The run ends as it should, and what it says is that one rank computes wrong sums."""
    three.start_all({2: "wrong"})
    result = three.result(0)
    assert ("done", [], [], []) == brief(result)
    wrong = {name: row for name, row in result["cases"].items() if row["status"] == "wrong"}
    assert 8 == len(wrong)
    assert [[2]] * 8 == [row["wrong_ranks"] for row in wrong.values()]
    assert [["node02"]] == [suspect["nodes"] for suspect in result["suspects"]]
    assert [] == three.left_after()
