"""Section `deep`: what a process that imports torch tells, and what becomes of one that does not end well."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest

from envaudit.model.codec import fingerprint_of_answer
from envaudit.probe import deep
from envaudit.probe.answer import row_of
from envaudit.probe.context import Answer
from envaudit.probe.sections import libraries
from envaudit.rules import Evidence, judge
from tests.conftest import PACKAGE_HOME
from tests.probe import fakelibs, faketorch
from tests.probe.processes import is_gone
from tests.probe.test_libraries_section import Environment


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """The folders of an environment without a torch yet."""
    return Environment(tmp_path / "env")


def read(environment: Environment, environ: Optional[Dict[str, str]] = None, workdir: str = "/") -> Answer:
    """The section's answer, with the environment on the interpreter's path."""
    context = environment.context({"PYTHONPATH": environment.site, **(environ or {})})
    context.workdir = workdir
    answer = deep.read(context)
    row_of("deep", 1, answer)  # keeps the law of facts
    return answer


def rules_of(environment: Environment, answer: Answer, environ: Optional[Dict[str, str]] = None) -> List[str]:
    """The findings about what is loaded, of this answer beside that of the files."""
    static = libraries.read(environment.context({"PYTHONPATH": environment.site, **(environ or {})}))
    rows = [row_of("libraries", 1, static), row_of("deep", 1, answer)]
    said = {"tool": "1", "captured_at": "2026-11-30T10:00:00Z", "sections": json.loads(json.dumps(rows))}
    one = fingerprint_of_answer(said, node="n", source="probe", where="answer")
    found = judge(Evidence((one,), comparing=False))
    return [" | ".join([each.rule, *each.evidence]) for each in found if each.rule in ("EA250", "EA251")]


def test_deep_tells_what_the_files_tell(environment: Environment) -> None:
    """Paths written alike, versions from the loaded libraries, outcomes of both trials."""
    faketorch.build(environment.site)
    answer = read(environment)
    assert ("ok", []) == (answer.status, list(answer.errors))
    assert {
        "version": "2.14.1+cu130",
        "cuda": "13.0",
        "cudnn": "9.24.0",
        "nccl": "2.30.7",
        "architectures": ["sm_80", "sm_90"],
    } == answer.facts["torch"]
    assert ("ok", "cpu", "ok", {"backend": "gloo", "outcome": "ok"}) == tuple(
        answer.facts[key] for key in ("import", "device", "convolution", "collective")
    )
    loaded = answer.facts["libraries"]
    assert {
        "path": "{site}/nvidia/nccl/lib/libnccl.so.2",
        "version": "2.30.7",
        "others": [],
    } == loaded["nccl"]
    assert ("9.24.0", {"graph": "beside"}) == (loaded["cudnn"]["version"], loaded["cudnn"]["parts"])
    assert {"nccl", "cudnn", "cudart", "cublas", "cublaslt"} == set(loaded)
    assert [] == rules_of(environment, answer)


def test_deep_with_a_gpu_uses_it_and_nccl(environment: Environment) -> None:
    """Where torch sees a GPU both trials are made there."""
    faketorch.build(environment.site, available=True)
    facts = read(environment, {"NCCL_DEBUG_FILE": "/nowhere/log"}).facts
    assert (True, "cuda", "nccl") == (facts["available"], facts["device"], facts["collective"]["backend"])


def test_deep_with_a_preloaded_nccl_agrees_with_the_files(environment: Environment, tmp_path: Path) -> None:
    """LD_PRELOAD is seen by both: no disagreement, and the copy is named by its link, not its real name."""
    faketorch.build(environment.site)
    other = fakelibs.build_nccl(str(tmp_path / "other"), "2.18.5", real_name=True)
    environ = {"LD_PRELOAD": other, "HOME": str(tmp_path)}
    answer = read(environment, environ)
    nccl = answer.facts["libraries"]["nccl"]
    assert ("$HOME/other/libnccl.so.2", "2.18.5") == (nccl["path"], nccl["version"])
    assert [] == rules_of(environment, answer, environ)


def test_deep_with_a_static_nccl_finds_it_in_torch(environment: Environment) -> None:
    """The symbol leads into libtorch_cuda.so, as the section of the files has it."""
    faketorch.build(environment.site, torch_options={"static_nccl": "2.20.5"})
    core = environment.torch("libtorch_cuda.so")
    fakelibs.compile_library(
        core,
        'const char text[] = "NCCL version 2.20.5+cuda13.0";'
        "int ncclGetVersion(int *version) { *version = 22005; return 0; }",
        soname="libtorch_cuda.so",
        needs=["libcudart.so.13", "libcudnn.so.9", "libtorch_cpu.so"],
        search="RPATH",
        search_dirs=["$ORIGIN", "$ORIGIN/../../nvidia/cudnn/lib", "$ORIGIN/../../nvidia/cu13/lib"],
    )
    answer = read(environment)
    nccl = answer.facts["libraries"]["nccl"]
    assert ("{site}/torch/lib/libtorch_cuda.so", "2.20.5") == (nccl["path"], nccl["version"])
    assert [] == rules_of(environment, answer)


def test_deep_finds_what_a_start_up_file_loads(environment: Environment, tmp_path: Path) -> None:
    """A sitecustomize that loads another NCCL first is in no file of torch: both copies are named."""
    faketorch.build(environment.site)
    other = fakelibs.build_nccl(str(tmp_path / "other"), "2.18.5")
    text = f"import ctypes\nctypes.CDLL({other!r}, mode=ctypes.RTLD_GLOBAL)\n"
    Path(environment.site, "sitecustomize.py").write_text(text)
    answer = read(environment)
    assert [
        "EA250 | files:  2.30.7, {site}/nvidia/nccl/lib/libnccl.so.2 | loaded: 2.18.5, " + other
    ] == rules_of(environment, answer)


def test_deep_of_a_torch_that_cannot_be_imported_tells_why(environment: Environment) -> None:
    """The last line of the error is the fact; the rest could not be read."""
    raised = 'raise OSError("first line\\nlibcudart.so.13: cannot open shared object file\\x1b[31m")'
    faketorch.build(environment.site, first=raised)
    answer = read(environment)
    assert "partial" == answer.status
    assert {"import": "OSError: libcudart.so.13: cannot open shared object file [31m"} == answer.facts
    assert "EA251" == rules_of(environment, answer)[0][:5]


CRASH = "import signal; signal.signal(signal.SIGSEGV, signal.SIG_DFL); os.kill(os.getpid(), signal.SIGSEGV)"


def test_deep_of_a_torch_that_crashes_at_import_tells_so(environment: Environment) -> None:
    """The signal is the fact, and what was printed last stands in the errors."""
    faketorch.build(environment.site, first=f"print('about to fail', file=sys.stderr, flush=True); {CRASH}")
    answer = read(environment)
    assert ("partial", "ended by SIGSEGV; about to fail") == (answer.status, answer.facts["import"])


def test_deep_of_a_torch_that_crashes_later_keeps_what_was_told(environment: Environment) -> None:
    """A crash in the convolution is the convolution's; the import and the versions stand."""
    faketorch.build(environment.site, convolution=CRASH)
    answer = read(environment)
    assert ("partial", "ok", "ended by SIGSEGV") == (
        answer.status,
        answer.facts["import"],
        answer.facts["convolution"],
    )
    assert ["convolution: ended by SIGSEGV"] == list(answer.errors)
    assert "collective" not in answer.facts


def test_deep_of_a_convolution_that_fails_is_a_fact(environment: Environment) -> None:
    """It was tried and seen to fail: nothing is missing from the answer."""
    faketorch.build(environment.site, convolution='raise RuntimeError("no kernel image is available")')
    answer = read(environment)
    assert ("ok", "RuntimeError: no kernel image is available") == (
        answer.status,
        answer.facts["convolution"],
    )
    assert "ok" == answer.facts["collective"]["outcome"]
    assert ["EA251 | RuntimeError: no kernel image is available"] == rules_of(environment, answer)


def test_deep_that_hangs_ends_in_time_and_leaves_nothing_running(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collective that never returns, with a child of its own: both are ended, the rest is told."""
    monkeypatch.setattr(deep, "CHILD_TIMEOUT_S", 5.0)
    pids = tmp_path / "pids"
    hang = (
        "import subprocess, time; child = subprocess.Popen(['sleep', '600']); "
        f"open({str(pids)!r}, 'w').write('%d %d' % (os.getpid(), child.pid)); time.sleep(600)"
    )
    faketorch.build(environment.site, collective=hang)
    answer = read(environment)
    assert ("partial", "no answer within 5 s") == (answer.status, answer.facts["collective"]["outcome"])
    assert "ok" == answer.facts["convolution"]
    assert [] == [pid for pid in pids.read_text().split() if not is_gone(int(pid))]


def test_deep_takes_no_notice_of_what_torch_prints(environment: Environment) -> None:
    """Text on standard output before, between and without an end of line, from Python and from C."""
    noise = "print('{\"told\": {}}'); sys.stdout.flush(); os.write(1, b'no end of line')"
    faketorch.build(environment.site, first=noise)
    Path(environment.site, "sitecustomize.py").write_text("import os; os.write(1, b'hello, no end of line')")
    assert "ok" == read(environment).status


def test_deep_with_endless_output_is_no_answer(environment: Environment) -> None:
    """More than a few MiB is cut off, and what was told before stands."""
    faketorch.build(environment.site, convolution="sys.stderr.write('x' * (8 << 20))")
    answer = read(environment)
    assert ("partial", "ok", "more than 4 MiB of output") == (
        answer.status,
        answer.facts["import"],
        answer.facts["convolution"],
    )


def test_deep_runs_nothing_of_the_working_directory(environment: Environment, tmp_path: Path) -> None:
    """Files named as modules there stay as they are, and no byte code is written anywhere."""
    faketorch.build(environment.site)
    workdir = tmp_path / "work"
    workdir.mkdir()
    for name in ("torch", "json", "re", "ctypes"):
        (workdir / f"{name}.py").write_text("raise SystemExit('the working directory was imported')")
    answer = read(environment, workdir=str(workdir))
    assert "ok" == answer.status
    assert [] == list(Path(environment.site).rglob("*.pyc"))


def test_deep_without_torch_is_absent(environment: Environment) -> None:
    """Nothing to import, and no error."""
    assert Answer("absent", {}) == read(environment)


def test_deep_of_an_environment_that_is_only_read_imports_nothing(environment: Environment) -> None:
    """Where an environment is audited by another Python nothing of it is executed, torch least of all."""
    faketorch.build(environment.site, first="open('/nowhere/at/all', 'w')")
    context = environment.context()
    context.static = str(environment.prefix)
    answer = deep.read(context)
    assert ("error", ["nothing of this environment is executed: torch was not imported"]) == (
        answer.status,
        list(answer.errors),
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root refuses to run what others can write")
def test_deep_as_root_does_not_import_what_others_can_write(environment: Environment) -> None:
    """A torch that everybody can change is not run as root."""
    init = os.path.join(faketorch.build(environment.site), "__init__.py")
    os.chmod(init, stat.S_IRUSR | stat.S_IWUSR | stat.S_IWOTH)
    answer = read(environment)
    assert "error" == answer.status
    assert "can be written by everybody" in answer.errors[0]


def through_the_runner(environment: Environment, **request: object) -> Dict[str, Any]:
    """The section's row as a node sends it."""
    script = "import json, sys; from envaudit.probe.runner import probe;"
    script += "print(json.dumps(probe(json.loads(sys.argv[1]))['sections']))"
    environ = {"PATH": os.defpath, "PYTHONPATH": f"{PACKAGE_HOME}:{environment.site}"}
    ran = subprocess.run(
        [sys.executable, "-B", "-c", script, json.dumps({"sections": [], "also": ["deep"], **request})],
        env=environ,
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    (row,) = json.loads(ran.stdout)
    return dict(row)


def test_deep_through_the_runner_has_the_memory_it_needs(environment: Environment) -> None:
    """The probe bounds the memory of its children; the process that imports torch is not bound by it."""
    faketorch.build(environment.site)
    row = through_the_runner(environment)
    assert ("deep", "ok", "ok") == (row["name"], row["status"], row["facts"]["import"])


def test_deep_that_hangs_in_a_short_run_still_tells_the_rest(environment: Environment) -> None:
    """Where the whole run has less time than the section would take, the child ends before it."""
    faketorch.build(environment.site, collective="import time; time.sleep(600)")
    row = through_the_runner(environment, deadline_s=9)
    assert ("partial", "ok") == (row["status"], row["facts"]["convolution"])
    assert row["facts"]["collective"]["outcome"].startswith("no answer within")
