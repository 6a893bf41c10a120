"""`envaudit check`: run operations whose right answer is known, on every GPU or the CPU of nodes."""

from __future__ import annotations

import argparse
import re
import time
from typing import List, Sequence, Tuple

from envaudit._version import __version__
from envaudit.checks.plan import DEFAULT_BUDGET_S, PARTS, Plan, options_of
from envaudit.cli import asking
from envaudit.cli.judging import judged
from envaudit.cli.output import add_output_options, check_output_options, emit
from envaudit.cli.selection import add_node_options
from envaudit.model.checked import SECTION, CheckedDevice, checked_devices
from envaudit.model.finding import THRESHOLDS
from envaudit.report import Report, Stage
from envaudit.rules import Evidence

# Beyond the budget: the way to the node, the interpreter's start, and the answer's way back.
_AROUND_S = 30
_MAX_BUDGET_S = 3000
# Below this a card is not warm, and its clocks are those of a cold one.
_SOAK_S = 60
# At how much certainty the report names the fault that would have been seen.
_CERTAINTY = 0.95


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `envaudit check`."""
    add_node_options(parser)
    group = parser.add_argument_group("what is run")
    group.add_argument(
        "--only", type=_parts, metavar="PARTS", help=f"of {', '.join(PARTS)}; default: all of them"
    )
    group.add_argument(
        "--ops",
        action="append",
        type=_patterns,
        default=[],
        metavar="GLOB",
        help="operations such as 'gemm' or 'gemm/bf16/*'; repeatable",
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
        help=f"what is not through by then is listed as not run (default: {DEFAULT_BUDGET_S})",
    )
    group.add_argument("--compile", action="store_true", help="also what torch.compile makes")
    group = parser.add_argument_group("what is judged")
    group.add_argument("--fail-on", choices=tuple(THRESHOLDS), help="default: error")
    add_output_options(parser)


def execute(options: argparse.Namespace) -> int:
    """Run, judge, report; nothing is stored."""
    began = time.monotonic()
    check_output_options(options)
    plan = Plan(
        parts=options.only or PARTS,
        ops=tuple(pattern for patterns in options.ops for pattern in patterns),
        repeats=options.repeats,
        memory_permille=options.memory,
        budget_s=options.budget,
        compile=options.compile,
    )
    # Nothing else is read, and each node runs its own: numbers are nothing that nodes share.
    options.section, options.nothing_else, options.every_node = [SECTION], True, True
    options.section_options = options_of(plan)
    options.timeout = max(options.timeout or 0, plan.budget_s + _AROUND_S)
    snapshot = asking.ask_selected(options)
    evidence = Evidence(snapshot.fingerprints, snapshot.missing, sections=(SECTION,), comparing=False)
    findings, verdict, rests_on, aside = judged(evidence, options)
    devices = checked_devices(snapshot.fingerprints)
    report = Report(
        command="check",
        tool=__version__,
        verdict=verdict,
        findings=findings,
        missing=snapshot.missing,
        nodes=tuple(each.node for each in snapshot.fingerprints),
        sections=(SECTION,),
        comparing=False,
        outcome=checked_words(devices),
        elapsed_s=time.monotonic() - began,
        verbose=options.verbose,
        stages=(*_limits(devices, plan), *rests_on),
        set_aside=aside,
        checks=tuple(devices),
        fingerprints=snapshot.fingerprints,
    )
    emit(report, options)
    return verdict.exit_code


def checked_words(devices: Sequence[CheckedDevice]) -> str:
    """`16 GPUs on 2 nodes, 41 operations ok, 4 not run`."""
    gpus = sum(device.kind == "cuda" for device in devices)
    what = _count(gpus, "GPU") if gpus else _count(len(devices), "CPU")
    ran = [sum(case.status == "ok" for case in device.cases.values()) for device in devices]
    left = [sum(case.status == "not_run" for case in device.cases.values()) for device in devices]
    text = f"{what} on {_count(len({device.node for device in devices}), 'node')}"
    if ran:
        many = str(ran[0]) if len(set(ran)) == 1 else f"{min(ran)} to {max(ran)}"
        text += f", {many} operations ok"
    return text + (f", {max(left)} not run" if any(left) else "")


def _limits(devices: Sequence[CheckedDevice], plan: Plan) -> List[Stage]:
    """What the run cannot have seen."""
    repeats = [
        case.repeats
        for device in devices
        for case in device.cases.values()
        if case.status == "ok" and case.exact
    ]
    stages = []
    if repeats:
        least = min(repeats)
        stages.append(Stage("bound", bound_in_words(least)))
    if any(device.kind == "cuda" for device in devices) and plan.budget_s < _SOAK_S:
        stages.append(Stage("heat", f"no thermal soak below {_SOAK_S} s"))
    return stages


def bound_in_words(repeats: int) -> str:
    """Which fault so many repeats exclude: p is seen with 1 - (1 - p)**repeats."""
    excluded = 1 - (1 - _CERTAINTY) ** (1 / repeats)
    times = "once" if repeats == 1 else f"{repeats} times"
    return (
        f"each operation ran at least {times}: a fault in {excluded * 100:.2g} % of its runs "
        f"would have been seen with {_CERTAINTY * 100:.0f} %, a rarer one may not"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _parts(text: str) -> Tuple[str, ...]:
    parts = tuple(dict.fromkeys(text.split(",")))
    if not set(parts) <= set(PARTS):
        raise argparse.ArgumentTypeError(f"expected some of {','.join(PARTS)}, got '{text}'")
    return parts


def _patterns(text: str) -> Tuple[str, ...]:
    patterns = tuple(part for part in text.split(",") if part)
    if not patterns or not re.match(r"[\w/.*?\[\]!,-]{1,500}\Z", text):
        raise argparse.ArgumentTypeError(f"expected names such as gemm/bf16/*, got '{text}'")
    return patterns


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
    match = re.match(r"(\d{1,4})(s|m)?\Z", text, re.ASCII)
    value = int(match.group(1)) * (60 if match.group(2) == "m" else 1) if match else 0
    if not 5 <= value <= _MAX_BUDGET_S:
        raise argparse.ArgumentTypeError(f"expected 5s to {_MAX_BUDGET_S}s, got '{text}'")
    return value
