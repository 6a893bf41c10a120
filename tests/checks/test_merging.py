"""Sections of one node that several processes made, as one."""

from __future__ import annotations

from envaudit.checks.merging import merged
from envaudit.checks.plan import Plan
from envaudit.checks.section import facts_of_runs, notes_of_runs
from envaudit.checks.supervise import DeviceRun
from envaudit.probe import runner
from tests.rules.checked import GEMM, MISMATCH, gpu, outcomes


def section(*runs: DeviceRun) -> tuple[dict[str, object], dict[str, object]]:
    """What one process tells of its devices."""
    return facts_of_runs(runs, Plan()), notes_of_runs(runs, (), ())


def test_devices_of_eight_processes_are_those_of_one() -> None:
    """Also where one of them is wrong."""
    bad = outcomes(status="wrong", reason="1 of 50 repeats differ", wrong_repeats=1, mismatch=MISMATCH)
    runs = [gpu(ordinal, bad if ordinal == 3 else None) for ordinal in range(8)]
    facts, notes = merged([section(run) for run in runs])
    assert section(*runs) == (facts, notes)
    assert {"3"} == set(facts["devices"])
    assert "wrong" == facts["devices"]["3"]["cases"][GEMM]["status"]


def test_device_that_cannot_be_used_is_told_of_all() -> None:
    """One process knows of it."""
    broken = gpu(1)
    broken.unusable = "no kernel image"
    facts, _ = merged([section(gpu(0)), section(broken)])
    assert ("no kernel image", 2) == (facts["usable"], facts["count"])


def test_kernels_are_read_behind_the_collectives_in_whose_course_they_run() -> None:
    """In the same process, for a second one would run them once more."""
    chains = runner._chains(["checks", "collectives", "host", "network"])
    assert [["collectives", "checks"]] == [chain for chain in chains if "checks" in chain]
    assert ["checks"] in runner._chains(["checks", "host"])
