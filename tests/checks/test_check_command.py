"""`envaudit check` as a user runs it: over a transport to nodes, one of which fails, and in one file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List

import pytest

from envaudit.checks import section
from envaudit.checks.plan import Plan, options_of, plan_of
from envaudit.cli.checkwords import bound_in_words, limits_of
from envaudit.model.checked import CheckedCase, CheckedDevice
from envaudit.report import Stage
from tests.checks.test_worker import ARMED
from tests.cli.conftest import Folder

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch: nox -s checks")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A folder with the nodes n1, n2 and n3, of which one thread each is asked."""
    made = Folder(tmp_path)
    for node in ("n1", "n2", "n3"):
        made.set_node(node, OMP_NUM_THREADS="1")
    return made


@needs_torch
def test_node_on_which_operations_fail_is_named_among_three(folder: Folder, tmp_path: Path) -> None:
    """The others run the same ones and pass."""
    arming = tmp_path / "armed"
    arming.write_text(str(ARMED / "operations"))
    variables = {"PYTHONPATH": str(ARMED), "ENVAUDIT_TEST_ARMED": str(arming), "OMP_NUM_THREADS": "1"}
    folder.set_node("n2", **variables)
    ops = "gemm/fp64,faulty/flip,faulty/exit,faulty/after"
    ended = folder.ask("check", "--nodes", "n[1-3]", "--ops", ops, "--budget", "60", "--format", "json")
    assert 1 == ended.code, ended.err
    errors = [finding for finding in ended.findings if finding["severity"] == "error"]
    assert {("EA500", "n2"), ("EA502", "n2")} == {(each["rule"], *each["nodes"]) for each in errors}
    cases = {node: rows["0"]["cases"] for node, rows in ended.json["checks"].items()}
    assert {"gemm/fp64/spread", "gemm/fp64/adjacent"} == set(cases["n1"]) == set(cases["n3"])
    assert {"wrong", "error", "ok"} == {
        cases["n2"][f"faulty/{name}"]["status"] for name in ("flip", "exit", "after")
    }
    assert 1 == len({cases[node]["gemm/fp64/spread"]["digest"] for node in cases})


@needs_torch
def test_plain_report_says_that_there_is_no_gpu(folder: Folder) -> None:
    """What was tried instead stands in the table."""
    ended = folder.ask("check", "--nodes", "n1", "--ops", "gemm/int8", "--budget", "1m", "--format", "plain")
    assert 0 == ended.code, ended.out + ended.err
    assert "n1: device: cpu, no GPU (" in ended.out
    assert "gemm/int8  2 ok" in ended.out
    assert ended.verdict.startswith("PASS 1 CPU on 1 node, 2 operations ok")


@needs_torch
def test_one_file_form_checks_the_python_that_runs_it(folder: Folder) -> None:
    """With torch and nothing else beside it."""
    folder.run("bundle", "-o", "envaudit.pyz")
    isolated = {"PYTHONPATH": str(Path(find_spec("torch").origin).parents[1])}  # type: ignore[union-attr, arg-type]
    done = subprocess.run(
        [sys.executable, "envaudit.pyz", "check", "--ops", "gemm/fp32", "--budget", "60", "--format", "json"],
        cwd=folder.path,
        env={**folder.environment, **isolated, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert 0 == done.returncode, done.stdout + done.stderr
    ((node, rows),) = json.loads(done.stdout)["checks"].items()
    assert ("cpu", "ok") == (rows["0"]["kind"], rows["0"]["cases"]["gemm/fp32/spread"]["status"]), node


@needs_torch
def test_budget_that_is_too_small_is_incomplete_and_kept(folder: Folder) -> None:
    """A node that cannot even import torch in time says so, in time."""
    slow = folder.path / "slow"
    slow.mkdir()
    (slow / "sitecustomize.py").write_text(
        "import sys, time\n"
        "class Slow:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch': time.sleep(60)\n"
        "sys.meta_path.insert(0, Slow())\n"
    )
    folder.set_node("n1", PYTHONPATH=str(slow))
    began = time.monotonic()
    ended = folder.ask("check", "--nodes", "n1", "--budget", "5s", "--format", "json")
    assert 20 > time.monotonic() - began
    assert 3 == ended.code, ended.out
    (finding,) = [each for each in ended.findings if each["severity"] == "incomplete"]
    assert "EA504" == finding["rule"]
    assert (
        "the budget of 5 s was over before torch was imported and told of its devices" in finding["message"]
    )


@needs_torch
@pytest.mark.parametrize(
    ("words", "number", "code"),
    [
        (["-m", "envaudit", "check", "--python", sys.executable], signal.SIGINT, 130),
        (["envaudit.pyz", "check"], signal.SIGTERM, 130),
        (["envaudit.pyz", "check"], signal.SIGKILL, -signal.SIGKILL),
    ],
)
def test_interrupted_check_ends_its_worker(folder: Folder, words: List[str], number: int, code: int) -> None:
    """Whatever ends the one process that was started, and nothing of it is left."""
    if "envaudit.pyz" in words:
        folder.run("bundle", "-o", "envaudit.pyz")
    marker = f"ENVAUDIT_TEST_RUN={os.getpid()}"
    name, _, value = marker.partition("=")
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=folder.path,
        env={**folder.environment, name: value},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    until = time.monotonic() + 30
    while not any("checks.worker" in line for line in _commands(marker)) and time.monotonic() < until:
        time.sleep(0.02)
    os.kill(process.pid, number)
    _, complaint = process.communicate(timeout=20)
    assert code == process.returncode, complaint
    until = time.monotonic() + 5
    while _commands(marker) and time.monotonic() < until:
        time.sleep(0.02)
    assert [] == _commands(marker)


def _commands(marker: str) -> list[str]:
    """The command lines of all processes that have a variable of this value."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            try:
                if marker.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append((entry / "cmdline").read_text())
            except OSError:
                continue  # it ended meanwhile, or is somebody else's
    return [line for line in found if line]


@pytest.mark.parametrize(
    "words",
    [
        ("--only", "kernels,disk"),
        ("--memory", "1.5"),
        ("--memory", "0"),
        ("--budget", "3s"),
        ("--budget", "1h"),
        ("--repeats", "0"),
        ("--ops", ""),
        ("--ops", "gemm;rm"),
    ],
)
def test_options_out_of_range_are_refused(folder: Folder, words: Any) -> None:
    """Before any node is asked."""
    ended = folder.ask("check", *words)
    assert 2 == ended.code
    assert words[0] in ended.err


def test_options_reach_the_section_whole() -> None:
    """As single words and numbers, which is what a request carries."""
    plan = Plan(("memory",), ("gemm/*", "memory"), 1000, 950, 45, True)
    assert plan == plan_of(options_of(plan))
    assert Plan() == plan_of({})


def test_section_refuses_to_execute_a_static_prefix() -> None:
    """Of such an environment nothing is run."""
    context = SimpleNamespace(static="/opt/env", live=True)
    assert "error" == section.read(context).status


HANGING = """\
import json, os, sys, time
from types import SimpleNamespace
from envaudit.checks import section
sys.modules["pynvml"] = SimpleNamespace(nvmlInit=lambda: time.sleep(60))
interpreter = {"executable": sys.argv[1]}
context = SimpleNamespace(
    static="", live=True, options={"check_budget_s": 5}, environ=dict(os.environ), interpreter=interpreter,
    workdir=os.getcwd())
answer = section.read(context)
print(json.dumps([answer.facts["usable"], answer.notes["took_ms"], list(answer.facts["each"]["cases"])[:1]]))
"""


def test_driver_that_hangs_is_named_within_the_budget(tmp_path: Path) -> None:
    """NVML first, and then every worker before it has told of its device."""
    interpreter = tmp_path / "python"
    interpreter.write_text("#!/bin/sh\nexec sleep 60\n")
    interpreter.chmod(0o755)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", HANGING, str(interpreter)], capture_output=True, text=True, check=True
    )
    usable, took_ms, cases = json.loads(done.stdout)
    assert ("NVML gave no answer within 2 s", ["attention"]) == (usable, cases)
    assert 6000 >= took_ms
    # Nothing of it holds the process that asked.
    assert 15 > time.monotonic() - began


@pytest.mark.parametrize(
    ("repeats", "words"),
    [(1, "at least once: a fault in 95 %"), (50, "50 times: a fault in 5.8 %"), (1000, "a fault in 0.3 %")],
)
def test_bound_that_a_run_excludes(repeats: int, words: str) -> None:
    """1 - (1 - p)^n = 0.95, solved for p."""
    assert words in bound_in_words(repeats)


def test_progress_is_written_into_the_file_that_was_made_for_it(tmp_path: Path) -> None:
    """Four numbers, of which a bar takes the first and the third; nowhere else is written."""
    path = tmp_path / "progress"
    path.touch()
    with section._Progress(str(path)) as tell:
        assert tell is not None
        tell(10, 100)
        tell(9, 100)
    assert ["9", "0", "100", "0"] == path.read_text().split()
    with section._Progress(str(tmp_path / "absent")) as tell:
        assert tell is None


def test_import_of_the_section_and_the_worker_leaves_torch_alone() -> None:
    """A controller or a node without torch has both."""
    code = "import sys, envaudit.checks.section, envaudit.checks.worker; print('torch' in sys.modules)"
    environ: Dict[str, str] = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True)
    assert "False\n" == done.stdout, done.stderr


def test_operation_that_says_of_no_repeat_bounds_nothing() -> None:
    """A node may leave it out; the patterns of a memory test and a few copies are no repeats of a kernel."""
    said = (("a", 0), ("b", 50), ("memory/constants", 4), ("copies/local", 8))
    cases = {name: CheckedCase(name, "ok", repeats=repeats) for name, repeats in said}
    device = CheckedDevice("n1", "0", "cpu", {}, "", cases, {})
    assert [Stage("bound", bound_in_words(50))] == limits_of([device], Plan())
    assert [] == limits_of([device._replace(cases={"a": cases["a"]})], Plan())
