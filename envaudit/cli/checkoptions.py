"""The options of `envaudit check`, and what they ask for: kernels, collectives, path MTUs."""

from __future__ import annotations

import argparse
import re
from fnmatch import fnmatchcase
from typing import Any, Collection, Dict, List, NamedTuple, Tuple

from envaudit.checks.collectives.items import DTYPES, OPS, CollectivePlan
from envaudit.checks.collectives.layout import Limits
from envaudit.checks.plan import DEFAULT_BUDGET_S, PARTS, Plan
from envaudit.checks.registry import operation_names
from envaudit.cli.seat import add_seat_options, local_ranks
from envaudit.errors import UsageError

COLLECTIVES, MTU = "collectives", "mtu"
ALL_PARTS = (*PARTS, COLLECTIVES, MTU)

_MAX_BUDGET_S = 3000
_MAX_SIZE = 2**31
# What a run has of its times where nobody says otherwise; `--total` bounds the collectives alone.
_TIMES = {
    "join": ("join_s", "until all nodes are at the hub"),
    # torchrun has two options that begin so, and refuses what it takes for a short form of both.
    "start": ("start_s", "until all ranks are in their process group; torchrun needs -- before the script"),
    "stall": ("stall_s", "how long a rank may be silent or stand still"),
    "total": ("total_s", "until the collectives are through; then they are ended"),
}


class CheckAsk(NamedTuple):
    """What is asked for.

    Attributes:
        kernels: whether single devices are checked.
        plan: with which operations.
        collectives: whether ranks are to talk to each other.
        requested: whether that was asked for by name, so that a run without it is incomplete.
        collective_plan: with which operations.
        mtu: whether path MTUs are probed.
        limits: how long what of a run of several nodes may last.
        local_ranks: on each node; 0 for one a GPU, and one on a node without.
    """

    kernels: bool
    plan: Plan
    collectives: bool
    requested: bool
    collective_plan: CollectivePlan
    mtu: bool
    limits: Limits
    local_ranks: int

    @property
    def meets(self) -> bool:
        """Whether nodes have to meet for it."""
        return self.collectives or self.mtu

    @property
    def sections(self) -> Tuple[str, ...]:
        """The sections that say what came of it."""
        return tuple(name for name, on in (("checks", self.kernels), (COLLECTIVES, self.meets)) if on)

    @property
    def longest_s(self) -> int:
        """How long all of it may take on a node, where nothing hangs beyond its limit."""
        kernels_s = self.plan.budget_s if self.kernels else 0
        return kernels_s + (int(sum(self.limits)) if self.meets else 0)


def add_check_options(parser: argparse.ArgumentParser) -> None:
    """What is run, and how ranks meet."""
    group = parser.add_argument_group("what is run")
    group.add_argument(
        "--only",
        type=_parts,
        metavar="PARTS",
        help=f"of {', '.join(ALL_PARTS)}; default: all of them but {MTU}",
    )
    group.add_argument(
        "--ops",
        action="append",
        type=_patterns,
        default=[],
        metavar="GLOB",
        help="operations such as 'gemm/bf16/*' or 'all_reduce'; repeatable",
    )
    group.add_argument(
        "--repeats",
        type=_repeats,
        default=0,
        metavar="N",
        help="runs of each operation (default: 50 on a GPU)",
    )
    group.add_argument(
        "--memory",
        type=_permille,
        default=Plan().memory_permille,
        metavar="FRACTION",
        help="part of the free memory that is tested (default: 0.9)",
    )
    group.add_argument(
        "--budget",
        type=_budget,
        default=DEFAULT_BUDGET_S,
        metavar="SECONDS",
        help=f"of kernels, what is not through by then is listed as not run (default: {DEFAULT_BUDGET_S})",
    )
    group.add_argument("--compile", action="store_true", help="also what torch.compile makes")
    _add_collective_options(parser)


def _add_collective_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("collectives")
    group.add_argument(
        "--nproc", type=local_ranks, metavar="N", help="ranks on this machine (default: one a GPU)"
    )
    add_seat_options(group)
    group.add_argument("--sizes", type=_sizes, metavar="N,N", help="elements of each buffer")
    group.add_argument("--dtypes", type=_dtypes, metavar="NAMES", help=f"of {', '.join(DTYPES)}")
    group.add_argument("--mtu-probe", action="store_true", help="the path MTU between every two nodes")
    for name, (field, meaning) in _TIMES.items():
        usual = int(getattr(Limits(), field))
        group.add_argument(
            f"--{name}",
            type=_seconds,
            default=usual,
            metavar="SECONDS",
            help=f"{meaning} (default: {usual})",
        )


def asked_by(options: argparse.Namespace) -> CheckAsk:
    """What the options ask for.

    Raises:
        UsageError: they contradict each other.
    """
    if options.nproc and options.nproc_per_node:
        raise UsageError("--nproc is for this machine alone, --nproc-per-node for several nodes")
    if options.nproc and (options.nodes or options.hostfile or options.all):
        raise UsageError("--nproc is for this machine alone", next_step="Give --nproc-per-node for nodes.")
    patterns = tuple(pattern for each in options.ops for pattern in each)
    own, shared = _by_kind(patterns)
    parts = options.only or tuple(part for part in ALL_PARTS if part != MTU)
    kernel_parts = tuple(part for part in PARTS if part in parts)
    _refuse_idle(set(own) - set(shared) if not kernel_parts else (), parts)
    _refuse_idle(set(shared) - set(own) if COLLECTIVES not in parts else (), parts)
    requested = bool(options.only and COLLECTIVES in options.only) or bool(shared and not own)
    requested = requested or bool(options.nproc or options.nproc_per_node or options.sizes or options.dtypes)
    return CheckAsk(
        # Names of collectives alone ask for no kernel, and the other way round.
        kernels=bool(kernel_parts) and (bool(own) or not patterns),
        plan=Plan(
            parts=kernel_parts or PARTS,
            ops=own,
            repeats=options.repeats,
            memory_permille=options.memory,
            budget_s=options.budget,
            compile=options.compile,
        ),
        collectives=COLLECTIVES in parts and (bool(shared) or not patterns),
        requested=requested,
        collective_plan=CollectivePlan(
            sizes=options.sizes or (),
            dtypes=options.dtypes or (),
            ops=shared,
            repeats=min(options.repeats, 1000),
        ),
        mtu=options.mtu_probe or MTU in parts,
        limits=Limits(**{field: float(getattr(options, name)) for name, (field, _) in _TIMES.items()}),
        local_ranks=options.nproc or options.nproc_per_node or 0,
    )


def _by_kind(patterns: Tuple[str, ...]) -> Tuple[Tuple[str, ...], Tuple[str, ...]]:
    """The patterns of kernels, and those of collectives; a name that is neither is asked of kernels."""
    own: List[str] = []
    shared: List[str] = []
    families = operation_names()
    for pattern in patterns:
        first = pattern.split("/", 1)[0]
        is_shared = any(fnmatchcase(op, first) for op in OPS)
        if is_shared:
            shared.append(pattern)
        if not is_shared or any(fnmatchcase(family, first) for family in families):
            own.append(pattern)
    return tuple(own), tuple(shared)


def _refuse_idle(patterns: Collection[str], parts: Tuple[str, ...]) -> None:
    """Refuse names that no part of `--only` would look for: a run of nothing else would look well."""
    if patterns:
        raise UsageError(
            f"no operation of {', '.join(parts)} is called so",
            where=f"--ops {','.join(sorted(patterns))}",
            next_step="Correct the name or --only; without --ops all operations are run.",
        )


def times_of(limits: Limits) -> Dict[str, int]:
    """The limits by the names of their options."""
    return {name: int(getattr(limits, field)) for name, (field, _) in _TIMES.items()}


def _parts(text: str) -> Tuple[str, ...]:
    parts = tuple(dict.fromkeys(text.split(",")))
    if not set(parts) <= set(ALL_PARTS):
        raise argparse.ArgumentTypeError(f"expected some of {','.join(ALL_PARTS)}, got '{text}'")
    return parts


def _patterns(text: str) -> Tuple[str, ...]:
    patterns = tuple(part for part in text.split(",") if part)
    if not patterns or not re.match(r"[\w/.*?\[\]!,+-]{1,500}\Z", text):
        raise argparse.ArgumentTypeError(f"expected names such as gemm/bf16/*, got '{text}'")
    return patterns


def _sizes(text: str) -> Tuple[int, ...]:
    parts = text.split(",")
    numbers = [int(part) if re.match(r"[1-9]\d{0,10}\Z", part, re.ASCII) else 0 for part in parts]
    if len(numbers) > 64 or not all(0 < number <= _MAX_SIZE for number in numbers):
        raise argparse.ArgumentTypeError(f"expected whole numbers from 1 to {_MAX_SIZE}, got '{text}'")
    return tuple(dict.fromkeys(numbers))


def _dtypes(text: str) -> Tuple[str, ...]:
    names = tuple(dict.fromkeys(text.split(",")))
    if not set(names) <= set(DTYPES):
        raise argparse.ArgumentTypeError(f"expected some of {','.join(DTYPES)}, got '{text}'")
    return names


def _repeats(text: str) -> int:
    if not re.match(r"[1-9]\d{0,6}\Z", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 to 9999999, got '{text}'")
    return int(text)


def _permille(text: str) -> int:
    match = re.match(r"(?:0?\.\d{1,6}|1(?:\.0+)?)\Z", text, re.ASCII)
    value = round(float(text) * 1000) if match else 0
    if not 0 < value <= 1000:
        raise argparse.ArgumentTypeError(f"expected a part such as 0.9, at most 1, got '{text}'")
    return value


def _budget(text: str) -> int:
    return _time(text, 5)


def _seconds(text: str) -> int:
    return _time(text, 1)


def _time(text: str, least: int) -> int:
    match: Any = re.match(r"(\d{1,4})(s|m)?\Z", text, re.ASCII)
    value = int(match.group(1)) * (60 if match.group(2) == "m" else 1) if match else 0
    if not least <= value <= _MAX_BUDGET_S:
        raise argparse.ArgumentTypeError(f"expected {least}s to {_MAX_BUDGET_S}s, got '{text}'")
    return value
