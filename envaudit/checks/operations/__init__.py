"""The operations: one module each in this folder, its file name is its registration.

An operation's module has `CASES(facts: DeviceFacts) -> List[Case]`. What a device cannot run is listed
all the same: its `prepare` raises NotRunnable with the reason.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional, Tuple

from envaudit.checks.outcome import Outcome

# One or more tensors; a result and its reference have as many, of the same shapes and dtypes.
Tensors = Tuple[Any, ...]


class NotRunnable(Exception):
    """A case cannot run here; the text says what it would need, `needs torch 2.1: float8`."""


class Prepared(NamedTuple):
    """A case with its data on the device.

    Attributes:
        run: the operation itself, and nothing else: it is repeated and timed. New tensors each time.
        expected: the right answer, made anew on any device (`"cpu"` for the verdict that the suspect
            has no part in) from the counter hash, without the operation under test. None where the
            right bits are not known: the runs are held against each other.
        flops: arithmetic operations of one run, 0 where they are not what it is about.
        moved_bytes: bytes read and written by one run, likewise.
    """

    run: Callable[[], Tensors]
    expected: Optional[Callable[[Any], Tensors]]
    flops: int = 0
    moved_bytes: int = 0


class Case(NamedTuple):
    """One operation with its dtype and shape, before any data exists.

    Attributes:
        name: `gemm/bf16/spread`, unique among all cases of a device.
        dtype: the kind of arithmetic, a key of `tolerance.PRECISIONS` or torch's name of the dtype.
        shape: the sizes in words, `4096x4096x4096`.
        exact: whether `Prepared.expected` is there.
        prepare: (device, seed, scaled) → Prepared. `scaled`: rows and columns are multiplied by
            powers of two, where the operation has such a form.
        on_request: only run where its name is asked for.
        own: where the case is no operation that is repeated and compared, but a test that judges itself
            (memory, copies): (facts, seed, effort, clock) → Outcome. `prepare` is not called then.
    """

    name: str
    dtype: str
    shape: str
    exact: bool
    prepare: Callable[[Any, int, bool], Prepared]
    on_request: bool = False
    own: Optional[Callable[..., Outcome]] = None


def not_runnable(name: str, dtype: str, reason: str, exact: bool = True) -> Case:
    """A case that says why it is not there."""

    def prepare(device: Any, seed: int, scaled: bool) -> Prepared:
        raise NotRunnable(reason)

    return Case(name, dtype, "", exact, prepare)
