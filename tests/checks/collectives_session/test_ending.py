"""The cause of an end as a function of what was seen, at the edges that real processes seldom reach."""

from __future__ import annotations

from typing import Any

import pytest

from envaudit.checks.collectives.ending import (
    IMPORTED,
    NO_TORCH,
    OTHER_CALLS,
    STARTING,
    Ending,
    Sight,
    Times,
    judge,
    members_text,
    of_peer,
)
from envaudit.checks.collectives.watching import Round
from envaudit.checks.piped import how_it_ended

NOW = 1000.0
TIMES = Times(start_s=60.0, stall_s=3.0)


def sight(rank: int, **seen: Any) -> Sight:
    """A rank that is well: in its 16th collective, heard and moving just now."""
    usual: dict[str, Any] = {
        "entered": 16,
        "finished": 15,
        "at": "all_reduce/sum/fp32/1021+0",
        "heard_at": NOW - 0.2,
        "moved_at": NOW - 0.1,
        "supervisor_heard_at": NOW - 0.2,
    }
    return Sight(rank, f"node{rank:02d}", **{**usual, **seen})


def named(*sights: Sight) -> tuple[str, tuple[int, ...], tuple[int, ...]] | None:
    """Kind, culprits and victims."""
    ending = judge(sights, NOW, TIMES)
    return None if ending is None else (ending.kind, ending.ranks, ending.victims)


def test_ranks_that_move_have_no_ending() -> None:
    """Neither have those that are slow, for less than the stall's time."""
    assert named(sight(0), sight(1), sight(2)) is None
    assert named(sight(0, moved_at=NOW - 2.5), sight(1, moved_at=NOW - 2.5)) is None


PEER = "DistBackendError: Connection closed by peer [10.0.0.3]:4242"


def test_process_that_ended_comes_before_everything_that_others_say() -> None:
    """A killed rank, a complaining one, one that is silent and one that stands."""
    dead = sight(3, exit="its process was ended by SIGKILL")
    others = (sight(0, error=PEER), sight(1, heard_at=NOW - 9), sight(2, entered=15, moved_at=NOW - 9))
    assert ("exit", (3,), (0, 1, 2)) == named(*others, dead)


def test_process_that_ends_as_its_collectives_begin_is_not_said_to_be_in_what_came_before() -> None:
    """Its last heartbeat was in the rendezvous; since then it has told that its group stands."""
    now = Round(1, [(0, 1)], {0: "n0", 1: "n1"}, set(), NOW)
    now.take("col.progress", {"round": 1, "at": {"0": [1, 0, 0, "rendezvous"]}}, NOW, (0,))
    now.take("col.said", {"round": 1, "key": 0, "lines": [{"ready": 800}]}, NOW, (0,))
    gone = {"round": 1, "key": 0, "exit": how_it_ended(-9), "aborted": False, "stderr": ""}
    now.take("col.gone", gone, NOW, (0,))
    ending = judge(now.sights(), NOW, TIMES)
    assert ending is not None
    why = "its process was ended by SIGKILL (the kernel sends it when memory runs out)"
    assert f"{why} as its collectives began" == ending.text


def test_supervisor_that_left_comes_before_its_workers_and_theirs() -> None:
    """Whatever else was seen of the ranks."""
    gone = [sight(rank, lost="its connection ended") for rank in (2, 3)]
    assert ("lost", (2, 3), (0, 1)) == named(sight(0, exit="SIGABRT", aborted=True), sight(1), *gone)


def test_abort_by_a_library_whose_peer_is_gone_is_loud_not_dead() -> None:
    """NCCL's watchdog ends the processes of victims: the rank with an exception of its own is the cause."""
    aborted = sight(0, exit="SIGABRT", aborted=True, stderr="Watchdog caught collective operation timeout")
    own = sight(1, error="RuntimeError: CUDA error: an illegal memory access was encountered")
    assert ("error", (1,), (0,)) == named(aborted, own)


def test_abort_for_a_reason_of_its_own_is_an_exit() -> None:
    """A failed assertion is nobody else's."""
    assert ("exit", (0,), (1,)) == named(
        sight(0, exit="SIGABRT", aborted=True, stderr="malloc(): corrupted top size"), sight(1, error=PEER)
    )


def test_exception_of_its_own_comes_before_those_about_peers() -> None:
    """Two ranks may have one each."""
    errors = [sight(0, error=PEER), sight(1, error="ValueError: no"), sight(2, error="ValueError: no")]
    assert ("error", (1, 2), (0,)) == named(*errors)


def test_first_rank_is_the_odd_one_where_most_take_other_calls_than_it() -> None:
    """Each of them was held against it; of two ranks nobody knows."""
    told = f"gloo here {OTHER_CALLS}: all_reduce/sum/e4m3"
    assert ("error", (0,), (1, 2)) == named(sight(0), sight(1, error=told), sight(2, error=told))
    assert ("error", (2,), (0, 1)) == named(sight(0), sight(1), sight(2, error=told))
    assert ("error", (1,), (0,)) == named(sight(0), sight(1, error=told))


def starting(rank: int, **seen: Any) -> Sight:
    """A rank whose process is there and has said nothing of torch yet."""
    return sight(rank, **{"entered": STARTING, "finished": 0, "at": "torch", "heard_at": 0.0, **seen})


def test_torch_that_no_rank_has_is_nothing_to_test_and_nobody_s_fault() -> None:
    """As kernels that cannot run."""
    assert ("not_tested", (), ()) == named(*(starting(rank, error=NO_TORCH) for rank in range(3)))


def test_torch_that_one_rank_lacks_is_its_error_once_the_others_have_it() -> None:
    """Until they have told whether they have it, and no longer than their start may take."""
    lacking = starting(1, error=NO_TORCH)
    assert named(starting(0), lacking) is None
    assert ("error", (1,), (0,)) == named(starting(0, entered=IMPORTED), lacking)
    assert ("error", (1,), (0,)) == named(starting(0, moved_at=NOW - 61), lacking)


def test_heartbeat_that_stopped_is_silence() -> None:
    """A supervisor that is not heard covers all of its ranks, moving or not."""
    assert ("silent", (1,), (0,)) == named(sight(0), sight(1, heard_at=NOW - 3.1))
    assert ("silent", (1,), (0,)) == named(sight(0), sight(1, supervisor_heard_at=NOW - 3.1))


def test_silence_counts_only_after_the_first_heartbeat() -> None:
    """And while torch is imported, which holds the interpreter's lock, only after the start's time."""
    assert named(sight(0), sight(1, heard_at=0.0, entered=STARTING)) is None
    assert named(sight(0), sight(1, heard_at=NOW - 30, entered=STARTING)) is None
    assert ("silent", (1,), (0,)) == named(sight(0), sight(1, heard_at=NOW - 61, entered=STARTING))


STOOD = {"moved_at": NOW - 3.1}


def test_rank_that_entered_fewest_is_stuck() -> None:
    """Though its heart beats; a peer that complains meanwhile is a victim."""
    behind = sight(2, entered=15, **STOOD)
    assert ("stuck", (2,), (0, 1)) == named(sight(0, **STOOD), sight(1, error=PEER, **STOOD), behind)


def test_rank_between_its_last_collective_and_its_end_is_stuck() -> None:
    """The others are through."""
    last = sight(1, finished=16, **STOOD)
    assert ("stuck", (1,), ()) == named(sight(0, through=True, **STOOD), last)


def test_all_that_stand_between_two_collectives_had_too_little_time() -> None:
    """No rank is behind another, so none is at fault; it is no pass either."""
    assert ("deadline", (), (0, 1)) == named(sight(0, finished=16, **STOOD), sight(1, finished=16, **STOOD))


def test_all_in_one_collective_without_an_end_is_the_network() -> None:
    """Nobody is named: pairs of ranks will tell."""
    assert ("network", (), (0, 1)) == named(sight(0, **STOOD), sight(1, **STOOD))


def test_all_that_complain_of_each_other_are_the_network_at_once() -> None:
    """A refused connection needs no patience."""
    ending = judge([sight(rank, error=PEER, entered=IMPORTED) for rank in range(2)], NOW, TIMES)
    assert isinstance(ending, Ending)
    assert ("network", ()) == (ending.kind, ending.ranks)
    assert "while the process group was made" in ending.text
    assert PEER in ending.text


def test_rank_without_torch_while_others_wait_is_stuck_after_the_start_s_time() -> None:
    """The group is made when the last one comes."""
    waits = {"entered": IMPORTED, "moved_at": NOW - 50}
    late = sight(1, entered=STARTING, moved_at=NOW - 60)
    assert named(sight(0, **waits), late) is None
    waits["moved_at"] = NOW - 61
    late = late._replace(moved_at=NOW - 61)
    assert ("stuck", (1,), (0,)) == named(sight(0, **waits), late)


def test_all_that_never_import_torch_are_stuck_and_not_the_network() -> None:
    """They have not talked to each other yet."""
    ending = judge([sight(rank, entered=STARTING, moved_at=NOW - 61) for rank in range(2)], NOW, TIMES)
    assert isinstance(ending, Ending)
    assert ("stuck", (0, 1)) == (ending.kind, ending.ranks)
    assert "torch imported" in ending.text


@pytest.mark.parametrize(
    "text",
    [
        "[../gloo/transport/tcp/pair.cc:538] Connection closed by peer [127.0.0.1]:13029",
        "Gloo connectFullMesh failed with [../gloo/transport/tcp/pair.cc:144] no error",
        "NCCL error: remote process exited or there was a network error, ncclRemoteError: A call failed",
        "DistStoreError: wait timeout after 60000ms, keys: /default_pg/0//cpu//0/1",
        "recvValue failed on SocketImpl(fd=3): Connection reset by peer",
    ],
)
def test_words_of_victims_are_known(text: str) -> None:
    """As gloo, NCCL and the store write them."""
    assert of_peer(text)


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB",
        "RuntimeError: Unable to find address for: nosuch0",
        "ncclUnhandledCudaError: Call to CUDA function failed",
        "ncclSystemError: Error while creating shared memory segment: No space left on device",
    ],
)
def test_words_of_culprits_are_no_victim_s(text: str) -> None:
    """They speak of the rank itself."""
    assert not of_peer(text)


def test_those_who_came_and_those_who_did_not_are_told_in_a_line_of_bounded_length() -> None:
    """By name where it is known."""
    there = {index: f"n{index}" for index in range(1000) if index != 7}
    text = members_text(there, 1002, [f"n{index}" for index in range(1001)])
    assert text.startswith("999 of 1002 came to the hub (n0, n1, ")
    assert text.endswith("missing: n7, n1000, 1001")
    assert len(text) < 200
