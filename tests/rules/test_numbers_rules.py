"""EA500 to EA513: what the operations of known answer came to, judged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List, Tuple

import pytest

from envaudit.checks.outcome import Outcome
from envaudit.checks.plan import Plan
from envaudit.model import Finding, Fingerprint, Section
from envaudit.rules import Evidence, judge
from tests.diff.nodes import fingerprint
from tests.rules.checked import EXP, GEMM, MISMATCH, checked, cpu, gpu, outcomes


def findings(*nodes: Fingerprint) -> List[Finding]:
    """All that is said of a run that was asked for this section alone."""
    return list(judge(Evidence(tuple(nodes), sections=("checks",), comparing=False)))


def rules(*nodes: Fingerprint) -> List[str]:
    """The ids alone."""
    return [finding.rule for finding in findings(*nodes)]


def test_good_nodes_raise_nothing() -> None:
    """Two times eight equal GPUs, and a machine without any."""
    assert [] == rules(checked("node01"), checked("node02"), checked("head", cpu()))


def test_wrong_result_names_node_gpu_operation_and_bit() -> None:
    """All that is needed to pull one card."""
    bad = outcomes(status="wrong", reason="1 of 50 repeats differ", wrong_repeats=1, mismatch=MISMATCH)
    runs = [gpu(ordinal, bad if ordinal == 3 else None) for ordinal in range(8)]
    (finding,) = findings(checked("node01"), checked("node02", *runs))
    assert ("EA500", "error", ("node02",)) == (finding.rule, finding.severity, finding.nodes)
    assert "GPU 3 (GPU-00000003) gives wrong results" == finding.message
    assert (
        "gemm/bf16/spread: 1 of 67108864 elements, first at [3,17], flipped bit 12: "
        "0x43a1 for 0x53a1; 1 of 50 repeats",
    ) == finding.evidence


@pytest.mark.parametrize(
    ("status", "rule"), [("unstable", "EA501"), ("error", "EA502"), ("timeout", "EA502")]
)
def test_operation_that_ends_badly_is_an_error(status: str, rule: str) -> None:
    """With its reason."""
    (finding,) = findings(checked("node01", gpu(0, outcomes(status=status, reason="because"))))
    assert (rule, ("gemm/bf16/spread: because",)) == (finding.rule, finding.evidence)


def test_wrong_copy_between_gpus_names_the_pair_and_not_who_ran_it() -> None:
    """The first GPU runs them all."""
    copy = outcomes()[GEMM]._replace(case="copies/peer/5-3", status="wrong", mismatch=MISMATCH)
    (finding,) = findings(checked("node01", gpu(0, {"copies/peer/5-3": copy})))
    assert ("EA500", "copying between GPUs 5-3 gives wrong results") == (finding.rule, finding.message)


@pytest.mark.parametrize("found", [{}, outcomes(status="not_run", reason="needs a GPU: TF32", digest="")])
def test_run_in_which_nothing_was_tried_is_no_pass(found: Dict[str, Outcome]) -> None:
    """Whether no operation was meant, or none of those exists there."""
    found = {name: outcome for name, outcome in found.items() if outcome.status == "not_run"}
    nothing = [one for one in findings(checked("node01", cpu(found))) if one.rule == "EA504"]
    assert [("incomplete", ("node01",), "no operation was run")] == [
        (one.severity, one.nodes, one.message) for one in nothing
    ]


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({}, "no kernel was run"),
        ({"usable": "ok", "device": "cuda", "count": 0, "each": {}}, "no kernel was run"),
        ({"usable": ["ok"], "device": {}, "count": 1, "each": []}, "no operation was run"),
        ({"usable": "ok", "device": None, "count": 1, "each": {"cases": {}}}, "no operation was run"),
    ],
)
def test_answer_that_tells_of_no_operation_is_no_pass(facts: Dict[str, Any], message: str) -> None:
    """Whatever the node says instead, beside a node on which all is well."""
    nothing = fingerprint("node02", checks=Section("checks", 1, "ok", facts, {}))
    (finding,) = findings(checked("node01"), nothing)
    assert ("EA504", "incomplete", ("node02",), message) == (
        finding.rule,
        finding.severity,
        finding.nodes,
        finding.message,
    )


def test_name_that_no_operation_has_is_no_pass() -> None:
    """A misspelt one, beside one that ran; a family's name and a pattern are good."""
    plan = Plan(ops=("gem", "gemm", "gemm/*/spread", "repeatability/"))
    (finding,) = findings(checked("node01", plan=plan))
    assert ("EA504", "no operation is called gem") == (finding.rule, finding.message)


def test_memory_that_was_not_tested_to_the_end_is_no_pass() -> None:
    """As `operations/memory.py` words it."""
    reason = "4 of 6 patterns were right when the time for it was over"
    found = outcomes(status="not_run", reason=reason, digest="")
    assert ["EA504"] == rules(checked("node01", gpu(0, found)))


def test_torch_that_cannot_use_its_gpus_is_said_once() -> None:
    """Not again for each operation that did not run."""
    run = gpu(0)
    run.facts, run.cases, run.outcomes = {}, [], {}
    run.unusable = "the driver knows CUDA 12.4, torch is built for 13.0"
    run.give_up(run.unusable)
    (finding,) = findings(checked("node01", run), checked("node02"))
    assert ("EA503", ("node01",), (run.unusable,)) == (finding.rule, finding.nodes, finding.evidence)


def test_one_gpu_that_cannot_be_used_is_named_beside_good_ones() -> None:
    """What another GPU of the node left out is still told."""
    bad = gpu(1)
    bad.facts, bad.cases, bad.outcomes = {}, [], {}
    bad.unusable = "the worker failed before its first case: CUDA error"
    bad.give_up(bad.unusable)
    late = outcomes(status="not_run", reason="the budget of 30 s was over", digest="")
    found = findings(checked("node01", gpu(0, late), bad, gpu(2)))
    assert ["EA503", "EA504"] == [finding.rule for finding in found]
    assert (f"GPU 1: {bad.unusable}",) == found[0].evidence
    assert "1 operation not run: the budget of 30 s was over" == found[1].message


@pytest.mark.parametrize(
    "reason",
    [
        "the budget of 30 s was over",
        "the budget of 30 s was over when it had run for 7 s",
        "the GPU is busy: process 7 (python, 3 MiB)",
        "too little of the memory is free",
        "a new worker failed before its first case: its process was ended by SIGSEGV",
    ],
)
def test_operation_left_out_by_this_run_is_incomplete(reason: str) -> None:
    """It was asked for, and nothing is known of it."""
    found = outcomes(status="not_run", reason=reason, digest="")
    (finding,) = findings(checked("node01", gpu(0, found)))
    assert ("EA504", "incomplete", ("node01",)) == (finding.rule, finding.severity, finding.nodes)
    assert f"1 operation not run: {reason}" == finding.message


def test_operation_that_a_card_has_not_is_a_remark() -> None:
    """Listed, and no fault."""
    found = outcomes(status="not_run", reason="needs torch 2.5: float8", digest="")
    (finding,) = findings(checked("node01", gpu(0, found)))
    assert ("EA505", "info") == (finding.rule, finding.severity)


def test_node_that_sent_no_notes_has_the_reason_of_one_that_did() -> None:
    """In a launch the nodes that are like the first one say their facts alone."""
    found = outcomes(status="not_run", reason="needs torch 2.5: float8", digest="")
    whole = checked("node01", gpu(0, found))
    section = whole.sections["checks"]
    bare = fingerprint("node02", checks=replace(section, notes={}))
    (finding,) = findings(whole, bare)
    assert ("EA505", ("node01", "node02")) == (finding.rule, finding.nodes)


def test_node_without_torch_was_not_tested() -> None:
    """Asked for, and not done."""
    section = Section("checks", 1, "absent", {}, {"why": "torch is not installed there"})
    node = fingerprint("node01", checks=section)
    (finding,) = findings(node)
    assert ("EA504", "no kernel was run") == (finding.rule, finding.message)
    assert "--python" in finding.hint


def test_nodes_of_a_launch_without_torch_are_one_finding() -> None:
    """What says the same as the first one sends no notes, and so no reason."""
    told, bare = (
        fingerprint(node, checks=Section("checks", 1, "absent", {}, notes))
        for node, notes in (("node02", {"why": "torch is not installed there"}), ("node01", {}))
    )
    (finding,) = findings(bare, told)
    assert {"node01", "node02"} == set(finding.nodes)
    assert ("torch is not installed there",) == finding.evidence


def test_minority_of_other_bits_is_named() -> None:
    """One card of three like it."""
    other = {**outcomes(), EXP: outcomes()[EXP]._replace(digest="00ff")}
    nodes = [checked("node01", gpu(0)), checked("node02", gpu(0, other)), checked("node03", gpu(0))]
    (finding,) = findings(*nodes)
    assert ("EA506", "error", ("node02",), (EXP,)) == (
        finding.rule,
        finding.severity,
        finding.nodes,
        finding.evidence,
    )


def test_two_that_disagree_are_both_named_and_warned_of() -> None:
    """Which of them is right nobody can tell."""
    other = {**outcomes(), EXP: outcomes()[EXP]._replace(digest="00ff")}
    (finding,) = findings(checked("node01", gpu(0)), checked("node02", gpu(0, other)))
    assert ("EA507", "warning", ("node01", "node02")) == (finding.rule, finding.severity, finding.nodes)


def test_tie_among_four_has_no_minority() -> None:
    """Two against two."""
    other = {**outcomes(), EXP: outcomes()[EXP]._replace(digest="00ff")}
    assert ["EA507"] == rules(
        checked("node01", gpu(0), gpu(1)), checked("node02", gpu(0, other), gpu(1, other))
    )


def test_bits_are_not_held_against_another_driver_or_card() -> None:
    """They may well differ there; what is exact may not."""
    other = {**outcomes(), EXP: outcomes()[EXP]._replace(digest="00ff")}
    nodes = [checked("node01", gpu(0)), checked("node02", gpu(0, other, model="NVIDIA A100"))]
    assert [] == rules(*nodes)
    exact = outcomes(digest="00ff")
    assert ["EA507"] == rules(
        checked("node01", gpu(0)), checked("node02", gpu(0, exact, model="NVIDIA A100"))
    )


@pytest.mark.parametrize(
    ("rate", "expected"),
    [(780_000, []), (745_000, []), (735_000, ["EA510"]), (620_000, ["EA511"]), (990_000, [])],
)
def test_slow_gpu_is_named_against_those_like_it(rate: int, expected: List[str]) -> None:
    """From 5 % below the median a warning, from 20 % an error; a fast one is no fault."""
    runs = [gpu(ordinal, outcomes(milli_tflops=rate) if ordinal == 7 else None) for ordinal in range(8)]
    found = findings(checked("node01", *runs))
    assert expected == [finding.rule for finding in found]
    assert all(finding.message.startswith("GPU 7 (GPU-00000007) is slow") for finding in found)


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("copies/host-to-device", "256 MiB", []),
        ("copies/device-to-host", "256 MiB", []),
        ("copies/peer/0-1", "256 MiB, through the host", []),
        ("copies/peer/0-1", "256 MiB, peer access", ["EA511"]),
        ("copies/local", "256 MiB", ["EA511"]),
    ],
)
def test_gpu_that_shares_the_way_to_the_host_is_not_called_slow(
    name: str, shape: str, expected: List[str]
) -> None:
    """Two that copy at the same moment have half of it each, and are sound."""
    rates = [55_000, 54_800, 27_100, 55_100, 27_300, 55_000, 54_900, 55_200]
    runs = []
    for ordinal, rate in enumerate(rates):
        copied = Outcome(name, "ok", "", "", True, 8, median_ns=268_435_456_000 // rate, milli_gbps=rate)
        run = gpu(ordinal, {name: copied})
        run.cases = [[name, "int64", shape]]
        runs.append(run)
    assert expected == sorted({finding.rule for finding in findings(checked("node01", *runs))})


def test_scatter_of_all_is_no_fault_of_one() -> None:
    """Five robust standard deviations, where those are more than 5 %."""
    rates = [780_000, 700_000, 850_000, 760_000, 690_000, 840_000, 800_000, 710_000]
    runs = [gpu(ordinal, outcomes(milli_tflops=rate)) for ordinal, rate in enumerate(rates)]
    assert [] == rules(checked("node01", *runs))


def test_three_gpus_are_too_few_to_call_one_slow() -> None:
    """Their rates stand in the table."""
    runs = [gpu(ordinal, outcomes(milli_tflops=rate)) for ordinal, rate in enumerate((780_000, 780_000, 100))]
    assert [] == rules(checked("node01", *runs))


def test_rates_of_a_cpu_are_not_judged() -> None:
    """It is shared with whatever else runs."""
    nodes = [
        checked(f"node{number}", cpu(outcomes(milli_tflops=rate))) for number, rate in enumerate((9, 9, 9, 1))
    ]
    assert [] == rules(*nodes)


@pytest.mark.parametrize(
    ("reading", "expected"),
    [
        ({"throttle": ["sw_power_cap"]}, []),
        ({"throttle": ["hw_slowdown"], "sm_clock_mhz": {"least": 345, "most": 1980}}, ["EA512"]),
        ({"ecc_uncorrected": {"before": 0, "after": 0}}, []),
        ({"ecc_uncorrected": {"before": 0, "after": 2}}, ["EA513"]),
        ({"ecc_uncorrected": {"before": None, "after": 2}}, []),
    ],
)
def test_readings_of_a_card(reading: Any, expected: List[str]) -> None:
    """A power cap is a setting; what is not known before is not counted."""
    assert expected == rules(checked("node01", gpu(0), readings=[reading]))


HOSTILE: Tuple[Any, ...] = (
    {"each": 7, "devices": [1]},
    {"each": {"cases": {"a": 7, "b": {"status": ["x"]}}, "card": "x"}, "devices": {"0": "x"}, "count": 10**9},
    {"count": -1, "usable": 3},
)


@pytest.mark.parametrize("facts", HOSTILE)
def test_facts_of_another_shape_raise_nothing(facts: Any) -> None:
    """A node may say anything."""
    notes: Any = {
        "devices": {"0": {"uuid": 3, "cases": {"a": {"mismatch": [], "repeats": -1}}, "readings": 1}}
    }
    section = Section("checks", 1, "ok", facts, notes)
    node = fingerprint("node01", checks=section)
    assert set(rules(node)) <= {"EA503", "EA504", "EA505"}


def test_facts_of_many_devices_fold_to_one_row_and_the_odd_one() -> None:
    """Eight alike take one row, and one that deviates is one difference."""
    runs = [gpu(ordinal, outcomes(status="wrong") if ordinal == 3 else None) for ordinal in range(8)]
    facts: Any = checked("node01", *runs).sections["checks"].facts
    assert {"3": {"cases": {GEMM: {**facts["each"]["cases"][GEMM], "status": "wrong"}}}} == facts["devices"]
    assert "NVIDIA H200" == facts["each"]["card"]["model"]
