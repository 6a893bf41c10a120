"""What only follows from an error of the same node is no finding beside it."""

from __future__ import annotations

import pytest

from envaudit.model import Finding
from envaudit.rules.symptoms import without_symptoms


def finding(rule: str, severity: str, message: str, *nodes: str) -> Finding:
    """A finding about some nodes."""
    return Finding(rule, severity, message, nodes)


UNUSABLE = finding("EA503", "error", "torch cannot use the device", "node02", "node03")
BUSY = finding("EA504", "incomplete", "3 operations not run: the GPU is busy: python", "node03")


def test_node_with_an_old_driver_is_told_once_and_the_other_still() -> None:
    """Torch cannot use the device of node02 for a reason that nobody knows."""
    left = without_symptoms([finding("EA330", "error", "the driver is 535", "node03"), UNUSABLE])
    assert [("EA330", ("node03",)), ("EA503", ("node02",))] == [(each.rule, each.nodes) for each in left]


def test_kernels_that_wait_for_a_busy_gpu_go_with_the_error_that_says_so() -> None:
    """In a gate a busy GPU is an error."""
    taken = finding("EA320", "error", "GPU 3 is in use already", "node03")
    assert [taken] == without_symptoms([taken, BUSY])


@pytest.mark.parametrize("severity", ["info", "warning"])
def test_missing_evidence_never_goes_with_what_lets_a_run_pass(severity: str) -> None:
    """Elsewhere a busy GPU is a remark, and what was not tested stays a gap."""
    taken = finding("EA320", severity, "GPU 3 is in use already", "node03")
    assert [taken, BUSY] == without_symptoms([taken, BUSY])


def test_gap_for_another_reason_stays() -> None:
    """The budget was over: nobody else has said that."""
    late = finding("EA504", "incomplete", "3 operations not run: the budget of 30 s was over", "node03")
    taken = finding("EA320", "error", "GPU 3 is in use already", "node03")
    assert [taken, late] == without_symptoms([taken, late])
