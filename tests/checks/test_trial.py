"""One case tried: what its outcome says of exceptions, of results that vary, and of a device that lies."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch: nox -s checks")

from envaudit.checks import trial  # noqa: E402
from envaudit.checks.device import facts_of  # noqa: E402
from envaudit.checks.operations import Case, Prepared, Tensors, not_runnable  # noqa: E402
from envaudit.checks.outcome import ERROR, NOT_RUN, OK, UNSTABLE, WRONG, Outcome, milli_gbps  # noqa: E402
from envaudit.checks.trial import Effort, attempt, digest_of  # noqa: E402

CPU = facts_of("cpu")


def case_of(run: Callable[[], Tensors], exact: bool = True) -> Case:
    """A case whose right answer is 0, 1, 2, 3."""

    def prepare(device: Any, seed: int, scaled: bool) -> Prepared:
        expected = (lambda where: (torch.arange(4.0),)) if exact else None
        return Prepared(run, expected, flops=10**9, moved_bytes=10**6)

    return Case("test/case", "fp32", "4", exact, prepare)


def sequence(*results: Any) -> Callable[[], Tensors]:
    """One result after the other, then the last."""
    left = list(results)
    return lambda: (torch.tensor(left.pop(0) if len(left) > 1 else left[0], dtype=torch.float32),)


RIGHT, OTHER = [0, 1, 2, 3], [0, 1, 2, 3.5]


def test_right_results_are_ok_with_digest_and_rates() -> None:
    """All repeats are counted, and the rates follow from the median."""
    outcome = attempt(case_of(sequence(RIGHT)), CPU, 1, Effort(repeats=5))
    assert (OK, "", 5, 0) == (outcome.status, outcome.reason, outcome.repeats, outcome.wrong_repeats)
    assert digest_of((torch.arange(4.0),), 0) == outcome.digest
    assert outcome.median_ns is not None
    assert 10**9 // outcome.median_ns == outcome.milli_tflops
    assert milli_gbps(10**6, outcome.median_ns) == outcome.milli_gbps


def test_one_wrong_repeat_among_many_is_found() -> None:
    """Whichever it is, also inside a batch."""
    for wrong_at in range(12):
        results = [RIGHT] * wrong_at + [OTHER] + [RIGHT] * 12
        outcome = attempt(case_of(sequence(*results)), CPU, 1, Effort(repeats=12))
        assert (WRONG, "1 of 12 repeats differ") == (outcome.status, outcome.reason)
        assert outcome.mismatch is not None
        assert ((3,), "0.5") == (outcome.mismatch.first_index, outcome.mismatch.max_abs)


def test_results_that_vary_without_a_right_answer_are_unstable() -> None:
    """Held against the first run."""
    outcome = attempt(case_of(sequence(RIGHT, RIGHT, OTHER, RIGHT), exact=False), CPU, 1, Effort(repeats=4))
    assert (UNSTABLE, "1 of 4 repeats differ", False) == (outcome.status, outcome.reason, outcome.exact)


def test_result_without_a_right_answer_is_run_twice_at_least() -> None:
    """Once proves nothing."""
    outcome = attempt(case_of(sequence(RIGHT, OTHER), exact=False), CPU, 1, Effort(repeats=1))
    assert (UNSTABLE, 2) == (outcome.status, outcome.repeats)


def test_device_that_compares_wrongly_is_found_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """The suspect does not judge itself alone."""
    monkeypatch.setattr(trial, "count_different", lambda expected, got: torch.zeros(()))
    outcome = attempt(case_of(sequence(OTHER)), CPU, 1)
    assert WRONG == outcome.status
    assert "on the host" in outcome.reason
    assert outcome.mismatch is not None


def test_wrong_result_that_ends_a_batch_is_found_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where those of later batches are right: the last of each is copied."""
    monkeypatch.setattr(trial, "count_different", lambda expected, got: torch.zeros(()))
    results = [RIGHT] * 8 + [OTHER] + [RIGHT] * 20
    outcome = attempt(case_of(sequence(*results)), CPU, 1, Effort(repeats=20))
    assert WRONG == outcome.status
    assert "on the host" in outcome.reason


def test_exception_is_the_outcome() -> None:
    """With its type and words, on one line."""

    def run() -> Tensors:
        raise RuntimeError(
            "CUDA error: an illegal memory access was encountered\n"
            "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace "
            "below might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1"
        )

    outcome = attempt(case_of(run), CPU, 1)
    assert (ERROR, "RuntimeError: CUDA error: an illegal memory access was encountered") == outcome[1:3]


def test_result_of_another_shape_is_an_error() -> None:
    """Never stretched until it fits."""
    outcome = attempt(case_of(lambda: (torch.zeros(5),)), CPU, 1)
    assert ERROR == outcome.status
    assert "expected (4,) torch.float32, got (5,) torch.float32" in outcome.reason


def test_result_that_is_missing_is_an_error() -> None:
    """What is not there was not compared."""
    outcome = attempt(case_of(lambda: ()), CPU, 1)
    assert (ERROR, "ValueError: expected 1 results, got 0") == outcome[1:3]


def test_nothing_to_compare_is_an_error() -> None:
    """Nothing equals nothing."""
    outcome = attempt(case_of(lambda: (torch.empty(0),), exact=False), CPU, 1)
    assert (ERROR, "ValueError: there is nothing to compare") == outcome[1:3]


def test_results_that_are_no_numbers_are_wrong_where_the_right_ones_are_not_known() -> None:
    """The same NaN every time is no good result."""
    nan = float("nan")
    outcome = attempt(case_of(sequence([0, nan, 2, 3]), exact=False), CPU, 1)
    assert (WRONG, "not every result is a finite number") == outcome[1:3]


def lost_after(runs: int, size: int) -> Case:
    """A case whose kernel writes its result so often, and then nothing any more."""
    right = torch.arange(float(size))
    left = [runs]

    def run() -> Tensors:
        made = torch.empty(size)
        left[0] -= 1
        return (made.copy_(right) if left[0] >= 0 else made,)

    prepared = Prepared(run, lambda where: (right.clone(),))
    return Case("test/lost", "fp32", str(size), True, lambda *_: prepared)


def test_kernel_that_writes_nothing_is_not_saved_by_what_lay_there() -> None:
    """Memory that is given out again held the right answer of an earlier run: some 20 of 448 were missed.

    Up to three are left to what else the process has written into its memory.
    """
    sizes = [2**power for power in range(4, 18)]
    found = [attempt(lost_after(8, size), CPU, 1, Effort(repeats=40)).wrong_repeats for size in sizes]
    assert sum(found) >= 32 * len(sizes) - 3


@pytest.mark.parametrize(
    "words",
    [
        "\"addmm_impl_cpu_\" not implemented for 'Half'",
        "could not create a primitive descriptor for the matmul",
    ],
)
def test_what_torch_does_not_implement_is_not_run(words: str) -> None:
    """As older releases say of fp16 on the CPU, and oneDNN of fp8 on a CPU that is too old for it."""

    def run() -> Tensors:
        raise RuntimeError(words)

    assert (NOT_RUN, words) == attempt(case_of(run), CPU, 1)[1:3]


def test_case_that_cannot_run_says_why() -> None:
    """In the words of its own reason."""
    outcome = attempt(not_runnable("test/none", "fp32", "needs torch 9"), CPU, 1)
    assert Outcome("test/none", NOT_RUN, "needs torch 9") == outcome


def test_no_repeat_begins_after_the_deadline() -> None:
    """But the first does."""
    now = iter(range(1000))
    outcome = attempt(
        case_of(sequence(RIGHT)), CPU, 1, Effort(repeats=10**6, deadline=3), lambda: float(next(now))
    )
    assert OK == outcome.status
    assert 1 <= outcome.repeats < 100
    assert 1 == attempt(case_of(sequence(RIGHT)), CPU, 1, Effort(repeats=9, deadline=0)).repeats


def test_time_for_repeats_begins_when_the_data_is_made() -> None:
    """A case that is slow to prepare has its repeats all the same."""
    now = iter(range(1000, 2000))
    effort = Effort(repeats=10**6, seconds=3)
    outcome = attempt(case_of(sequence(RIGHT)), CPU, 1, effort, lambda: float(next(now)))
    assert (OK, True) == (outcome.status, 1 < outcome.repeats < 100)


def test_outcome_survives_json_and_holds_no_float() -> None:
    """There and back, with a mismatch in it."""
    outcome = attempt(case_of(sequence(OTHER)), CPU, 1)
    text = json.dumps(outcome.to_json())
    assert outcome == Outcome.from_json(json.loads(text))

    def refuse(word: str) -> float:
        raise AssertionError(f"a float: {word}")

    json.loads(text, parse_float=refuse)
    with pytest.raises(ValueError, match="status 'fine' is none of"):
        Outcome.from_json({**outcome.to_json(), "status": "fine"})
