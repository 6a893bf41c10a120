"""The memory and copy tests on the CPU, with the faults of memory put into them."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch: nox -s checks")

from envaudit.checks import registry  # noqa: E402
from envaudit.checks.device import DeviceFacts, facts_of  # noqa: E402
from envaudit.checks.operations import memory  # noqa: E402
from envaudit.checks.outcome import ERROR, NOT_RUN, OK, WRONG, Outcome  # noqa: E402
from envaudit.checks.trial import DEFAULT_EFFORT, Effort, attempt  # noqa: E402

CPU = facts_of("cpu")
EXTENT = memory.Extent(chunks=3, blocks=4, block_words=64)
NAMES = ["memory/constants", "memory/addresses"]


def tried(name: str, effort: Effort = DEFAULT_EFFORT) -> Outcome:
    """One case of the registry."""
    (case,) = registry.cases(CPU, [name])
    return attempt(case, CPU, 7, effort)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A memory of three small chunks."""
    chunks = [torch.empty(EXTENT.blocks, EXTENT.block_words, dtype=torch.int64) for _ in range(3)]
    monkeypatch.setattr(memory, "_allocated", lambda facts, permille: (list(chunks), EXTENT, 3))
    return chunks


@pytest.mark.parametrize("name", [*NAMES, "copies/local"])
def test_memory_of_this_machine_is_sound(name: str) -> None:
    """A bounded part of it."""
    outcome = tried(name)
    assert (OK, "", None) == (outcome.status, outcome.reason, outcome.mismatch)
    assert outcome.tested_bytes is not None
    assert outcome.tested_bytes >= 16 * 2**20
    assert outcome.milli_gbps is not None


@pytest.mark.parametrize("name", NAMES)
def test_flipped_bit_in_memory_is_found_with_its_address_and_bit(
    name: str, small: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """60 of 60, wherever and whenever it flips between writing and reading."""
    real = torch.aminmax
    random = Random(name)
    for _ in range(60):
        victim, place, bit = random.randrange(3), random.randrange(256), random.randrange(64)
        calls_left = [random.randrange(1, 5) if name == NAMES[0] else random.randrange(1, 7)]

        def reading(
            chunk: Any,
            *,
            victim: int = victim,
            place: int = place,
            bit: int = bit,
            left: Any = calls_left,
            **how: Any,
        ) -> Any:
            if chunk is small[victim]:
                left[0] -= 1
                if not left[0]:
                    signed = (1 << bit) - 2**64 if bit == 63 else 1 << bit
                    chunk.view(-1)[place] ^= signed
            return real(chunk, **how)

        monkeypatch.setattr(torch, "aminmax", reading)
        outcome = tried(name)
        assert WRONG == outcome.status
        assert outcome.mismatch is not None
        assert (1, (victim * 256 + place,), (bit,)) == (
            outcome.mismatch.wrong,
            outcome.mismatch.first_index,
            outcome.mismatch.flipped_bits,
        )
        assert f"{8 * (victim * 256 + place)} bytes into" in outcome.reason


def test_memory_that_is_wrong_everywhere_is_told_within_what_is_left_of_it() -> None:
    """Every word of a chunk of 64 MiB; no second chunk of words is made for it."""
    failures = memory.Failures()
    got = torch.full((128, 2**16), 1)
    largest = []

    class Sizes(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc, name-defined, unused-ignore]
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made = function(*args, **(kwargs or {}))
            if isinstance(made, torch.Tensor):
                largest.append(0 if made.data_ptr() == got.data_ptr() else made.numel() * made.element_size())
            return made

    with Sizes():
        failures.add(got, torch.full((2**16,), 5), 7)
    assert (2**23, (7, 5, 1), 4) == (failures.count, failures.first, failures.flipped)
    assert max(largest) <= got.numel()


def test_stuck_address_line_is_seen_by_the_hash_and_by_no_constant(small: list[Any]) -> None:
    """Two addresses, one place: what is written to the one is read from the other."""
    small[2] = small[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "_allocated", lambda facts, permille: (list(small), EXTENT, 3))
        assert OK == tried("memory/constants").status
        outcome = tried("memory/addresses")
    assert WRONG == outcome.status
    assert outcome.mismatch is not None
    assert outcome.mismatch.wrong > 100


@pytest.mark.parametrize("name", NAMES)
def test_memory_test_that_is_cut_short_is_no_pass(name: str, small: list[Any]) -> None:
    """It says how far it came."""
    outcome = tried(name, Effort(deadline=0))
    assert NOT_RUN == outcome.status
    assert outcome.reason.startswith("1 of ")


def test_memory_that_is_taken_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing tested is no pass."""
    monkeypatch.setattr(memory, "_allocated", lambda facts, permille: ([], EXTENT._replace(chunks=0), 3))
    outcome = tried("memory/addresses")
    assert (NOT_RUN, "too little of the memory is free") == (outcome.status, outcome.reason)


GIB = 2**30


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A GPU with 6 GiB free, of which so many chunks can be had before the error that a test sets."""
    real = torch.empty
    had: list[Any] = []
    card = SimpleNamespace(gives=6, error=torch.cuda.OutOfMemoryError("CUDA out of memory."))

    def empty(*shape: int, dtype: Any, device: str) -> Any:
        if len(had) == card.gives:
            raise card.error
        had.append(real(4, 64, dtype=dtype))
        return had[-1]

    monkeypatch.setattr(torch, "empty", empty)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: had.clear())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (6 * GIB, 8 * GIB))
    return card


H200 = DeviceFacts("cuda:0", "cuda", (9, 0), (2, 13), False, False, 8 * GIB)


@pytest.mark.parametrize(
    ("gives", "status", "reason"),
    [
        (4, OK, ""),
        (3, NOT_RUN, "too little of the memory could be had: 3 of 4 GiB were right"),
        (0, NOT_RUN, "too little of the memory is free"),
    ],
)
def test_memory_that_others_took_meanwhile_is_not_passed_over(
    card: Any, gives: int, status: str, reason: str
) -> None:
    """Of 6 GiB that were free 4 are asked for; what was not to be had is not tested."""
    card.gives = gives
    (case,) = registry.cases(H200, ["memory/constants"])
    outcome = attempt(case, H200, 7)
    assert (status, reason) == (outcome.status, outcome.reason)


def test_cuda_error_is_not_taken_for_a_lack_of_memory(card: Any) -> None:
    """It has a cause of its own, and the device is of no use from then on."""
    card.gives, card.error = 2, RuntimeError("CUDA error: uncorrectable ECC error encountered")
    (case,) = registry.cases(H200, ["memory/constants"])
    outcome = attempt(case, H200, 7)
    assert (ERROR, "RuntimeError: CUDA error: uncorrectable ECC error encountered") == (
        outcome.status,
        outcome.reason,
    )


def test_copy_that_loses_a_word_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The target is cleared first: what an earlier copy left is not taken for this one's."""
    real = torch.Tensor.copy_
    calls = []

    def losing(target: Any, source: Any, *how: Any, **more: Any) -> Any:
        done = real(target, source, *how, **more)
        if target.dtype == torch.int64 and target.dim() == 1 and target.numel() == 2**21:
            calls.append(1)
            if len(calls) == 3:
                target[12345] = 0
        return done

    monkeypatch.setattr(torch.Tensor, "copy_", losing)
    outcome = tried("copies/local", Effort(repeats=5))
    assert (WRONG, "1 of 5 copies differ") == (outcome.status, outcome.reason)
    assert outcome.mismatch is not None
    assert (12345,) == outcome.mismatch.first_index


@pytest.mark.parametrize("name", NAMES)
def test_word_that_is_read_wrong_only_once_is_not_passed_over(
    name: str, small: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second look that finds nothing does not undo the first."""
    real = torch.aminmax
    left = [2]

    def reading(chunk: Any, **how: Any) -> Any:
        found = real(chunk, **how)
        left[0] -= 1
        return found if left[0] else (found[0] - 1, found[1])

    monkeypatch.setattr(torch, "aminmax", reading)
    outcome = tried(name)
    assert (WRONG, None) == (outcome.status, outcome.mismatch)
    assert outcome.reason.startswith("1 times words were read wrong")
