"""What a backend takes, found by asking it in a group of this rank alone, where nobody can be left waiting.

A backend refuses a dtype or a reduction before it speaks to others, with an exception; a refusal in the
middle of a run would leave the others hanging in their call. So each kind of call is tried with three
elements in a group of one, which costs a tenth of a millisecond, and what raises is not run. All ranks
have the same torch and find the same; that they do is held against rank 0's finding, through the store.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any, Callable, Dict, List, Sequence, Tuple

from envaudit.checks.collectives import items as names
from envaudit.checks.collectives.calls import LIST, TENSOR
from envaudit.checks.collectives.ending import OTHER_CALLS
from envaudit.checks.collectives.items import Item
from envaudit.checks.collectives.reference import torch_dtype
from envaudit.checks.readiness import Unusable, last_line

_COUNT = 3
_KEY = "envaudit/able"


class Disagreement(Exception):
    """This rank's torch takes other calls than rank 0's: to go on would be to hang."""


class Abilities:
    """What one backend takes on one device.

    Attributes:
        forms: TENSOR or LIST for all_gather and reduce_scatter.
        reasons: why an operation, reduction and dtype is not taken.
    """

    def __init__(self, backend: str, device: str, seconds: float) -> None:
        """Make the group of one.

        Raises:
            Unusable: torch is built without it.
            RuntimeError: and others, when the backend cannot be had on this device.
        """
        import torch
        import torch.distributed as dist

        group = {"nccl": "ProcessGroupNCCL"}.get(backend, "ProcessGroupGloo")
        lacks = "torch.distributed" if not dist.is_available() else "" if hasattr(dist, group) else backend
        if lacks:
            raise Unusable(f"torch {torch.__version__} is built without {lacks}")

        self.forms: Dict[str, str] = {}
        self.reasons: Dict[Tuple[str, str, str], str] = {}
        self._backend = backend
        self._device = device
        limit = timedelta(seconds=seconds)
        store = dist.HashStore()
        if backend == "nccl":
            self._group = _nccl_alone(dist, store, limit)
        else:
            self._group = dist.ProcessGroupGloo(store, 0, 1, limit)

    def learn(self, wanted: Sequence[Item]) -> None:
        """Try every kind of call among the items once."""
        for op, base in (
            (names.ALL_GATHER, self._all_gather_base),
            (names.REDUCE_SCATTER, self._reduce_scatter_base),
        ):
            kinds = [item.kind for item in wanted if item.op == op]
            if kinds:
                takes_tensor = any(not self._tried(base, reduction, dtype) for _, reduction, dtype in kinds)
                self.forms[op] = TENSOR if takes_tensor else LIST
        for op, reduction, dtype in dict.fromkeys(item.kind for item in wanted if item.dtype):
            reason = self._tried(self._call(op), reduction, dtype)
            if reason:
                self.reasons[op, reduction, dtype] = reason

    def agree(self, store: Any, rank: int) -> None:
        """Hold what was found against rank 0's finding.

        Raises:
            Disagreement: it is another.
        """
        own = json.dumps([self.forms, sorted("/".join(kind) for kind in self.reasons)], sort_keys=True)
        if rank == 0:
            store.set(_KEY, own)
            return
        theirs = bytes(store.get(_KEY)).decode("utf-8", "replace")
        if theirs != own:
            raise Disagreement(f"{self._backend} here {OTHER_CALLS}: {_apart(own, theirs)}")

    def judged(self, wanted: Sequence[Item]) -> List[Item]:
        """The items, with a reason on those that the backend does not take."""
        return [
            item
            if item.not_run or item.kind not in self.reasons
            else item._replace(not_run=self.reasons[item.kind])
            for item in wanted
        ]

    def _call(self, op: str) -> Callable[[Any, str], Any]:
        calls: Dict[str, Callable[[Any, str], Any]] = {
            names.ALL_REDUCE: self._all_reduce,
            names.REDUCE: self._reduce,
            names.BROADCAST: self._broadcast,
            names.ALL_TO_ALL: self._all_to_all,
            names.ALL_GATHER: self._all_gather,
            names.REDUCE_SCATTER: self._reduce_scatter,
            # A message to oneself is not sent. gloo sends bytes, NCCL what it also broadcasts.
            names.SEND_RECV: self._nothing if self._backend == "gloo" else self._broadcast,
        }
        if self.forms.get(op) == TENSOR:
            calls[names.ALL_GATHER] = self._all_gather_base
            calls[names.REDUCE_SCATTER] = self._reduce_scatter_base
        return calls[op]

    def _tried(self, call: Callable[[Any, str], Any], reduction: str, dtype: str) -> str:
        """Why a call is not taken; empty when it is."""
        import torch

        kind = torch_dtype(dtype)
        if kind is None:
            return f"torch {torch.__version__} has no {dtype}"
        try:
            work = call(torch.ones(_COUNT).to(self._device).to(kind), reduction)
            if work is not None:
                work.wait()
            if self._backend == "nccl":
                torch.cuda.synchronize()
        except Exception as error:
            return f"{self._backend} of torch {torch.__version__} does not take it: {last_line(error)}"
        return ""

    def _all_reduce(self, tensor: Any, reduction: str) -> Any:
        return self._group.allreduce([tensor], self._options("AllreduceOptions", reduction))

    def _reduce(self, tensor: Any, reduction: str) -> Any:
        return self._group.reduce([tensor], self._options("ReduceOptions", reduction))

    def _broadcast(self, tensor: Any, reduction: str) -> Any:
        return self._group.broadcast([tensor], self._options("BroadcastOptions", ""))

    def _all_to_all(self, tensor: Any, reduction: str) -> Any:
        options = self._options("AllToAllOptions", "")
        return self._group.alltoall_base(tensor.clone(), tensor, [], [], options)

    def _all_gather(self, tensor: Any, reduction: str) -> Any:
        return self._group.allgather([[tensor.clone()]], [tensor])

    def _all_gather_base(self, tensor: Any, reduction: str) -> Any:
        return self._group._allgather_base(tensor.clone(), tensor)

    def _reduce_scatter(self, tensor: Any, reduction: str) -> Any:
        options = self._options("ReduceScatterOptions", reduction)
        return self._group.reduce_scatter([tensor.clone()], [[tensor]], options)

    def _reduce_scatter_base(self, tensor: Any, reduction: str) -> Any:
        options = self._options("ReduceScatterOptions", reduction)
        return self._group._reduce_scatter_base(tensor.clone(), tensor, options)

    def _nothing(self, tensor: Any, reduction: str) -> None:
        return None

    def _options(self, name: str, reduction: str) -> Any:
        import torch.distributed as dist

        options = getattr(dist, name, None) or getattr(dist.distributed_c10d, name)
        made = options()
        if reduction:
            made.reduceOp = getattr(dist.ReduceOp, reduction.upper())
        return made


def _nccl_alone(dist: Any, store: Any, limit: timedelta) -> Any:
    try:
        return dist.ProcessGroupNCCL(store, 0, 1, limit)
    except TypeError:  # releases that take all but the group in an object of options
        options = dist.ProcessGroupNCCL.Options()
        return dist.ProcessGroupNCCL(store, 0, 1, options)


def _apart(own: str, theirs: str) -> str:
    try:
        mine, other = (set(json.loads(text)[1]) for text in (own, theirs))
    except (ValueError, IndexError, TypeError):
        return "rank 0 said something else than its finding"
    apart = sorted(mine ^ other)
    return ", ".join(apart[:5]) or "in the form of all_gather or reduce_scatter"
