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
def two(tmp_path: Path) -> Iterator[Launch]:
    """Two supervisors of one rank each: enough to tell a culprit from a victim."""
    with Launch(tmp_path, 2) as launch:
        yield launch


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


def test_worker_that_is_killed_is_named_within_a_second(two: Launch) -> None:
    """Its peers complain of a closed connection: they are victims."""
    two.start_all()
    began = two.await_collectives()
    (worker,) = two.workers(1)
    os.kill(worker, signal.SIGKILL)
    result = two.result(0)
    assert time.monotonic() - began < 4
    assert ("exit", [1], ["node01"], [0]) == brief(result)
    assert "SIGKILL" in result["ended"]["text"]
    assert result == two.result(1)
    assert [] == two.left_after()


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


def test_first_supervisor_that_is_killed_leaves_the_other_a_result_of_its_own(two: Launch) -> None:
    """The hub goes with it."""
    two.start_all()
    two.await_collectives()
    began = time.monotonic()
    two.processes[0].kill()
    result = two.result(1)
    assert time.monotonic() - began < 4
    assert ("hub_lost", ["node00"]) == (result["ended"]["kind"], result["ended"]["nodes"])
    assert [] == two.left_after()


def test_stopped_worker_is_silent(two: Launch) -> None:
    """Nobody complains; its heartbeat is what is missing."""
    two.start_all()
    two.await_collectives()
    began = time.monotonic()
    (worker,) = two.workers(1)
    os.kill(worker, signal.SIGSTOP)
    result = two.result(0)
    assert 2.5 < time.monotonic() - began < 7
    assert ("silent", [1], ["node01"], [0]) == brief(result)
    assert result == two.result(1)
    assert [] == two.left_after()


def test_stopped_supervisor_is_silent_and_the_others_end(two: Launch) -> None:
    """Its port is open still, so that its node is there: what has stopped is the process."""
    two.start_all()
    two.await_collectives()
    began = time.monotonic()
    stopped = two.processes[1]
    os.kill(stopped.pid, signal.SIGSTOP)
    result = two.result(0)
    assert 2.5 < time.monotonic() - began < 12
    # Its rank goes on for a while: the other may have come through.
    assert ("silent", [1], ["node01"]) == brief(result)[:3]
    assert "its process has stopped" in result["ended"]["text"]
    os.kill(stopped.pid, signal.SIGCONT)
    assert two.result(1)["ended"]["kind"] in ("silent", "hub_lost")
    assert [] == two.left_after()


def test_first_supervisor_that_is_stopped_is_told_from_a_dead_network(two: Launch) -> None:
    """The other ends by itself: the hub's port is open, and nothing comes from it."""
    two.start_all()
    two.await_collectives()
    os.kill(two.processes[0].pid, signal.SIGSTOP)
    result = two.result(1)
    assert ("hub_lost", ["node00"]) == (result["ended"]["kind"], result["ended"]["nodes"])
    assert "its process has stopped" in result["ended"]["text"]
    os.kill(two.processes[0].pid, signal.SIGKILL)
    assert [] == two.left_after()


def test_rank_that_hangs_in_python_is_stuck_though_its_heart_beats(two: Launch) -> None:
    """It has entered fewer collectives than the others."""
    two.start_all({1: "hang"})
    two.await_collectives()
    began = time.monotonic()
    result = two.result(0)
    assert 2.5 < time.monotonic() - began < 7
    assert ("stuck", [1], ["node01"], [0]) == brief(result)
    assert [] == two.left_after()


def test_exception_is_told_with_its_text_and_by_no_other_rank(two: Launch) -> None:
    """The others' connections break, and that is not their fault."""
    two.start_all({1: "raise"})
    two.await_collectives()
    began = time.monotonic()
    result = two.result(0)
    assert time.monotonic() - began < 4
    assert ("error", [1], ["node01"], [0]) == brief(result)
    assert "illegal memory access" in result["ended"]["text"]
    assert [] == two.left_after()


def test_wrong_interface_at_one_rank_is_an_error_of_that_rank(two: Launch) -> None:
    """Gloo finds no address for the name, at that rank alone."""
    for index in range(2):
        two.start(index, environ={"GLOO_SOCKET_IFNAME": "nosuch0" if index == 1 else "lo"})
    result = two.result(0)
    assert ("error", [1], ["node01"], [0]) == brief(result)
    assert "nosuch0" in result["ended"]["text"]
    assert [] == two.left_after()


def test_deadline_ends_a_run_that_goes_on(two: Launch) -> None:
    """Nobody is at fault; what did not come to its end was not run."""
    two.limits["total_s"] = 6.0
    two.plan["repeats"] = 100
    began = time.monotonic()
    two.start_all()
    result = two.result(0)
    assert time.monotonic() - began < 12
    assert ("deadline", [], [], [0, 1]) == brief(result)
    assert len(result["cases"]) < 10
    assert result == two.result(1)
    assert [] == two.left_after()


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
