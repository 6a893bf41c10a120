"""A process of a Slurm step that never came is called by its node where all others bear that out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from envaudit.cli.seat import InBand
from envaudit.cli.stepnodes import missing_of, nodes_by_index

STEP = {"SLURM_STEP_NODELIST": "gpu[01-03]", "SLURM_STEP_TASKS_PER_NODE": "2(x3)"}
SRUN = InBand("srun", 0, 6, "gpu01", "10.0.0.1", 29501)
DEALT = ("gpu01", "gpu01", "gpu02", "gpu02", "gpu03", "gpu03")
CAME = {0: "gpu01", 1: "gpu01", 2: "gpu02", 3: "gpu02"}
WHERE = "10.0.0.1:29501 in 60 s"


def test_tasks_of_a_step_are_dealt_to_its_nodes_in_order() -> None:
    """As many to each as Slurm says; torchrun starts as many on each."""
    assert DEALT == nodes_by_index(SRUN, STEP, CAME)
    assert DEALT == nodes_by_index(replace(SRUN, launcher="torchrun"), STEP, CAME)
    uneven = {**STEP, "SLURM_STEP_TASKS_PER_NODE": "1,4,1"}
    assert ("gpu01", *4 * ["gpu02"], "gpu03") == nodes_by_index(SRUN, uneven, {0: "gpu01", 4: "gpu02"})


@pytest.mark.parametrize(
    ("environ", "came"),
    [
        (STEP, {0: "gpu01", 1: "gpu02"}),
        (STEP, {0: "login"}),
        ({}, CAME),
        ({**STEP, "SLURM_STEP_NODELIST": "gpu[01-"}, CAME),
        ({**STEP, "SLURM_STEP_NODELIST": "rack[1-3]n[1-2]"}, CAME),
        ({**STEP, "SLURM_STEP_TASKS_PER_NODE": ""}, CAME),
        ({**STEP, "SLURM_STEP_TASKS_PER_NODE": "2(x2)"}, CAME),
    ],
    ids=["cyclic", "other names", "no Slurm", "half a list", "two brackets", "no counts", "too few"],
)
def test_nodes_of_a_step_are_not_guessed(environ: dict[str, str], came: dict[int, str]) -> None:
    """A wrong name would send somebody to a healthy machine."""
    assert () == nodes_by_index(SRUN, environ, came)


def test_node_none_of_whose_processes_came_is_missing_once() -> None:
    """It counts once for --allow-missing too; a process of a node that has answered is told as a process."""
    found = missing_of([3, 4, 5], DEALT, {0: "gpu01", 1: "gpu01", 2: "gpu02"}, WHERE)
    assert {
        "rank3": f"it of gpu02 never came to {WHERE}; there were gpu01, gpu02",
        "gpu03": f"none of its 2 processes came to {WHERE}; there were gpu01, gpu02",
    } == {label: gone.why for label, gone in found.items()}
    assert ["rank4", "rank5"] == list(missing_of([4, 5], (), CAME, WHERE))
