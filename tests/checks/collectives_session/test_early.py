"""When ranks are started: at once on a machine alone, after the nodes have agreed where there are several."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import List, Mapping

import pytest

from envaudit.checks.collectives.asked import LOOPBACK, Asked
from envaudit.checks.collectives.layout import Layout
from envaudit.checks.collectives.supervising import Machine, supervise_ranks
from envaudit.checks.supervise import Started
from envaudit.control.seat import Seat

MACHINE = Machine(Started(interpreter=sys.executable, environ=dict(os.environ)), (), {})


class FactsAreAsked(Exception):
    """What comes of asking for the facts here: nothing else is run."""


@pytest.mark.parametrize(
    ("asked", "expected"), [(Asked(), 2), (Asked(kernels=True), 0), (Asked(mtu=True), 0)]
)
def test_ranks_on_one_machine_are_started_before_its_facts_are_gathered(asked: Asked, expected: int) -> None:
    """Torch is imported meanwhile, unless something else is run first; none is left where that fails."""
    started = ranks_while_facts_are_asked(asked)

    assert started == expected
    assert ranks() == []


def test_ranks_of_one_node_of_two_are_not_started_before_the_nodes_agree() -> None:
    """What would hang or crash is named first."""
    assert ranks_while_facts_are_asked(Asked(seat=Seat(0, 2, LOOPBACK, 0, "node01"))) == 0


def ranks_while_facts_are_asked(asked: Asked) -> int:
    """How many there are then."""
    found: List[int] = []

    def facts() -> Mapping[str, object]:
        found.extend(ranks())
        raise FactsAreAsked

    with pytest.raises(FactsAreAsked):
        supervise_ranks(asked, Layout(local_ranks=2), facts, MACHINE)
    return len(found)


def ranks() -> List[int]:
    """Children of this process that were started as ranks."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except (OSError, IndexError):
            continue  # it ended meanwhile
        if parent == os.getpid() and b"envaudit.checks.collectives.rank" in words:
            found.append(int(folder.name))
    return found
