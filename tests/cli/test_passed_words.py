"""What the last line of a gate that passes says it has seen, and no more than that."""

from __future__ import annotations

from typing import Sequence

import pytest

from envaudit.cli.judging import Judged, passed_words
from envaudit.model import Drift, Finding, Fingerprint, Missing, Verdict
from envaudit.model.drift import Group
from envaudit.report import SetAside
from envaudit.rules import Evidence
from tests.diff.nodes import fingerprint
from tests.rules.checked import GEMM, checked, gpu, outcomes
from tests.rules.collectiveruns import SUM, result, telling

DRIFT = Drift(
    "env/nccl/NCCL_ALGO/value", "changed", (Group("Ring", ("a",)), Group("Tree", ("b",))), (), "none"
)
FINDING = Finding("EA451", "error", "NCCL_ALGO differs", ("b",), drifts=(DRIFT,))


def words(
    *nodes: Fingerprint,
    missing: Sequence[str] = (),
    findings: Sequence[Finding] = (),
    aside: Sequence[Finding] = (),
    locked: bool = False,
    like: str = "",
) -> str:
    """The words for these nodes."""
    evidence = Evidence(
        nodes, missing={name: Missing("timeout", "no answer") for name in missing}, comparing=True
    )
    set_aside = tuple(SetAside(each, "policy", "switched off by the policy") for each in aside)
    found = Judged(tuple(findings), Verdict.of(findings), (), set_aside)
    return passed_words(evidence, found, locked=locked, like=like)


def test_nodes_that_were_compared_are_alike() -> None:
    """The plain case."""
    assert "2 nodes, alike, no numbers checked" == words(fingerprint("a"), fingerprint("b"))


def test_node_that_is_left_alone_is_like_nobody() -> None:
    """The others are allowed to be missing; nothing was compared."""
    assert "1 of 3 nodes, no numbers checked" == words(fingerprint("a"), missing=["b", "c"])
    assert "1 of 2 nodes, as locked, like good, no numbers checked" == words(
        fingerprint("a"), missing=["b"], locked=True, like="good"
    )


def test_difference_that_the_policy_takes_out_is_still_one() -> None:
    """What does not count is there all the same."""
    nodes = fingerprint("a"), fingerprint("b")
    assert "2 nodes, alike but for 1 difference, no numbers checked" == words(*nodes, aside=[FINDING])
    assert "2 nodes, like good but for 1 difference, no numbers checked" == words(
        *nodes, aside=[FINDING], like="good"
    )


def test_difference_that_goes_with_what_is_wrong_with_a_node_is_still_one() -> None:
    """A finding of one node has no difference of its own."""
    finding = Finding("EA326", "warning", "0 of 8 GPUs visible", ("b",), following=(DRIFT,))
    expected = "2 nodes, alike but for 1 difference, no numbers checked, 1 warning"
    assert expected == words(fingerprint("a"), fingerprint("b"), findings=[finding])


@pytest.mark.parametrize(
    ("status", "expected"),
    [("ok", "numbers right"), ("wrong", "not all numbers right"), ("not_run", "no numbers checked")],
)
def test_numbers_are_right_where_some_were_tried_and_all_of_them_are(status: str, expected: str) -> None:
    """A wrong one passes where somebody has waived it."""
    found = {GEMM: outcomes(status=status, reason="because")[GEMM]}
    assert f"1 node, {expected}" == words(checked("a", gpu(0, found)))


def test_collectives_are_told_apart_from_numbers_of_one_device() -> None:
    """Of how many ranks, where they came to their end and one of them was run."""
    assert "2 nodes, alike, collectives of 2 ranks right" == words(*telling(result()))
    nothing = result(cases={SUM: {"status": "not_run", "wrong_ranks": []}})
    assert "2 nodes, alike, no numbers checked" == words(*telling(nothing))
    wrong = result(cases={SUM: {"status": "wrong", "wrong_ranks": [1]}})
    assert "2 nodes, alike, collectives of 2 ranks not all right" == words(*telling(wrong))
