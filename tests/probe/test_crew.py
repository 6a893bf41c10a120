"""Processes that share work: every piece is done once, however many can wait, and whoever dies."""

from __future__ import annotations

import os
from typing import Iterator, List

from envaudit.probe.crew import Crew, processes


def test_processes_are_bounded() -> None:
    """One for each processor that may be used, never more than eight."""
    assert min(8, len(os.sched_getaffinity(0))) == processes()


def _done_by(crew: Crew, count: int) -> List[int]:
    pieces: Iterator[int] = iter(range(count))
    held: List[bytes] = []

    def give() -> bool:
        while True:
            if not held:
                number = next(pieces, None)
                if number is None:
                    return False
                held.append(number.to_bytes(8, "big"))
            if not crew.give(held[0]):
                return True
            held.clear()

    return [int(line) for line in crew.answers(give)]


def test_every_piece_is_answered_once() -> None:
    """More pieces than a pipe holds, with answers that fill the others: nobody waits for the other."""

    def answer(piece: bytes) -> bytes:
        return b"%0200d" % int.from_bytes(piece, "big")

    with Crew(answer, 8, 3, 30.0) as crew:
        assert list(range(50_000)) == sorted(_done_by(crew, 50_000))
        assert 0 == len(crew)


def test_process_that_is_ended_leaves_the_rest_to_the_others() -> None:
    """Its own piece, and what it had not said yet, are all that is not answered."""

    def answer(piece: bytes) -> bytes:
        number = int.from_bytes(piece, "big")
        if number == 500:
            os._exit(1)
        return b"%d" % number

    with Crew(answer, 8, 2, 30.0) as crew:
        started = len(crew)
        done = set(_done_by(crew, 5000))
    assert 500 not in done
    assert 4999 in done or started < 2


def test_waiting_pieces_are_counted() -> None:
    """What no process has taken yet."""
    with Crew(lambda piece: b"", 8, 0, 30.0) as nobody:
        assert 0 == len(nobody)
    reading, writing = os.pipe()

    def answer(piece: bytes) -> bytes:
        os.read(reading, 1)
        return b"done"

    try:
        with Crew(answer, 8, 1, 30.0) as crew:
            assert all(crew.give(bytes(8)) for _ in range(5))
            while crew.waiting() > 4:
                pass
            assert 4 == crew.waiting()
            os.write(writing, bytes(5))
            assert 5 == len(list(crew.answers(lambda: False)))
    finally:
        os.close(reading)
        os.close(writing)
