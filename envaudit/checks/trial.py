"""One case tried on one device: repeated, timed, compared on the device and once more on the host."""

from __future__ import annotations

import time
from statistics import median_low
from typing import Any, Callable, List, NamedTuple, Optional, Tuple

from envaudit.checks.bits import Mismatch, compare, count_different
from envaudit.checks.counterhash import digest, mix_word
from envaudit.checks.device import CUDA, DeviceFacts
from envaudit.checks.operations import Case, NotRunnable, Prepared, Tensors
from envaudit.checks.outcome import (
    ERROR,
    NOT_RUN,
    OK,
    UNSTABLE,
    WRONG,
    Outcome,
    milli_gbps,
    milli_tflops,
)

# Of a case with results up to this, the last of every batch goes to the host; of larger ones the very last.
_SEEN_BY_HOST_BYTES = 16 * 2**20
# Results kept until the device has been waited for: a wrong one is then still there to be looked at.
_KEPT_BYTES = 512 * 2**20
_KEPT_RESULTS = 8
_REASON_CHARACTERS = 500

_UNKNOWN_HERE = ("not implemented for", "could not create a primitive descriptor")

Clock = Callable[[], float]


class _Tally:
    """What the repeats came to."""

    def __init__(self) -> None:
        self.repeats = 0
        self.wrong = 0
        self.first: Optional[Mismatch] = None
        self.times_ns: List[int] = []
        self.last: Tensors = ()


class Effort(NamedTuple):
    """How much is put into a case.

    Attributes:
        repeats: how often it runs; at least 2 where the right answer is not known.
        deadline: by `clock`, no repeat begins after it but the first (two).
        scaled: `Case.prepare`'s.
        memory_permille: how much of the free memory the memory test takes, in thousandths.
        seconds: for repeating alone, without what is made before and compared behind it; no repeat begins
            later but the first (two).
    """

    repeats: int = 3
    deadline: float = float("inf")
    scaled: bool = True
    memory_permille: int = 900
    seconds: float = float("inf")


DEFAULT_EFFORT = Effort()


def attempt(
    case: Case, facts: DeviceFacts, seed: int, effort: Effort = DEFAULT_EFFORT, clock: Clock = time.monotonic
) -> Outcome:
    """Try a case; an exception of it is its outcome.

    After an `error` on a GPU the caller asks the device whether it still answers
    (`torch.cuda.synchronize()`): most CUDA errors stay for the rest of the process.
    """
    try:
        if case.own:
            return case.own(facts, seed, effort, clock)
        prepared = case.prepare(facts.device, seed, effort.scaled)
        return _judged(case, prepared, facts, effort, clock)
    except NotRunnable as reason:
        return Outcome(case.name, NOT_RUN, str(reason), exact=case.exact)
    except Exception as error:
        if _is_unknown_here(error):
            return Outcome(case.name, NOT_RUN, _text(error), exact=case.exact)
        return Outcome(case.name, ERROR, f"{type(error).__name__}: {_text(error)}", exact=case.exact)


def _judged(case: Case, prepared: Prepared, facts: DeviceFacts, effort: Effort, clock: Clock) -> Outcome:
    tally = _Tally()
    reference = prepared.expected(facts.device) if prepared.expected else prepared.run()
    at_least = 1 if prepared.expected else 2
    wanted = max(effort.repeats, at_least)
    tally.repeats = 0 if prepared.expected else 1
    if not sum(part.numel() for part in reference):
        raise ValueError("there is nothing to compare")
    batch = _batch(reference)
    on_host: Optional[Mismatch] = None
    wanted_on_host: Optional[Tensors] = None
    ends = min(effort.deadline, clock() + effort.seconds)
    while tally.repeats < wanted and (tally.repeats < at_least or clock() < ends):
        size = 1 if tally.repeats < at_least else min(batch, wanted - tally.repeats)
        _repeat(prepared, reference, facts, size, tally)
        if prepared.expected and not tally.wrong and _bytes_of(reference) <= _SEEN_BY_HOST_BYTES:
            wanted_on_host = wanted_on_host or prepared.expected("cpu")
            on_host = on_host or _differs_on_host(wanted_on_host, tally.last)
    status, reason = OK, ""
    if tally.wrong:
        status = WRONG if case.exact else UNSTABLE
        reason = f"{tally.wrong} of {tally.repeats} repeats differ"
    elif prepared.expected:
        # The suspect had no part in what it is held against here.
        if wanted_on_host is None:
            on_host = _differs_on_host(prepared.expected("cpu"), tally.last)
        if on_host:
            tally.first = on_host
            tally.wrong = 1
            status, reason = WRONG, "differs on the host, where the device's own comparison saw nothing"
    elif not all(bool(part.isfinite().all()) for part in tally.last):
        # The data of these operations is finite, and so are their results.
        tally.wrong = tally.repeats
        status, reason = WRONG, "not every result is a finite number"
    middle = median_low(tally.times_ns[1:] or tally.times_ns) if tally.times_ns else None
    return Outcome(
        case=case.name,
        status=status,
        reason=reason,
        digest=digest_of(tally.last, seed=0),
        exact=case.exact,
        repeats=tally.repeats,
        wrong_repeats=tally.wrong,
        mismatch=tally.first,
        median_ns=middle,
        milli_tflops=milli_tflops(prepared.flops, middle) if prepared.flops and middle else None,
        milli_gbps=milli_gbps(prepared.moved_bytes, middle) if prepared.moved_bytes and middle else None,
    )


def digest_of(results: Tensors, seed: int) -> str:
    """The digest of one or more tensors in their order, 16 hexadecimal digits."""
    total = 0
    for result in results:
        total = mix_word(total ^ digest(result, seed))
    return f"{total:016x}"


def _repeat(prepared: Prepared, reference: Tensors, facts: DeviceFacts, size: int, tally: _Tally) -> None:
    _spoil_free_memory(reference, size)
    # All runs of a batch are given to the device before any is waited for.
    kept: List[Tuple[Tensors, Any]] = []
    marks: List[Tuple[Any, Any]] = []
    for _ in range(size):
        begin = _mark(facts)
        result = prepared.run()
        marks.append((begin, _mark(facts)))
        if len(result) != len(reference):
            raise ValueError(f"expected {len(reference)} results, got {len(result)}")
        kept.append((result, [count_different(*pair) for pair in zip(reference, result)]))
    for result, counts in kept:
        if any(int(count) for count in counts):
            tally.wrong += 1
            tally.first = tally.first or _first_mismatch(reference, result)
        _spoil(tally.last)
        tally.last = result
    tally.repeats += size
    tally.times_ns.extend(_between(begin, end) for begin, end in marks)


def _spoil_free_memory(reference: Tensors, size: int) -> None:
    """Leave no right answer in memory that is free, as the making of the reference does.

    The allocator gives the blocks of earlier tensors to the next results: a kernel that is lost, or a part
    of it, would find the right bits there.
    """
    import torch

    taken = tuple(torch.empty_like(part) for part in reference * size)
    _spoil(taken)


def _spoil(results: Tensors) -> None:
    import torch

    for part in results:
        part.fill_(float("nan") if part.is_floating_point() else torch.iinfo(part.dtype).min)


def _first_mismatch(expected: Tensors, got: Tensors) -> Optional[Mismatch]:
    for pair in zip(expected, got):
        found = compare(*pair)
        if found:
            return found
    return None


def _differs_on_host(expected: Tensors, got: Tensors) -> Optional[Mismatch]:
    return _first_mismatch(expected, tuple(part.cpu() for part in got))


def _batch(reference: Tensors) -> int:
    return max(1, min(_KEPT_RESULTS, _KEPT_BYTES // max(1, _bytes_of(reference))))


def _bytes_of(tensors: Tensors) -> int:
    return int(sum(part.numel() * part.element_size() for part in tensors))


def _mark(facts: DeviceFacts) -> Any:
    if facts.kind != CUDA:
        return time.perf_counter_ns()
    import torch

    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(torch.device(facts.device)))
    return event


def _between(begin: Any, end: Any) -> int:
    # Events speak of milliseconds.
    if isinstance(begin, int):
        return int(end) - begin
    return int(float(begin.elapsed_time(end)) * 1e6)


def _is_unknown_here(error: Exception) -> bool:
    # What torch says of an operation that it has not for a dtype or device: older releases have no
    # fp16 product on the CPU ('"addmm_impl_cpu_" not implemented for 'Half''), oneDNN no fp8 product for
    # every CPU.
    return isinstance(error, NotImplementedError) or any(words in str(error) for words in _UNKNOWN_HERE)


def _text(error: Exception) -> str:
    text = str(error)
    if text.startswith("CUDA error"):
        # What follows in torch's text is how to debug a kernel.
        text = text.partition("\n")[0]
    return " ".join(text.split())[:_REASON_CHARACTERS]
