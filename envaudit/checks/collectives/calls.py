"""Each collective as a call with its buffers: filled, poisoned, guarded, and what must come out of it.

`torch.distributed` is asked for its functions at the moment of the call, so that whoever replaced one
(a profiler, a fault that a test injects) is what is tried.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, NamedTuple

from envaudit.checks.collectives import items as names
from envaudit.checks.collectives.contribution import Law, law_of
from envaudit.checks.collectives.items import Item
from envaudit.checks.collectives.reference import (
    ALL,
    Block,
    contributed,
    pattern,
    reduction_block,
    torch_dtype,
)
from envaudit.checks.counterhash import derive

# What a buffer holds before: a collective that writes nothing, or beside its buffer, is seen.
_POISON = 0x5A
_GUARD = 16

# How a blocked collective is called: with one tensor of all blocks, or with a list of tensors.
TENSOR, LIST = "tensor", "list"


class Scene(NamedTuple):
    """Where a collective runs.

    Attributes:
        rank: this one.
        world: how many there are.
        device: `cpu` or `cuda:3`.
        backend: "nccl" or "gloo".
        forms: TENSOR or LIST for all_gather and reduce_scatter, the same on all ranks.
    """

    rank: int
    world: int
    device: str
    backend: str
    forms: Mapping[str, str]


class Buffer(NamedTuple):
    """An allocation, and the part of it that a collective may touch."""

    whole: Any
    view: Any
    offset: int

    def intact(self) -> bool:
        """Whether nothing was written beside the view."""
        import torch

        raw = self.whole.view(torch.uint8)
        width = self.whole.element_size()
        end = (self.offset + self.view.numel()) * width
        poison = _poison(self.whole.dtype)
        beside = torch.cat((raw[: self.offset * width], raw[end:]))
        return bool((beside == poison).all())


class Call(NamedTuple):
    """A collective ready to run.

    Attributes:
        run: runs it and returns when this rank may use what came out.
        blocks: makes what came out and what must, after it has run; empty where this rank gets nothing.
        buffers: all that it may write to.
        size_bytes: S of nccl-tests: the buffer, or all blocks together.
        law: of a reduction.
    """

    run: Callable[[], None]
    blocks: Callable[[], List[Block]]
    buffers: List[Buffer]
    size_bytes: int
    law: Any = None


def root_of(item: Item, world: int) -> int:
    """The rank that broadcasts or that a reduction ends at: another one for another item."""
    return derive(0, item.name) % world


def seed_of(plan_seed: int, item: Item, repeat: int) -> int:
    """A seed of its own for each call, so that what an earlier one left behind is never right."""
    return derive(plan_seed, f"{item.name}#{repeat}")


def call_of(item: Item, scene: Scene, seed: int) -> Call:
    """The call of an item with fresh buffers.

    Raises:
        KeyError: the item is no collective of this module (`ddp`).
    """
    return _MAKERS[item.op](item, scene, seed)


def buffer(item: Item, scene: Scene, count: int) -> Buffer:
    """`count` elements, `item.offset` behind the start of an allocation, poisoned."""
    import torch

    kind = torch_dtype(item.dtype)
    width = names.WIDTHS[item.dtype]
    total = (item.offset + count + _GUARD) * width
    raw = torch.full((total,), _poison(kind), dtype=torch.uint8, device=scene.device)
    whole = raw.view(kind)
    return Buffer(whole, whole[item.offset : item.offset + count], item.offset)


def _poison(kind: Any) -> int:
    import torch

    return 1 if kind == torch.bool else _POISON


def _filled(item: Item, scene: Scene, content: Any) -> Buffer:
    made = buffer(item, scene, content.numel())
    made.view.copy_(content)
    return made


def _barrier(item: Item, scene: Scene, seed: int) -> Call:
    def run() -> None:
        import torch.distributed as dist

        dist.barrier()

    return Call(run, list, [], 0)


def _law(item: Item, scene: Scene, seed: int) -> Law:
    return law_of(scene.world, item.dtype, item.reduction, seed)


def _operation(item: Item) -> Any:
    import torch.distributed as dist

    return getattr(dist.ReduceOp, item.reduction.upper())


def _first(dist: Any, *called: str) -> Any:
    """The function under the newest of its names that this torch has."""
    return next(getattr(dist, name) for name in called if hasattr(dist, name))


def _all_reduce(item: Item, scene: Scene, seed: int) -> Call:
    law = _law(item, scene, seed)
    made = _filled(item, scene, contributed(law, scene.rank, item.size, item.dtype, scene.device))

    def run() -> None:
        import torch.distributed as dist

        dist.all_reduce(made.view, op=_operation(item))

    def blocks() -> List[Block]:
        return [reduction_block(law, item.reduction, item.dtype, made.view)]

    return Call(run, blocks, [made], item.size * names.WIDTHS[item.dtype], law)


def _reduce(item: Item, scene: Scene, seed: int) -> Call:
    law = _law(item, scene, seed)
    made = _filled(item, scene, contributed(law, scene.rank, item.size, item.dtype, scene.device))
    root = root_of(item, scene.world)

    def run() -> None:
        import torch.distributed as dist

        dist.reduce(made.view, root, op=_operation(item))

    def blocks() -> List[Block]:
        # Elsewhere the buffer holds whatever the algorithm left there.
        return [reduction_block(law, item.reduction, item.dtype, made.view)] if scene.rank == root else []

    return Call(run, blocks, [made], item.size * names.WIDTHS[item.dtype], law)


def _reduce_scatter(item: Item, scene: Scene, seed: int) -> Call:
    law = _law(item, scene, seed)
    total = item.size * scene.world
    given = _filled(item, scene, contributed(law, scene.rank, total, item.dtype, scene.device))
    taken = buffer(item, scene, item.size)

    def run() -> None:
        import torch.distributed as dist

        if scene.forms[item.op] == TENSOR:
            _first(dist, "reduce_scatter_single", "reduce_scatter_tensor", "_reduce_scatter_base")(
                taken.view, given.view, op=_operation(item)
            )
        else:
            parts = list(given.view.split(item.size))
            dist.reduce_scatter(taken.view, parts, op=_operation(item))

    def blocks() -> List[Block]:
        start = scene.rank * item.size
        return [reduction_block(law, item.reduction, item.dtype, taken.view, start)]

    return Call(run, blocks, [given, taken], total * names.WIDTHS[item.dtype], law)


def _all_gather(item: Item, scene: Scene, seed: int) -> Call:
    own = pattern(seed, scene.rank, ALL, item.size, item.dtype, scene.device)
    given = _filled(item, scene, own)
    taken = buffer(item, scene, item.size * scene.world)
    parts = list(taken.view.split(item.size))

    def run() -> None:
        import torch.distributed as dist

        if scene.forms[item.op] == TENSOR:
            _first(dist, "all_gather_single", "all_gather_into_tensor", "_all_gather_base")(
                taken.view, given.view
            )
        else:
            dist.all_gather(parts, given.view)

    def blocks() -> List[Block]:
        return [
            Block(source, part, pattern(seed, source, ALL, item.size, item.dtype, scene.device))
            for source, part in enumerate(parts)
        ]

    total = item.size * scene.world * names.WIDTHS[item.dtype]
    return Call(run, blocks, [given, taken], total)


def _broadcast(item: Item, scene: Scene, seed: int) -> Call:
    root = root_of(item, scene.world)
    sent = pattern(seed, root, ALL, item.size, item.dtype, scene.device)
    made = _filled(item, scene, sent) if scene.rank == root else buffer(item, scene, item.size)

    def run() -> None:
        import torch.distributed as dist

        dist.broadcast(made.view, root)

    return Call(run, lambda: [Block(root, made.view, sent)], [made], item.size * names.WIDTHS[item.dtype])


def _all_to_all(item: Item, scene: Scene, seed: int) -> Call:
    import torch

    def drawn(source: int, destination: int) -> Any:
        return pattern(seed, source, destination, item.size, item.dtype, scene.device)

    own = torch.cat([drawn(scene.rank, destination) for destination in range(scene.world)])
    given = _filled(item, scene, own)
    taken = buffer(item, scene, item.size * scene.world)

    def run() -> None:
        import torch.distributed as dist

        dist.all_to_all_single(taken.view, given.view)

    def blocks() -> List[Block]:
        parts = taken.view.split(item.size)
        return [Block(source, part, drawn(source, scene.rank)) for source, part in enumerate(parts)]

    return Call(run, blocks, [given, taken], item.size * scene.world * names.WIDTHS[item.dtype])


def _send_recv(item: Item, scene: Scene, seed: int) -> Call:
    """Each rank sends to the next and receives from the one before."""
    after, before = (scene.rank + 1) % scene.world, (scene.rank - 1) % scene.world
    given = _filled(item, scene, pattern(seed, scene.rank, after, item.size, item.dtype, scene.device))
    taken = buffer(item, scene, item.size)

    def run() -> None:
        import torch.distributed as dist

        if scene.backend == "nccl":
            both = [dist.P2POp(dist.isend, given.view, after), dist.P2POp(dist.irecv, taken.view, before)]
            for work in dist.batch_isend_irecv(both):
                work.wait()
        elif scene.rank % 2 == 0:
            dist.send(given.view, after)
            dist.recv(taken.view, before)
        else:
            # Half of them listen first, or all would wait to be heard.
            dist.recv(taken.view, before)
            dist.send(given.view, after)

    def blocks() -> List[Block]:
        sent = pattern(seed, before, scene.rank, item.size, item.dtype, scene.device)
        return [Block(before, taken.view, sent)]

    return Call(run, blocks, [given, taken], item.size * names.WIDTHS[item.dtype])


_MAKERS: Dict[str, Callable[[Item, Scene, int], Call]] = {
    names.BARRIER: _barrier,
    names.ALL_REDUCE: _all_reduce,
    names.REDUCE: _reduce,
    names.REDUCE_SCATTER: _reduce_scatter,
    names.ALL_GATHER: _all_gather,
    names.BROADCAST: _broadcast,
    names.ALL_TO_ALL: _all_to_all,
    names.SEND_RECV: _send_recv,
}
