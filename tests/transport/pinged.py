"""A node that gives a good answer and then meets its pings as MODE says, as the program of an exec command.

`command = "<python> pinged.py MODE {node} {python}"`. PROVENANCE: hand-made; the modes are what a node
may do with pings that it could not do with a frame.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Callable, Dict, Iterator

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from tests.transport import pretender
from tests.transport.pretender import Node, say

PONG = b"@envaudit-pong %d %s\n"
AHEAD_NS = 3_200_000_000


def pings() -> Iterator[bytes]:
    """The words of the pings, until standard input closes."""
    while word := os.read(0, 64).strip():
        yield word


def honest(ahead_ns: int = 0) -> None:
    """Says what its clock says."""
    for word in pings():
        say(PONG % (time.time_ns() + ahead_ns, word))


def ahead() -> None:
    """Has a clock that is 3.2 seconds ahead."""
    honest(AHEAD_NS)


def noisy() -> None:
    """Chats between its answers, on both streams."""
    for word in pings():
        os.write(2, b"warning: load is high\n")
        say(b"[user@node ~]$ ", PONG % (time.time_ns(), word), b"bye\r\n\xff\xfe\n")


def stepping() -> None:
    """Sets its clock by a second each time."""
    for number, word in enumerate(pings()):
        say(PONG % (time.time_ns() + number * 1_000_000_000, word))


def silent() -> None:
    """Does not answer, and does not leave."""
    time.sleep(600)


def leaving() -> None:
    """Is gone with its answer."""


def flooding() -> None:
    """Babbles without end."""
    for _ in range(300):
        say(b"y\n" * 500_000)


def absurd() -> None:
    """Lives at the end of time."""
    for word in pings():
        say(b"@envaudit-pong " + b"9" * 400 + b" " + word + b"\n")


def replaying() -> None:
    """Answers every ping with the word of the first."""
    first = next(pings())
    say(PONG % (time.time_ns(), first))
    for _ in pings():
        say(PONG % (time.time_ns(), first))


def guessing() -> None:
    """Answers before it was asked, with words it cannot know."""
    say(*(PONG % (time.time_ns(), b"%016x" % number) for number in range(1000)))
    honest(AHEAD_NS)


MODES: Dict[str, Callable[[], None]] = {
    each.__name__: each
    for each in (honest, ahead, noisy, stepping, silent, leaving, flooding, absurd, replaying, guessing)
}


def main() -> None:
    """Answer, then play the part that the first argument names."""
    mode, name, python = sys.argv[1:4]
    node = Node(name, python)
    # Unbuffered, for what comes after the payload is read from the descriptor.
    line = b""
    while not line.endswith(b"\n"):
        line += os.read(0, 1)
    node.header = json.loads(line)
    left = node.header["size"]
    while left:
        left -= len(os.read(0, min(left, 65536)))
    section = dict(pretender.SECTION, name="clock", facts={"service": "chrony", "synchronised": True})
    answer = dict(pretender.GOOD["answer"], sections=[section])  # type: ignore[call-overload]
    say(*node.frames(json.dumps({"schema": 1, "answer": answer}).encode()))
    MODES[mode]()


if __name__ == "__main__":
    main()
