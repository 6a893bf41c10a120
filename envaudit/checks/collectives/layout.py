"""What a supervisor brings to a run, and how long what may last."""

from __future__ import annotations

from typing import Any, Dict, Mapping, NamedTuple, Tuple

from envaudit.checks.collectives import sound


class Layout(NamedTuple):
    """The ranks of one supervisor.

    Attributes:
        local_ranks: how many workers it starts.
        ranks: theirs, where the launcher dealt them; empty where the hub does, in order of index.
        world: how many ranks the launcher says there are; 0 where it says nothing.
        local_rank: the first worker's number on its node, where a launcher starts one process a rank.
        devices: "cuda:3" or "cpu" for each worker; empty for the CPU.
        names: nodes by index, where the caller knows who should come; they name who is missing.
    """

    local_ranks: int = 1
    ranks: Tuple[int, ...] = ()
    world: int = 0
    local_rank: int = 0
    devices: Tuple[str, ...] = ()
    names: Tuple[str, ...] = ()

    def to_json(self) -> Dict[str, Any]:
        """Without the names, which the hub has from its own caller."""
        return {
            "local_ranks": self.local_ranks,
            "ranks": list(self.ranks),
            "world": self.world,
            "local_rank": self.local_rank,
            "devices": list(self.devices),
        }

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Layout:
        """The inverse of `to_json`.

        Raises:
            TypeError, ValueError, KeyError: it is none, or more than a node can have.
        """
        made = cls(
            local_ranks=int(row["local_ranks"]),
            ranks=tuple(int(rank) for rank in row["ranks"]),
            world=int(row["world"]),
            local_rank=int(row["local_rank"]),
            devices=tuple(sound.devices(row["devices"])),
        )
        if not 0 < made.local_ranks <= 1024 or not 0 <= made.world <= 1 << 20:
            raise ValueError("a layout out of bounds")
        if len(made.ranks) not in (0, made.local_ranks) or len(made.devices) not in (0, made.local_ranks):
            raise ValueError("a layout whose lists are not one a worker")
        return made


class Limits(NamedTuple):
    """How long what may last, in seconds.

    Attributes:
        join_s: until all supervisors are at the hub.
        start_s: until all workers are in their process group.
        stall_s: silence or standing still of a worker that has been heard.
        total_s: from the first worker's start to the result, naming included; then SIGKILL.
        door_s: a connection between two nodes that takes longer counts as refused.
    """

    join_s: float = 60.0
    start_s: float = 60.0
    stall_s: float = 10.0
    total_s: float = 120.0
    door_s: float = 5.0
