"""Faults at one rank, by wrapping `torch.distributed` there: ten that are the rank's own, and one of a link.

Calls of the wrapped functions are spoilt, each at another place: `random` is seeded by the trial.
"""

from __future__ import annotations

from random import Random
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

# What the rank puts in, what it gets out, how it reduces, and what arrives from one other rank.
OF_INPUT = ("dropped", "doubled", "stale", "shifted", "flip_in", "flip_16")
OF_OUTPUT = ("flip_out", "swap", "wrong_source")
WRONG_OP, LINK = "wrong_op", "link"
KINDS = (*OF_INPUT, *OF_OUTPUT, WRONG_OP, LINK)


class Fault(NamedTuple):
    """What is wrong at this rank.

    Attributes:
        kind: of KINDS.
        seed: of the places.
        source: of LINK: the rank, in the group at hand, whose data arrives spoilt; -1 when it is not in it.
        permille: how many of a thousand calls are spoilt.
    """

    kind: str
    seed: int
    source: int = -1
    permille: int = 1000


class Armed:
    """`torch.distributed` with a fault, until `disarm`."""

    def __init__(self, fault: Fault) -> None:
        import torch.distributed as dist

        self._fault = fault
        self._random = Random(fault.seed)
        self._kept: Dict[Tuple[Any, ...], Any] = {}
        self._real: Dict[str, Callable[..., Any]] = {}
        self._dist = dist
        for name, wrap in self._wrappers().items():
            if hasattr(dist, name):
                self._real[name] = getattr(dist, name)
                setattr(dist, name, wrap(self._real[name]))

    def disarm(self) -> None:
        """As it was."""
        for name, real in self._real.items():
            setattr(self._dist, name, real)

    def _wrappers(self) -> Dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]]:
        out_in = ("all_gather_single", "all_gather_into_tensor", "_all_gather_base", "all_to_all_single")
        reducing = ("reduce_scatter_single", "reduce_scatter_tensor", "_reduce_scatter_base")
        return {
            "all_reduce": self._in_place,
            "reduce": self._reduce,
            "broadcast": self._broadcast,
            "all_gather": self._listed,
            "reduce_scatter": self._reduce_list,
            "send": self._send,
            "recv": self._recv,
            **dict.fromkeys(out_in, self._gather),
            **dict.fromkeys(reducing, self._reduce_scatter),
        }

    def _in_place(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(tensor: Any, op: Any) -> None:
            self._before([tensor])
            real(tensor, op=self._op(op))
            self._after([tensor], single=True)

        return call

    def _reduce(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(tensor: Any, root: int, op: Any) -> None:
            self._before([tensor])
            real(tensor, root, op=self._op(op))
            if self._dist.get_rank() == root:
                self._after([tensor], single=True)

        return call

    def _broadcast(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(tensor: Any, root: int) -> None:
            here = self._dist.get_rank()
            if here == root:
                self._before([tensor])
            real(tensor, root)
            if here != root:
                self._after([tensor], single=True, source=root)

        return call

    def _listed(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(parts: List[Any], tensor: Any) -> None:
            self._before([tensor])
            real(parts, tensor)
            self._after(parts)

        return call

    def _gather(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(out: Any, given: Any) -> None:
            self._before([given])
            real(out, given)
            self._after(list(out.split(out.numel() // self._dist.get_world_size())))

        return call

    def _reduce_list(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(out: Any, given: List[Any], op: Any) -> None:
            self._before(given)
            real(out, given, op=self._op(op))
            self._after([out], single=True)

        return call

    def _reduce_scatter(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(out: Any, given: Any, op: Any) -> None:
            self._before([given])
            real(out, given, op=self._op(op))
            self._after([out], single=True)

        return call

    def _send(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(tensor: Any, to: int) -> None:
            self._before([tensor])
            real(tensor, to)

        return call

    def _recv(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(tensor: Any, source: int) -> None:
            real(tensor, source)
            self._after([tensor], single=True, source=source)

        return call

    def _op(self, op: Any) -> Any:
        if self._fault.kind != WRONG_OP or not self._strikes():
            return op
        reduce_op = self._dist.ReduceOp
        return reduce_op.MAX if op in (reduce_op.SUM, reduce_op.AVG, reduce_op.PRODUCT) else reduce_op.SUM

    def _strikes(self) -> bool:
        return self._random.randrange(1000) < self._fault.permille

    def _before(self, given: List[Any]) -> None:
        if self._fault.kind in OF_INPUT and self._strikes():
            for tensor in given:
                self._spoil(tensor)

    def _spoil(self, tensor: Any) -> None:
        import torch

        kind = self._fault.kind
        if kind == "dropped":
            tensor.zero_()
        elif kind == "doubled":
            tensor.add_(tensor.clone())
        elif kind == "shifted":
            tensor.copy_(torch.roll(tensor, 1))
        elif kind == "stale":
            key = (tensor.dtype, tensor.numel())
            before = self._kept.get(key)
            self._kept[key] = tensor.clone()
            tensor.copy_(torch.roll(tensor, 7) if before is None else before)
        elif kind == "flip_in":
            self._flip(tensor, 1)
        else:
            self._flip(tensor, 16)

    def _after(self, parts: List[Any], single: bool = False, source: Optional[int] = None) -> None:
        kind = self._fault.kind
        if kind in OF_INPUT or not self._strikes():
            return
        if kind == "flip_out":
            self._flip(self._random.choice(parts), 1)
        elif kind == "swap":
            self._swap(self._random.choice(parts))
        elif kind == "wrong_source" and not single and len(parts) > 1:
            one, two = self._random.sample(parts, 2)
            copy = one.clone()
            one.copy_(two)
            two.copy_(copy)
        elif kind == LINK and self._fault.source >= 0:
            if not single:
                self._flip(parts[self._fault.source], 8)
            elif source == self._fault.source:
                self._flip(parts[0], 8)

    def _flip(self, tensor: Any, bits: int) -> None:
        """Flips neighbouring bits from a random one on, within one element; a bool's only one."""
        import torch

        from envaudit.checks.bits import integer_view

        place = self._random.randrange(tensor.numel())
        if tensor.dtype == torch.bool:
            tensor[place] = ~tensor[place]
            return
        view = integer_view(tensor)
        width = 8 * tensor.element_size()
        start = self._random.randrange(max(1, width - bits + 1))
        mask = ((1 << min(bits, width)) - 1) << start
        view[place] ^= mask - (1 << width) if mask >> (width - 1) else mask

    def _swap(self, tensor: Any) -> None:
        """Two neighbours that differ change places."""
        for _ in range(100):
            if tensor.numel() < 2:
                return
            place = self._random.randrange(tensor.numel() - 1)
            pair = tensor[place : place + 2].clone()
            if bool(pair[0] != pair[1]):
                tensor[place : place + 2] = pair.flip(0)
                return
