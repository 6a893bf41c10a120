"""The process that runs the cases of one device: torch is imported once, and every step is told.

It reads one line of JSON from standard input and writes lines of JSON behind a greeting
(`checks/supervise.py` reads them):

    {"device": {...}}          what torch says of the device, and of itself
    {"surplus": 8}             torch has only so many devices: this one is none of them
    {"absent": "..."}          there is no torch
    {"unusable": "..."}        torch or the device cannot be used, and why
    {"cases": [[name, dtype, shape], ...]}   what will run, in this order
    {"begin": "gemm/bf16/spread"}
    {"outcome": {...}}         what it came to (`checks/outcome.py`)
    {"alone": true}            only what needs all devices to itself is left; waits for a line
    {"heartbeat": 7}           every half second, from a thread of its own
    {"end": true}              all is done

What a crash or a hang leaves untold is known by the last `begin`. Whatever torch and its libraries
print goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from importlib import import_module
from typing import Any, Callable, Dict, Iterator, List, Mapping, Sequence, Tuple

from envaudit.checks import operations, readiness, registry
from envaudit.checks.device import CPU, DeviceFacts, facts_of
from envaudit.checks.operations import Case
from envaudit.checks.outcome import ERROR, NOT_RUN, Outcome
from envaudit.checks.piped import GREETING
from envaudit.checks.plan import BETWEEN_DEVICES, Plan
from envaudit.checks.trial import Effort, attempt

HEARTBEAT_S = 0.5
# A case stops repeating after this part of the time that it is given, so that its comparison on the
# host, which comes last, is not what it is ended for.
_REPEATING = 0.4
# Of what is left of the budget for each case, the part for repeats that were asked for: more of them than
# there is time for leave no operation out, and the report says how many there were.
_SHARED = 0.6
_CPU_REPEATS = 2
_GPU_REPEATS = 50
_LINE_LIMIT_BYTES = 1 << 20
# The exit status of a worker that cannot go on: most CUDA errors stay for the rest of a process.
CONTEXT_LOST = 17

Say = Callable[[Mapping[str, Any]], None]


def main() -> None:
    """Read the task, run it, leave without running what torch would do at its exit."""
    out = os.dup(1)
    os.dup2(2, 1)
    say = speaker(out)
    task = read_task()
    threading.Thread(target=_beat, args=(say,), daemon=True).start()
    try:
        code = work(task, say)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        say({"absent": "torch is not installed there"})
        code = 0
    except readiness.Unusable as error:
        say({"unusable": str(error)})
        code = 0
    os._exit(code)


def speaker(out: int) -> Say:
    """What writes whole lines of JSON to a descriptor, from any thread; they begin now."""
    whole = threading.Lock()
    os.write(out, b"\n" + GREETING + b"\n")

    def say(what: Mapping[str, Any]) -> None:
        line = memoryview(json.dumps(what, ensure_ascii=True).encode("ascii") + b"\n")
        # A line longer than PIPE_BUF would take a heartbeat in its middle.
        with whole:
            while line:
                line = line[os.write(out, line) :]

    return say


def read_task() -> Dict[str, Any]:
    """The task, one line of JSON from standard input.

    Raises:
        ValueError: it is none.
    """
    task: Dict[str, Any] = json.loads(sys.stdin.buffer.readline(_LINE_LIMIT_BYTES).decode("ascii"))
    return task


def _beat(say: Say) -> None:
    number = 0
    while True:
        number += 1
        say({"heartbeat": number})
        time.sleep(HEARTBEAT_S)


def work(task: Mapping[str, Any], say: Say) -> int:
    """Run a task; the exit status.

    Args:
        task: {"ordinal": 0, "gpus": how many the machine has, "plan": {...}, "skip": names of cases that
            are done, "budget_s": what is left, "busy": {"3": why nothing is launched on that GPU}}.
        say: where the lines go.

    Raises:
        ModuleNotFoundError: there is no torch.
        Unusable: torch or the device cannot be used.
    """
    ends = time.monotonic() + float(task["budget_s"])
    plan = Plan.from_json(task["plan"])
    ordinal = int(task["ordinal"])
    torch = readiness.imported_torch()
    count = readiness.device_count(torch, int(task["gpus"]))
    if ordinal >= max(1, count):
        say({"surplus": count})
        return 0
    if count:
        readiness.check_device(torch, ordinal)
    device = f"cuda:{ordinal}" if count else "cpu"
    say({"device": describe(torch, device, count)})
    facts = facts_of(device)
    cases, broken = wanted_cases(plan, facts)
    skip = set(task["skip"])
    own = [case for case in cases if not case.name.startswith(BETWEEN_DEVICES)]
    between = [case for case in cases if case.name.startswith(BETWEEN_DEVICES)] if not ordinal else []
    say({"cases": [[case.name, case.dtype, case.shape] for case in (*own, *between)]})
    for outcome in broken:
        if outcome.case not in skip:
            say({"begin": outcome.case})
            say({"outcome": outcome.to_json()})
    left = list(_left(between, skip))
    mine = list(_left(own, skip))
    for place, case in enumerate(mine):
        if not _run(case, facts, plan, ends, say, len(mine) - place + len(left)):
            return CONTEXT_LOST
    if left and count > 1:
        torch.cuda.empty_cache()
        say({"alone": True})
        sys.stdin.buffer.readline(_LINE_LIMIT_BYTES)
    for case in left:
        why = busy_end(case.name, task.get("busy", {}))
        if why:
            say({"begin": case.name})
            say({"outcome": Outcome(case.name, NOT_RUN, why, exact=case.exact).to_json()})
        elif not _run(case, facts, plan, ends, say):
            return CONTEXT_LOST
    say({"end": True})
    return 0


def _left(cases: Sequence[Case], skip: Any) -> Iterator[Case]:
    return (case for case in cases if case.name not in skip)


def busy_end(case: str, busy: Mapping[str, str]) -> str:
    """Why a copy between two GPUs, `copies/peer/5-3`, must not be run; empty where it may."""
    ends = case.rpartition("/")[2].split("-")
    return next((busy[ordinal] for ordinal in ends if ordinal in busy), "")


def wanted_cases(plan: Plan, facts: DeviceFacts) -> Tuple[List[Case], List[Outcome]]:
    """The cases of a plan on a device, and an outcome for each module of operations that fails to tell."""
    cases: List[Case] = []
    broken: List[Outcome] = []
    for name in registry.operation_names():
        try:
            found = import_module(f"{operations.__name__}.{name}").CASES(facts)
        except Exception as error:  # an operation that this torch cannot even describe
            if plan.wants(name, on_request=False):
                reason = f"{type(error).__name__}: {readiness.last_line(error)}"
                broken.append(Outcome(name, ERROR, reason))
            continue
        cases.extend(case for case in found if plan.wants(case.name, on_request=case.on_request))
    return cases, broken


def _run(case: Case, facts: DeviceFacts, plan: Plan, ends: float, say: Say, to_come: int = 1) -> bool:
    """Run one case, of so many to come, and tell; False when the device answers no more."""
    import torch

    left_s = ends - time.monotonic()
    if left_s <= 0:
        say({"begin": case.name})
        reason = f"the budget of {plan.budget_s} s was over"
        say({"outcome": Outcome(case.name, NOT_RUN, reason, exact=case.exact).to_json()})
        return True
    say({"begin": case.name})
    on_gpu = facts.kind != CPU
    repeats = plan.repeats or (_GPU_REPEATS if on_gpu else _CPU_REPEATS)
    deadline = time.monotonic() + _REPEATING * min(left_s, plan.case_limit_s)
    seconds = _SHARED * left_s / to_come if plan.repeats else float("inf")
    effort = Effort(repeats, deadline, memory_permille=plan.memory_permille, seconds=seconds)
    with torch.no_grad():
        outcome = attempt(case, facts, plan.seed, effort)
    say({"outcome": outcome.to_json()})
    if not on_gpu:
        return True
    try:
        torch.cuda.synchronize()
        if outcome.status == ERROR:
            torch.cuda.empty_cache()
    except Exception:  # the error of the case has made the context useless
        return False
    return True


def describe(torch: Any, device: str, count: int) -> Dict[str, Any]:
    """What torch says of a device: what must agree before bits may be compared, and which card it is."""
    told: Dict[str, Any] = {
        "name": device,
        "count": count,
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "hip": getattr(torch.version, "hip", None),
        "cudnn": torch.backends.cudnn.version() if count else None,
        "triton": _version_of("triton"),
        "flags": _flags(),
    }
    if not count:
        return {**told, "model": _processor(), "threads": torch.get_num_threads(), "isa": _isa(torch)}
    properties = torch.cuda.get_device_properties(torch.device(device))
    uuid = getattr(properties, "uuid", None)
    told["model"] = str(properties.name)
    told["multiprocessors"] = int(properties.multi_processor_count)
    told["memory_mib"] = int(properties.total_memory) >> 20
    told["capability"] = ".".join(map(str, torch.cuda.get_device_capability(torch.device(device))))
    told["uuid"] = (
        f"GPU-{uuid}" if uuid is not None and not str(uuid).startswith("GPU-") else uuid and str(uuid)
    )
    driver = getattr(torch._C, "_cuda_getDriverVersion", None)
    told["driver_cuda"] = int(driver()) if driver else None
    told["cublas"] = _version_of("nvidia-cublas-cu12") or _version_of("nvidia-cublas")
    return told


# How variables begin under which the same libraries take other kernels, whose last bits are others.
_SHAPING = (
    "CUBLAS",
    "CUDNN_",
    "DISABLE_ADDMM_CUDA_LT",
    "DNNL_MAX_CPU_ISA",
    "MKL_",
    "OMP_NUM_THREADS",
    "ONEDNN_MAX_CPU_ISA",
    "PYTORCH_TUNABLEOP_",
    "TORCH_ALLOW_TF32",
    "TORCH_BLAS_PREFER",
)


def _flags() -> Dict[str, str]:
    return {name: text for name, text in sorted(os.environ.items()) if name.startswith(_SHAPING)}


def _version_of(distribution: str) -> Any:
    from importlib import metadata

    try:
        return str(metadata.version(distribution))
    except metadata.PackageNotFoundError:
        return None


def _isa(torch: Any) -> Any:
    tell = getattr(getattr(torch.backends, "cpu", None), "get_cpu_capability", None)
    return str(tell()) if tell else None


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            lines = file.read(1 << 16).splitlines()
    except OSError:
        return "CPU"
    named = (line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model")))
    return next(named, "CPU")
