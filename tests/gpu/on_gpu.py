"""Everything that only a GPU can show, once, in under four minutes: python tests/gpu/on_gpu.py [FILE]

For a machine with a GPU and a Python that has torch, and no other package. It prints a table, writes FILE
(default: on_gpu.json) with all figures, and ends with 1 where something is not as it should be:

    check       the default run over every GPU: nothing wrong, nothing left out but what the card has not
    again       a second run gives the same digests, also of what has no known answer
    gemm        the timed loop of the bf16 product reaches 90 % of plain torch.matmul's rate
    memory      the pattern test reaches 80 % of the card's own copy bandwidth
    repeats     the bf16 product a thousand times
    compile     Triton's and torch.compile's kernels
    faults      a flipped bit, an assertion on the device, no memory, a kernel that never ends: each is named,
                and what comes behind it runs

`--cpu` goes through the same steps where there is no GPU, to try this file itself; figures then mean nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Tuple

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
sys.path.insert(0, str(PROJECT))

from envaudit.checks import section  # noqa: E402
from envaudit.checks.plan import Plan, options_of  # noqa: E402

Row = Tuple[str, bool, str]

GEMM_PERMILLE = 900
MEMORY_PERMILLE = 800
GOOD = ("ok", "not_run")

# Measured in a process of its own, so that nothing of it is on the card while the check runs.
_PLAIN = """
import json, torch
device = "cuda" if torch.cuda.is_available() else "cpu"
on_gpu = device == "cuda"
def rate(function, work, repeats):
    function()
    if not on_gpu:
        import time
        began = time.perf_counter_ns()
        for _ in range(repeats): function()
        return work * repeats // max(1, time.perf_counter_ns() - began)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    begin.record()
    for _ in range(repeats): function()
    end.record()
    torch.cuda.synchronize()
    return int(work * repeats / (begin.elapsed_time(end) * 1e6))
size = 8192 if on_gpu else 256
a, b = (torch.randint(-8, 8, (size, size), device=device).to(torch.bfloat16) for _ in range(2))
matmul = rate(lambda: torch.matmul(a, b), 2 * size**3, 50)
words = (1 << 30) if on_gpu else (1 << 20)
source = torch.zeros(words, dtype=torch.int32, device=device)
target = torch.empty_like(source)
copy = rate(lambda: target.copy_(source), 2 * 4 * words * 1000, 20)
print(json.dumps({
    "matmul_milli_tflops": matmul, "copy_milli_gbps": copy, "torch": str(torch.__version__),
    "cuda": torch.version.cuda, "device": torch.cuda.get_device_name(0) if on_gpu else "cpu",
    "count": torch.cuda.device_count() if on_gpu else 0,
}))
"""


def main(arguments: List[str]) -> int:
    """All steps; 1 where one is not as it should be, 2 where there is no GPU."""
    on_cpu = "--cpu" in arguments
    files = [each for each in arguments if not each.startswith("-")]
    began = time.monotonic()
    plain = json.loads(subprocess.check_output([sys.executable, "-c", _PLAIN], text=True))
    if not plain["count"] and not on_cpu:
        print(f"torch {plain['torch']} sees no GPU here; --cpu tries the script alone")
        return 2
    results: Dict[str, Any] = {"plain": plain}
    rows: List[Row] = []
    steps: Dict[str, Callable[[Dict[str, Any]], Row]] = {
        "check": _check,
        "again": _again,
        "gemm": _gemm,
        "memory": _memory,
        "repeats": _repeats,
        "compile": _compile,
        "faults": _faults,
    }
    for name, step in steps.items():
        started = time.monotonic()
        try:
            row = step(results)
        except Exception as error:  # one step less, and the others still tell
            row = (name, False, f"{type(error).__name__}: {error}")
        took_s = time.monotonic() - started
        rows.append(row)
        print(f"{'ok  ' if row[1] else 'FAIL'} {name:<8} {took_s:6.1f} s  {row[2]}", flush=True)
    took_s = time.monotonic() - began
    results["rows"] = [list(row) for row in rows]
    results["took_ms"] = int(took_s * 1000)
    path = files[0] if files else "on_gpu.json"
    Path(path).write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    _table(results)
    print(f"{plain['device']}, torch {plain['torch']}: {took_s:.1f} s, all figures in {path}")
    return 0 if all(row[1] for row in rows) else 1


def _read(plan: Plan, environ: Dict[str, str] | None = None) -> Dict[str, Any]:
    """Facts and notes of one run, by the section as the probe reads it."""
    context = SimpleNamespace(
        static="",
        live=True,
        options=options_of(plan),
        environ={**os.environ, **(environ or {})},
        interpreter={"executable": sys.executable},
        workdir=str(PROJECT),
    )
    answer = section.read(context)
    return {"status": answer.status, "facts": answer.facts, "notes": dict(answer.notes)}


def _cases(run: Dict[str, Any], ordinal: str) -> Dict[str, Dict[str, Any]]:
    facts, notes = run["facts"], run["notes"]
    own = facts["devices"].get(ordinal, {}).get("cases", {})
    figures = notes["devices"][ordinal]["cases"]
    rows = {**facts["each"]["cases"], **own}
    return {name: {**(row or {}), **figures.get(name, {})} for name, row in rows.items()}


def _all_cases(run: Dict[str, Any]) -> List[Tuple[str, str, Dict[str, Any]]]:
    return [
        (ordinal, name, row)
        for ordinal in run["notes"]["devices"]
        for name, row in _cases(run, ordinal).items()
    ]


def _check(results: Dict[str, Any]) -> Row:
    run = results["check"] = _read(Plan(budget_s=60))
    cases = _all_cases(run)
    bad = [
        f"{ordinal}: {name} {row['status']} {row.get('reason', '')}"
        for ordinal, name, row in cases
        if row["status"] not in GOOD or "budget" in row.get("reason", "")
    ]
    ran = sum(row["status"] == "ok" for _, _, row in cases)
    devices = len(run["notes"]["devices"])
    text = f"{devices} devices, {ran} of {len(cases)} cases ran, {run['notes']['took_ms']} ms"
    return ("check", not bad and run["facts"]["usable"] == "ok" and ran > 0, "; ".join([text, *bad]))


def _again(results: Dict[str, Any]) -> Row:
    run = results["again"] = _read(Plan(parts=("kernels",), budget_s=45))
    before = {(ordinal, name): row.get("digest") for ordinal, name, row in _all_cases(results["check"])}
    compared = [(where, row.get("digest")) for *where, row in _all_cases(run) if row["status"] == "ok"]
    other = [" ".join(where) for where, digest in compared if before.get(tuple(where)) != digest]
    return (
        "again",
        not other and bool(compared),
        f"{len(compared)} digests, other: {', '.join(other) or 'none'}",
    )


def _gemm(results: Dict[str, Any]) -> Row:
    plain = results["plain"]["matmul_milli_tflops"]
    rate = _cases(results["check"], "0")["gemm/bf16/spread"].get("milli_tflops", 0)
    permille = rate * 1000 // max(1, plain)
    text = f"{rate / 1000:.1f} of torch.matmul's {plain / 1000:.1f} TFLOP/s: {permille / 10:.1f} %"
    return ("gemm", permille >= GEMM_PERMILLE or not results["plain"]["count"], text)


def _memory(results: Dict[str, Any]) -> Row:
    plain = results["plain"]["copy_milli_gbps"]
    rows = {name: row for name, row in _cases(results["check"], "0").items() if name.startswith("memory/")}
    texts, enough = [], bool(rows)
    for name, row in rows.items():
        permille = row.get("milli_gbps", 0) * 1000 // max(1, plain)
        enough = enough and permille >= MEMORY_PERMILLE
        tested = row.get("tested_bytes", 0) / 2**30
        texts.append(
            f"{name} {tested:.1f} GiB at {row.get('milli_gbps', 0) / 1000:.0f} GB/s, {permille / 10:.0f} %"
        )
    text = f"copying {plain / 1000:.0f} GB/s; " + "; ".join(texts)
    return ("memory", enough or not results["plain"]["count"], text)


def _repeats(results: Dict[str, Any]) -> Row:
    run = results["repeats"] = _read(Plan(ops=("gemm/bf16/spread",), repeats=1000, budget_s=30))
    row = _cases(run, "0")["gemm/bf16/spread"]
    enough = row["status"] == "ok" and (row.get("repeats") == 1000 or not results["plain"]["count"])
    return (
        "repeats",
        enough,
        f"{row['status']} in {row.get('repeats')} repeats, {run['notes']['took_ms']} ms",
    )


def _compile(results: Dict[str, Any]) -> Row:
    run = results["compile"] = _read(Plan(ops=("compiled", "triton_kernels"), compile=True, budget_s=60))
    cases = _all_cases(run)
    bad = [
        f"{name}: {row['status']} {row.get('reason', '')}" for _, name, row in cases if row["status"] != "ok"
    ]
    return (
        "compile",
        all(row["status"] in GOOD for *_, row in cases),
        f"{len(cases)} cases; {'; '.join(bad)}",
    )


def _faults(results: Dict[str, Any]) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        arming = Path(folder, "armed")
        arming.write_text(str(HERE / "operations"))
        environ = {
            "PYTHONPATH": str(PROJECT / "tests" / "checks" / "armed"),
            "ENVAUDIT_TEST_ARMED": str(arming),
        }
        run = results["faults"] = _read(Plan(ops=("faulty_on_gpu",), budget_s=45), environ)
    expected = {
        "flip": "wrong",
        "assert": "error",
        "after-assert": "ok",
        "memory": "error",
        "after-memory": "ok",
        "hang": "timeout",
        "after-hang": "ok",
    }
    found = {name.partition("/")[2]: row["status"] for name, row in _cases(run, "0").items()}
    other = [
        f"{name} {found.get(name)}, not {status}"
        for name, status in expected.items()
        if found.get(name) != status
    ]
    if not results["plain"]["count"]:
        return ("faults", set(found.values()) == {"not_run"}, "needs a GPU")
    return ("faults", not other, "; ".join(other) or "each is named, and the rest runs")


def _table(results: Dict[str, Any]) -> None:
    """One row a case of the first device, and what its sensors said."""
    run = results["check"]
    units = (("milli_tflops", "TFLOP/s"), ("milli_gbps", "GB/s"))
    for name, row in _cases(run, "0").items():
        rates = [f"{row[key] / 1000:.3f} {unit}" for key, unit in units if row.get(key)]
        median = f"{row['median_ns'] / 1000:.1f} us" if row.get("median_ns") else ""
        cells = f"{name:<32} {row['status']:<8} {row.get('repeats', 0):>5}  {median:>12}"
        print(f"  {cells}  {''.join(rates[:1])}  {row.get('reason', '')}"[:150])
    readings = run["notes"]["devices"]["0"].get("readings") or run["notes"].get("readings", "no readings")
    print(f"  {readings}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
