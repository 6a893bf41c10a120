"""What a run is asked for: the same on every device of every node, so that results can be compared."""

from __future__ import annotations

import fnmatch
from typing import Any, Dict, List, Mapping, NamedTuple, Tuple

# What `--only` takes: the operations of these names, and everything else.
MEMORY, COPIES, KERNELS = "memory", "copies", "kernels"
PARTS = (KERNELS, MEMORY, COPIES)

# One seed for all: digests of different nodes are only then digests of the same work.
SEED = 20260101
DEFAULT_BUDGET_S = 30
_LEAST_CASE_S = 2.0

# Cases between devices: they run when every device has done its own.
BETWEEN_DEVICES = "copies/peer"


class Plan(NamedTuple):
    """What a run is asked for.

    Attributes:
        parts: of PARTS, which are wanted.
        ops: patterns of case names, `gemm/bf16/*`; empty for all but those that run on request.
        repeats: how often each case runs; 0 for the device's own number.
        memory_permille: how much of the free memory the pattern test takes, in thousandths.
        budget_s: after so many seconds the run has ended, whatever is left.
        compile: whether what torch.compile makes is tried as well.
        seed: of the counter hash.
    """

    parts: Tuple[str, ...] = PARTS
    ops: Tuple[str, ...] = ()
    repeats: int = 0
    memory_permille: int = 900
    budget_s: int = DEFAULT_BUDGET_S
    compile: bool = False
    seed: int = SEED

    @property
    def case_limit_s(self) -> float:
        """A case that has not returned after this is ended; others have the rest of the budget."""
        # A compiler's first start alone takes longer than most cases.
        return max(_LEAST_CASE_S, self.budget_s / (2 if self.compile else 3))

    def to_json(self) -> Dict[str, Any]:
        """Only strings, integers, booleans and lists."""
        row = dict(self._asdict())
        return {**row, "parts": list(self.parts), "ops": list(self.ops)}

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Plan:
        """The inverse of `to_json`; what is not there has its default.

        Raises:
            TypeError, ValueError: a value of another type, or out of range.
        """
        known = {name: row[name] for name in cls._fields if name in row}
        for name in ("parts", "ops"):
            if name in known:
                known[name] = tuple(str(each) for each in known[name])
        for name in ("repeats", "memory_permille", "budget_s", "seed"):
            if name in known:
                known[name] = int(known[name])
        plan = cls(**known)
        if not set(plan.parts) <= set(PARTS) or not 0 < plan.memory_permille <= 1000:
            raise ValueError("a plan with parts or memory that there are not")
        if plan.budget_s < 1 or plan.repeats < 0:
            raise ValueError("a plan without time")
        return plan

    def wants(self, case: str, *, on_request: bool) -> bool:
        """Whether a case is part of the run."""
        part = case.split("/", 1)[0]
        if (part if part in (MEMORY, COPIES) else KERNELS) not in self.parts:
            return False
        if self.ops:
            return any(fnmatch.fnmatchcase(case, pattern) for pattern in widened(self.ops))
        return self.compile or not on_request


def widened(ops: Tuple[str, ...]) -> List[str]:
    """`gemm` also means all that is below it, `gemm/*`."""
    return [pattern for each in ops for pattern in (each, f"{each.rstrip('/')}/*")]


def plan_of(options: Mapping[str, Any]) -> Plan:
    """The plan that the request's options describe; the probe's options are single words and numbers.

    Raises:
        TypeError, ValueError: they describe none.
    """
    row: Dict[str, Any] = {}
    for name in ("parts", "ops"):
        text = options.get(f"check_{name}")
        if text:
            row[name] = [part for part in str(text).split(",") if part]
    for name in ("repeats", "memory_permille", "budget_s", "compile"):
        if f"check_{name}" in options:
            row[name] = options[f"check_{name}"]
    return Plan.from_json(row)


def options_of(plan: Plan) -> Dict[str, Any]:
    """The inverse of `plan_of`."""
    row = plan.to_json()
    said: Dict[str, Any] = {f"check_{name}": ",".join(row[name]) for name in ("parts", "ops") if row[name]}
    return {
        **said,
        **{f"check_{name}": row[name] for name in ("repeats", "memory_permille", "budget_s", "compile")},
    }
