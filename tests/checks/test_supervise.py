"""The supervisor against workers that behave badly: programs that speak its lines, and nothing of torch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest

from envaudit.checks.outcome import ERROR, NOT_RUN, OK, TIMEOUT
from envaudit.checks.piped import GREETING
from envaudit.checks.plan import Plan
from envaudit.checks.supervise import DeviceRun, Started, supervise

Supervise = Callable[..., List[DeviceRun]]

# What every scripted worker begins with: `task` is what it is asked, `say` writes a line, `ok` an outcome.
# Then it greets.
_PRELUDE = """\
import ctypes, json, os, signal, sys, time
# What the boot text of a real worker does first: sys.argv is -B -c BOOT MODULE PLACE PARENT SECONDS.
signal.alarm(int(sys.argv[-1]))
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
task = json.loads(sys.stdin.readline())
def say(**what):
    sys.stdout.write(json.dumps(what) + "\\n")
    sys.stdout.flush()
def ok(name):
    say(begin=name)
    say(outcome={"case": name, "status": "ok", "reason": "", "digest": "00", "exact": True, "repeats": 1,
                 "wrong_repeats": 0, "mismatch": None, "median_ns": 1, "milli_tflops": None,
                 "milli_gbps": None})
def device(count=0):
    name = "cuda:%d" % task["ordinal"] if count else "cpu"
    say(device={"name": name, "count": count, "torch": "2.13.0", "model": "M"})
names = ["a", "b", "c"]
def cases():
    say(cases=[[name, "fp32", "1"] for name in names])
left = [name for name in names if name not in task["skip"]]
"""
_GREET = f"sys.stdout.write({(chr(10) + GREETING.decode() + chr(10))!r}); sys.stdout.flush()\n"

# A worker to which something happens in its second case.
_IN_CASE_B = """\
device(); cases()
for name in left:
    if name == 'b':
        say(begin='b'); {act}
    ok(name)
say(end=True)
"""


@pytest.fixture
def scripted(tmp_path: Path) -> Supervise:
    """Runs the supervisor with an interpreter that is a script."""

    def run(
        script: str, gpus: int = 0, busy: Dict[int, str] | None = None, before: str = "", **plan: Any
    ) -> List[DeviceRun]:
        path = tmp_path / "interpreter"
        path.write_text(f"#!{sys.executable} -I\n{_PRELUDE}{before}\n{_GREET}{script}\n")
        path.chmod(0o755)
        started = Started(str(path), dict(os.environ), str(tmp_path), gpus, busy or {})
        return supervise(started, Plan(**{"budget_s": 20, **plan}))

    return run


def statuses(run: DeviceRun) -> Dict[str, str]:
    """Case to status."""
    return {name: outcome.status for name, outcome in run.outcomes.items()}


@pytest.mark.parametrize(
    "before",
    [
        "print('modules loaded'); print('ready', end='')",
        """print('{"level": "info", "message": "loaded"}')""",
        """print('{"end": true}'); print('{"device": {}}', end='')""",
    ],
)
def test_what_an_environment_prints_before_the_worker_speaks_is_no_result(
    scripted: Supervise, before: str
) -> None:
    """Lines of its sitecustomize, a log in JSON among them, and one that has no end."""
    (run,) = scripted("device(); cases()\nfor name in left: ok(name)\nsay(end=True)", before=before)
    assert ("cpu", {"a": OK, "b": OK, "c": OK}) == (run.facts["name"], statuses(run))


def test_machine_without_any_folder_that_can_be_written_is_checked_all_the_same(
    scripted: Supervise, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container whose root is read-only: the folder would be for a compiler, and none is used."""

    def none_usable() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none_usable)
    (run,) = scripted("device(); cases()\nfor name in left: ok(name)\nsay(end=True)")
    assert {"a": OK, "b": OK, "c": OK} == statuses(run)


def test_case_that_a_worker_leaves_out_is_not_run(scripted: Supervise) -> None:
    """Nothing is passed over: what was announced has an outcome."""
    (run,) = scripted("device(); cases(); ok('a'); ok('c'); say(end=True)")
    assert {"a": OK, "b": NOT_RUN, "c": OK} == statuses(run)


def test_worker_that_ends_well_gives_each_outcome(scripted: Supervise) -> None:
    """Nothing is added and nothing lost."""
    (run,) = scripted("device(); cases()\nfor name in left: ok(name)\nsay(end=True)")
    assert {"a": OK, "b": OK, "c": OK} == statuses(run)
    assert "" == run.unusable


@pytest.mark.parametrize(
    ("act", "words"),
    [
        ("os._exit(3)", "its process ended with exit status 3"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "its process was ended by SIGSEGV"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "its process was ended by SIGKILL (the kernel"),
        ("sys.stderr.write('terminate called\\n'); sys.stderr.flush(); os._exit(1)", "terminate called"),
        ("print('Segmentation fault'); sys.stdout.flush(); time.sleep(9)", "said something else"),
        ("sys.stdout.write('x' * (3 << 20)); sys.stdout.flush(); time.sleep(9)", "more than 1 MiB"),
        ("say(outcome={'case': 'c'}); time.sleep(9)", "said something else"),
    ],
)
def test_worker_that_ends_in_a_case_costs_that_case_alone(scripted: Supervise, act: str, words: str) -> None:
    """The next worker goes on behind it."""
    (run,) = scripted(_IN_CASE_B.format(act=act))
    assert {"a": OK, "b": ERROR, "c": OK} == statuses(run)
    assert words in run.outcomes["b"].reason


@pytest.mark.parametrize(
    ("ending", "status"), [("say(end=True); time.sleep(9)", OK), ("os.kill(os.getpid(), 9)", ERROR)]
)
def test_worker_whose_child_holds_its_pipes_is_waited_for_no_longer(
    scripted: Supervise, ending: str, status: str
) -> None:
    """A start-up file has forked: no pipe tells the end of what came to its end, or was killed."""
    began = time.monotonic()
    (run,) = scripted(
        "device(); names = ['a']; cases()\nif left: say(begin='a')\n"
        f"if {status!r} == 'ok': ok('a')\n{ending}",
        before="if not os.fork(): time.sleep(9); os._exit(0)",
        budget_s=8,
    )
    assert ({"a": status}, True) == (statuses(run), time.monotonic() - began < 5)


def test_case_that_hangs_is_a_timeout_and_the_rest_goes_on(scripted: Supervise) -> None:
    """After its own time, long before the budget's."""
    began = time.monotonic()
    (run,) = scripted(_IN_CASE_B.format(act="time.sleep(60)"), budget_s=6)
    assert {"a": OK, "b": TIMEOUT, "c": OK} == statuses(run)
    assert "not finished within 2 s" in run.outcomes["b"].reason
    assert 5 > time.monotonic() - began


def test_budget_that_is_over_lists_the_rest_as_not_run(scripted: Supervise) -> None:
    """What was under way, and what was not begun, each with the reason; nobody outlives it."""
    began = time.monotonic()
    (run,) = scripted("device(); cases(); ok('a'); say(begin='b'); time.sleep(60)", budget_s=1)
    assert 1.5 > time.monotonic() - began
    assert {"a": OK, "b": NOT_RUN, "c": NOT_RUN} == statuses(run)
    assert "the budget of 1 s was over when it had run for 0 s" == run.outcomes["b"].reason
    assert "the budget of 1 s was over" == run.outcomes["c"].reason


def test_worker_that_never_gets_as_far_as_its_cases_names_every_operation(scripted: Supervise) -> None:
    """An import that hangs leaves no operation out."""
    (run,) = scripted("time.sleep(60)", budget_s=1)
    assert {NOT_RUN} == set(statuses(run).values())
    assert "gemm" in run.outcomes
    assert (
        "the budget of 1 s was over before torch was imported and told of its devices"
        == run.outcomes["gemm"].reason
    )


def test_worker_that_crashes_before_its_first_case_is_not_started_again(scripted: Supervise) -> None:
    """Else a torch that cannot be imported would be imported until the budget is over."""
    (run,) = scripted("sys.stderr.write('symbol lookup error: x\\n'); os._exit(127)")
    assert run.unusable.endswith("exit status 127; symbol lookup error: x")
    assert {NOT_RUN} == set(statuses(run).values())


def test_interpreter_that_is_not_there_is_told() -> None:
    """As a reason, not as an exception."""
    (run,) = supervise(Started("/nowhere/python", dict(os.environ)), Plan(budget_s=5))
    assert "/nowhere/python: No such file or directory" == run.unusable


def test_each_gpu_has_a_worker_and_a_busy_one_none(scripted: Supervise) -> None:
    """A busy GPU's cases are not run, for the reason; a device node that torch does not count is none."""
    runs = scripted(
        "if task['ordinal'] > 2: say(surplus=3); sys.exit()\ndevice(3); cases()\nfor name in left: ok(name)\n"
        "say(end=True)",
        gpus=4,
        busy={1: "the GPU is busy: process 7"},
    )
    assert [0, 1, 2] == [run.ordinal for run in runs]
    assert {"the GPU is busy: process 7"} == {outcome.reason for outcome in runs[1].outcomes.values()}
    assert {"a": OK, "b": OK, "c": OK} == statuses(runs[0]) == statuses(runs[2])


def test_gpus_without_device_nodes_get_workers_once_torch_counts_them(scripted: Supervise) -> None:
    """As under WSL."""
    runs = scripted("device(2); cases()\nfor name in left: ok(name)\nsay(end=True)", gpus=0)
    assert ["cuda:0", "cuda:1"] == [run.facts["name"] for run in runs]


def test_cases_between_devices_begin_when_all_others_have_ended(scripted: Supervise, tmp_path: Path) -> None:
    """The one that waits is told to go when it is alone."""
    log = tmp_path / "log"
    script = f"""
device(2); cases()
def note(text):
    with open({str(log)!r}, "a") as file: file.write(text + "\\n")
if task["ordinal"] == 0:
    say(alone=True); sys.stdin.readline(); note("alone")
else:
    time.sleep(0.5); note("other")
for name in left: ok(name)
say(end=True)"""
    runs = scripted(script, gpus=2)
    assert ["other", "alone"] == log.read_text().split()
    assert [OK, OK] == [run.outcomes["a"].status for run in runs]


@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch: nox -s checks")
def test_supervisor_that_is_killed_leaves_no_worker(tmp_path: Path) -> None:
    """A worker that no longer has anybody to tell ends with who started it."""
    script = (
        "import os, sys\nfrom envaudit.checks.supervise import *\n"
        "supervise(Started(sys.executable, dict(os.environ), None, 0), Plan(budget_s=60))\n"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = subprocess.Popen([sys.executable, "-c", script], env=environ, cwd=tmp_path)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    until = time.monotonic() + 20
    worker = 0
    while not worker and time.monotonic() < until:
        worker = int((children.read_text().split() or ["0"])[0])
        time.sleep(0.02)
    assert worker
    while b"checks.worker" not in Path(f"/proc/{worker}/cmdline").read_bytes():
        time.sleep(0.01)
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    until = time.monotonic() + 5
    while _runs(worker) and time.monotonic() < until:
        time.sleep(0.02)
    assert not _runs(worker)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_plan_travels_as_json_whole() -> None:
    """What the controller asks is what the worker reads."""
    plan = Plan(
        parts=("kernels",), ops=("gemm/*",), repeats=7, memory_permille=950, budget_s=12, compile=True
    )
    assert plan == Plan.from_json(json.loads(json.dumps(plan.to_json())))


def test_variable_that_overrules_torch_about_tf32_is_kept_from_workers(
    scripted: Supervise, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else fp32 would be tried in TF32, or TF32 in fp32; what else the user has set stays."""
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1")
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", "all")
    (run,) = scripted(
        "say(device={'name': 'cpu', 'count': 0, 'set': [name for name in os.environ if 'NVIDIA' in name]})\n"
        "cases()\nfor name in left: ok(name)\nsay(end=True)"
    )
    assert ["NVIDIA_VISIBLE_DEVICES"] == run.facts["set"]


def test_workers_are_told_which_gpus_are_busy(scripted: Supervise) -> None:
    """For what they do between devices."""
    script = (
        "if task['busy'] != {'1': 'the GPU is busy: x'}: sys.exit(3)\n"
        "device(2); cases()\nfor name in left: ok(name)\nsay(end=True)"
    )
    first, second = scripted(script, gpus=2, busy={1: "the GPU is busy: x"})
    assert {"a": OK, "b": OK, "c": OK} == statuses(first)
    assert {NOT_RUN} == set(statuses(second).values())
