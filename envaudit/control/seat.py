"""A place in a run, which is known long before anybody meets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Seat:
    """A supervisor's place in a run.

    Attributes:
        index: its number; 0 runs the hub.
        count: how many there are.
        host: where the hub is, as all of them were told.
        port: likewise.
        node: the name of the supervisor's node.
    """

    index: int
    count: int
    host: str
    port: int
    node: str
