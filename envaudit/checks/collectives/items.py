"""What a run of collectives is asked for, and the one list of items that all ranks go through in order.

The list is a design that covers, not the product of everything: every reduction and every dtype at one
size, and every size at every offset in one dtype. With sizes given by hand each dtype is tried at each.
"""

from __future__ import annotations

import fnmatch
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

from envaudit.checks.collectives.contribution import AVG, REDUCIBLE, REDUCTIONS, SUM
from envaudit.checks.plan import SEED, widened

ALL_REDUCE, REDUCE, REDUCE_SCATTER = "all_reduce", "reduce", "reduce_scatter"
ALL_GATHER, BROADCAST, ALL_TO_ALL, SEND_RECV = "all_gather", "broadcast", "all_to_all", "send_recv"
BARRIER, DDP = "barrier", "ddp"
REDUCING = (ALL_REDUCE, REDUCE, REDUCE_SCATTER)
OPS = (BARRIER, ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE, ALL_TO_ALL, SEND_RECV, DDP)
# One block for each rank, in or out: their size is that of a block.
BLOCKED = (ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL)

# Bytes of an element.
WIDTHS: Dict[str, int] = {
    "fp64": 8,
    "fp32": 4,
    "fp16": 2,
    "bf16": 2,
    "e4m3": 1,
    "e5m2": 1,
    "int64": 8,
    "int32": 4,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
DTYPES = tuple(WIDTHS)
_FLOATS = ("fp64", "fp32", "fp16", "bf16", "e4m3", "e5m2")

# One element; fewer than there are lanes; around a page, a chunk and a pipeline slice, never a multiple of
# any. On GPUs also what reaches every protocol of NCCL: LL, LL128 and Simple (32 and 256 MiB of fp32).
CPU_SIZES = (1, 3, 1021, 4097, 65537)
GPU_SIZES = (*CPU_SIZES, 2**20 + 7, 2**23, 2**26)
OFFSETS = (0, 1)
CPU_CAP, GPU_CAP = 65537, 2**26
_BASE_SIZE = 1021
_SWEPT = "fp32"
# Elements of all blocks together, as a multiple of the cap on the CPU.
_BLOCKS_ON_CPU = 8
# Up to here a repeat costs nothing that is felt.
_GPU_REPEATS = 3


class CollectivePlan(NamedTuple):
    """What a run is asked for; the same on every rank.

    Attributes:
        sizes: elements of a buffer, of one rank's block where an operation has one for each rank; empty for
            the backend's own.
        dtypes: names of DTYPES; empty for all.
        ops: patterns of item names, `all_reduce/sum/*`; empty for all.
        offsets: elements by which a buffer begins behind its allocation; empty for OFFSETS.
        cap: sizes above are left out; 0 for the backend's own.
        repeats: how often each item runs; 0 for the backend's own.
        seed: of the counter hash.
        ddp: whether a DistributedDataParallel step is made at the end.
    """

    sizes: Tuple[int, ...] = ()
    dtypes: Tuple[str, ...] = ()
    ops: Tuple[str, ...] = ()
    offsets: Tuple[int, ...] = ()
    cap: int = 0
    repeats: int = 0
    seed: int = SEED
    ddp: bool = True

    def to_json(self) -> Dict[str, Any]:
        """Only strings, integers, booleans and lists."""
        row = dict(self._asdict())
        return {key: list(value) if isinstance(value, tuple) else value for key, value in row.items()}

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> CollectivePlan:
        """The inverse of `to_json`; what is not there has its default.

        Raises:
            TypeError, ValueError: a value of another type, out of range, or a dtype that there is not.
        """
        known: Dict[str, Any] = {name: row[name] for name in cls._fields if name in row}
        for name, kind in (("sizes", int), ("offsets", int), ("dtypes", str), ("ops", str)):
            if name in known:
                known[name] = tuple(kind(each) for each in known[name])
        for name in ("cap", "repeats", "seed"):
            if name in known:
                known[name] = int(known[name])
        plan = cls(**known)
        unknown = set(plan.dtypes) - set(DTYPES)
        if unknown:
            raise ValueError(f"no dtype {', '.join(sorted(unknown))}: {', '.join(DTYPES)}")
        if any(not 1 <= size <= 2**31 for size in plan.sizes) or any(
            not 0 <= at <= 64 for at in plan.offsets
        ):
            raise ValueError("a size below 1, or an offset that is not from 0 to 64")
        if not 0 <= plan.repeats <= 1000 or plan.cap < 0:
            raise ValueError("a plan with repeats or a cap below 0, or more than 1000 repeats")
        return plan

    def wants(self, name: str) -> bool:
        """Whether an item is part of the run."""
        return not self.ops or any(fnmatch.fnmatchcase(name, pattern) for pattern in widened(self.ops))

    def repeats_on(self, backend: str) -> int:
        """How often each item runs."""
        return self.repeats or (_GPU_REPEATS if backend == "nccl" else 1)


class Item(NamedTuple):
    """One collective of the list.

    Attributes:
        op: of OPS.
        reduction: of REDUCTIONS; empty where nothing is reduced.
        dtype: of DTYPES; empty for `barrier` and `ddp`.
        size: elements of the buffer, or of one rank's block.
        offset: elements by which it begins behind its allocation.
        not_run: why it must not be tried; empty where it may be.
    """

    op: str
    reduction: str = ""
    dtype: str = ""
    size: int = 0
    offset: int = 0
    not_run: str = ""

    @property
    def name(self) -> str:
        """`all_reduce/sum/fp32/65537+1`, `all_gather/bf16/1021+0`, `barrier`."""
        parts = [self.op, self.reduction, self.dtype]
        if self.dtype:
            parts.append(f"{self.size}+{self.offset}")
        return "/".join(part for part in parts if part)

    @property
    def kind(self) -> Tuple[str, str, str]:
        """What a backend takes or does not: operation, reduction, dtype."""
        return self.op, self.reduction, self.dtype


def items(plan: CollectivePlan, backend: str, world: int, cuda: bool) -> List[Item]:
    """All items in the order in which every rank goes through them; pure, so equal on every rank.

    Args:
        plan: what is asked for.
        backend: "nccl" or "gloo".
        world: how many ranks there are.
        cuda: whether buffers lie on GPUs.
    """
    found = [Item(BARRIER)]
    on_gpu = cuda or backend == "nccl"
    for op in OPS:
        if op in (BARRIER, DDP):
            continue
        sizes = _sizes(plan, op, world, on_gpu)
        seen = set()
        for item in (*_every_kind(plan, op, sizes), *_every_size(plan, op, sizes)):
            if item.name not in seen:
                seen.add(item.name)
                found.append(item)
    if plan.ddp:
        found.append(Item(DDP))
    wanted = [item for item in found if plan.wants(item.name)]
    alone = "needs two ranks"
    return [item._replace(not_run=alone) if world < 2 and item.op == SEND_RECV else item for item in wanted]


def item_of(name: str) -> Item:
    """The item of a name, the inverse of `Item.name`.

    Raises:
        ValueError: it is the name of none.
    """
    parts = name.split("/")
    if parts[0] not in OPS:
        raise ValueError(f"no collective {parts[0]!r}")
    if parts[0] in (BARRIER, DDP):
        return Item(parts[0])
    reduction = parts.pop(1) if parts[0] in REDUCING else ""
    op, dtype, place = parts
    size, _, offset = place.partition("+")
    return Item(op, reduction, dtype, int(size), int(offset))


def narrowed(plan: CollectivePlan, wrong: Sequence[str]) -> CollectivePlan:
    """The plan of a pair of ranks: the items that came out wrong, and always all_gather and all_reduce."""
    base = ("all_gather/fp32/*+0", "all_reduce/sum/fp32/*+0", "all_to_all/fp32/*+0", "send_recv/fp32/*+0")
    kinds = tuple(dict.fromkeys(f"{name.rpartition('/')[0] or name}/*" for name in wrong if name != DDP))
    return plan._replace(ops=(*base, *kinds[:64]), ddp=False)


def options_of(plan: CollectivePlan) -> Dict[str, Any]:
    """The plan as options of a request, single words and numbers; `plan_of` reads them."""
    row = plan.to_json()
    said: Dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, list):
            if value:
                said[f"collective_{name}"] = ",".join(map(str, value))
        else:
            said[f"collective_{name}"] = value
    return said


def plan_of(options: Mapping[str, Any]) -> CollectivePlan:
    """The inverse of `options_of`.

    Raises:
        TypeError, ValueError: they describe no plan.
    """
    row: Dict[str, Any] = {}
    for name in CollectivePlan._fields:
        value = options.get(f"collective_{name}")
        if value is None:
            continue
        many = name in ("sizes", "dtypes", "ops", "offsets")
        row[name] = [part for part in str(value).split(",") if part] if many else value
    return CollectivePlan.from_json(row)


def _sizes(plan: CollectivePlan, op: str, world: int, on_gpu: bool) -> Tuple[int, ...]:
    sizes = sorted(set(plan.sizes or (GPU_SIZES if on_gpu else CPU_SIZES)))
    cap = plan.cap or (max(plan.sizes) if plan.sizes else GPU_CAP if on_gpu else CPU_CAP)
    if op in BLOCKED and not plan.sizes:
        cap = max(1, min(cap, (GPU_CAP if on_gpu else CPU_CAP * _BLOCKS_ON_CPU) // world))
    return tuple(size for size in sizes if size <= cap) or (min(sizes[0], cap),)


def _dtypes(plan: CollectivePlan, op: str) -> List[str]:
    able = REDUCIBLE if op in REDUCING else DTYPES
    return [name for name in DTYPES if name in able and (not plan.dtypes or name in plan.dtypes)]


def _every_kind(plan: CollectivePlan, op: str, sizes: Tuple[int, ...]) -> Iterator[Item]:
    """Every reduction in every dtype; `reduce` and `reduce_scatter` share all_reduce's arithmetic."""
    for dtype in _dtypes(plan, op):
        for reduction in REDUCTIONS if op in REDUCING else ("",):
            if reduction == AVG and dtype not in _FLOATS:
                continue
            rare = reduction not in ("", SUM) and op != ALL_REDUCE
            if rare and dtype != _swept(plan, op):
                continue
            for size in (plan.sizes and sizes) or (
                max((s for s in sizes if s <= _BASE_SIZE), default=sizes[0]),
            ):
                yield Item(op, reduction, dtype, size, (plan.offsets or OFFSETS)[0])


def _every_size(plan: CollectivePlan, op: str, sizes: Tuple[int, ...]) -> Iterator[Item]:
    dtype = _swept(plan, op)
    for size in sizes if dtype else ():
        for offset in plan.offsets or OFFSETS:
            yield Item(op, SUM if op in REDUCING else "", dtype, size, offset)


def _swept(plan: CollectivePlan, op: str) -> str:
    able = _dtypes(plan, op)
    return _SWEPT if _SWEPT in able else (able[0] if able else "")
