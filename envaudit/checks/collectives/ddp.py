"""One step of DistributedDataParallel, forward, backward and optimizer, whose every number is known.

DDP divides each rank's gradient by W, or multiplies it with the rounded 1/W, and sums. For both to be
exact whatever W, a gradient is W · m · n with a small integer n and

    m = 2**(b+1) + 1    where 2**(b-1) < W ≤ 2**b.

Write c for 1/W rounded to fp32. W has a significand s' and 1/W one of s ≥ 1 + 2**-b when W is no power of
two, so c · W = 1 + δ with |δ| ≤ 2**-24 / s. Then c · W · m = m + m · δ, and with m's significand
1 + 2**-(b+1) < s the error stays below half a unit in the last place: it rounds to m. Signs and powers of
two change nothing of that. W · m · n and every partial sum of m · n over ranks stay below 2**24 for
W ≤ 1000, so that the sum is exact in any order, and parameters are integers.

The model is a linear layer with a bias; its input's rows are unit vectors, so that a gradient is a row of
what the loss weighs the outputs with. Ranks begin with other parameters than rank 0's: DDP must have
broadcast those first.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Tuple

from envaudit.checks.bits import Mismatch, compare
from envaudit.checks.collectives.calls import Scene
from envaudit.checks.counterhash import derive, digest, integers, mix_word
from envaudit.checks.precision import full_precision

IN, OUT = 8, 32
_PARAMETERS = 64


class Step(NamedTuple):
    """What a step came to at one rank.

    Attributes:
        digest: of all parameters after it, 16 hexadecimal digits; equal on all ranks.
        expected: that of the single process's answer.
        size_bytes: of the gradients.
        mismatch: how the parameters differ from that answer; None when every bit agrees.
    """

    digest: str
    expected: str
    size_bytes: int
    mismatch: Optional[Mismatch]


def unit_of(world: int) -> int:
    """m: averaging W · m over W ranks gives m to the bit, whether W divides or 1/W multiplies."""
    return (1 << ((world - 1).bit_length() + 1)) + 1


def step(scene: Scene, seed: int) -> Step:
    """Make one step with all ranks; a collective of DDP's own choosing.

    Raises:
        RuntimeError: and whatever else torch raises.
    """
    import torch

    own = derive(seed, "ddp")
    with torch.enable_grad():
        model = _model(own, scene.rank, scene.device)
        weights = _weights(scene.world, scene.rank, own, scene.device)
        chosen = torch.eye(IN, device=scene.device)
        ordinal = [int(scene.device.partition(":")[2])] if scene.device != "cpu" else None

        def all_of_it() -> None:
            parallel = torch.nn.parallel.DistributedDataParallel(model, device_ids=ordinal)
            optimizer = torch.optim.SGD(parallel.parameters(), lr=1.0)
            (parallel(chosen) * weights).sum().backward()
            optimizer.step()

        with _without_compiler(torch), full_precision():
            all_of_it()
    got = _flat(model)
    wanted = _answer(scene.world, own, scene.device)
    return Step(
        digest=f"{digest(got):016x}",
        expected=f"{digest(wanted):016x}",
        size_bytes=got.numel() * got.element_size(),
        mismatch=compare(wanted, got),
    )


def _model(seed: int, rank: int, device: str) -> Any:
    """The layer as a rank begins: rank 0's parameters are those that count."""
    import torch

    model = torch.nn.Linear(IN, OUT).to(device)
    start = integers((IN * OUT + OUT,), _PARAMETERS, derive(seed, f"start/{rank}"), device, torch.float32)
    with torch.no_grad():
        model.weight.copy_(start[: IN * OUT].reshape(OUT, IN))
        model.bias.copy_(start[IN * OUT :])
    return model


def _weights(world: int, rank: int, seed: int, device: str) -> Any:
    """W · m · n for each row and output of a rank; n is ±1, 0 in one row, and ±1 summed over the rows.

    The sum over the rows is the gradient of the bias, which must be ±W · m itself.
    """
    import torch

    rows: List[List[int]] = [[0] * OUT for _ in range(IN)]
    for output in range(OUT):
        word = mix_word(derive(seed, f"weights/{rank}/{output}"))
        sign = 1 - 2 * (word & 1)
        order = sorted(range(IN), key=lambda row: mix_word(word + row))
        for place, row in enumerate(order[1:]):
            rows[row][output] = sign * (1 - 2 * (place % 2))
    return torch.tensor(rows, dtype=torch.float32, device=device) * float(world * unit_of(world))


def _answer(world: int, seed: int, device: str) -> Any:
    """Rank 0's parameters less the average gradient, without communication."""
    import torch

    model = _model(seed, 0, device)
    total = torch.zeros((IN, OUT), dtype=torch.float64, device=device)
    for rank in range(world):
        total += _weights(world, rank, seed, device).to(torch.float64)
    average = total / world
    with torch.no_grad():
        weight = model.weight.to(torch.float64) - average.t()
        bias = model.bias.to(torch.float64) - average.sum(dim=0)
    return torch.cat((weight.reshape(-1), bias)).to(torch.float32)


def _flat(model: Any) -> Any:
    import torch

    return torch.cat([each.detach().reshape(-1) for each in (model.weight, model.bias)])


class _NoCompiler(ModuleType):
    """Stands where torch._dynamo does, for code that asks it only to stay away."""

    @staticmethod
    def disable(fn: Optional[Callable[..., Any]] = None, recursive: bool = True, **_: Any) -> Any:
        """A function as it is."""
        return fn if fn is not None else (lambda each: each)

    @staticmethod
    def graph_break(*_: Any, **__: Any) -> None:
        """Nothing to break."""

    @staticmethod
    def is_compiling() -> bool:
        """Nothing is compiled here."""
        return False

    @staticmethod
    def get_optimize_ddp_mode() -> str:
        """The default of torch._dynamo.config.optimize_ddp."""
        return "ddp_optimizer"


@contextmanager
def _without_compiler(torch: Any) -> Iterator[None]:
    """Keep DDP and the optimizer from importing torch's compiler, which takes as long as torch itself.

    They ask it whether it compiles them; it does not. Where it is imported already nothing is changed.
    """
    name = "torch._dynamo"
    if name in sys.modules:
        yield
        return
    stand_in = _NoCompiler(name)
    kept: Tuple[str, ...] = (name, f"{name}.utils")
    stand_in.__dict__.update(utils=stand_in, __path__=[])
    for each in kept:
        sys.modules[each] = stand_in
    torch.__dict__["_dynamo"] = stand_in
    try:
        yield
    finally:
        for each in kept:
            sys.modules.pop(each, None)
        torch.__dict__.pop("_dynamo", None)
