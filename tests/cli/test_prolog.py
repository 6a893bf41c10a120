"""`envaudit gate --prolog`: a listed fault drains the node, and nothing else ever does."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from envaudit.cli import compiled, compiling, prolog
from envaudit.rules import all_rules
from envaudit.transport.bundle import build_bundle
from tests.conftest import PROJECT
from tests.probe import fakenvml
from tests.transport.asking import interpreters

_FOUND = interpreters("3.8", "3.13") or [sys.executable]
PYTHONS = sorted({_FOUND[0], _FOUND[-1]})
FAULT = "EA352 GPU 3: a bad memory row could not be remapped; drain"


class Node:
    """This machine with a stand-in for NVML, and the one-file form on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.zip = folder / "envaudit.pyz"
        self.zip.write_bytes(build_bundle())
        self.library = fakenvml.build(str(folder / "lib"))
        self.set()

    def set(self, **state: object) -> None:
        """The state of its GPUs."""
        fakenvml.write_state(str(self.folder / "state"), **state)

    def with_policy(self, text: str) -> None:
        """A one-file form with this policy compiled in."""
        path = self.folder / "policy.toml"
        path.write_text(text)
        self.zip.write_bytes(build_bundle({compiled.POLICY: compiling.compile_policy(str(path))}))

    def start(
        self, *words: str, python: str = sys.executable, before: tuple[str, ...] = ()
    ) -> subprocess.Popen[str]:
        """The prolog, running."""
        environ = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        environ.update(
            LD_LIBRARY_PATH=os.path.dirname(self.library), FAKENVML_CONF=str(self.folder / "state")
        )
        return subprocess.Popen(
            [*before, python, str(self.zip), "gate", "--prolog", *words],
            cwd=self.folder,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(
        self, *words: str, python: str = sys.executable, before: tuple[str, ...] = ()
    ) -> tuple[int, str, str]:
        """Its exit code, standard output and standard error."""
        process = self.start(*words, python=python, before=before)
        out, err = process.communicate(timeout=30)
        return process.returncode, out, err


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node with eight healthy GPUs."""
    if shutil.which("gcc") is None:
        pytest.skip("no compiler")
    return Node(tmp_path)


@pytest.mark.parametrize("python", PYTHONS, ids=lambda python: python.split("/")[-3])
def test_prolog_of_a_healthy_node_ends_with_0(node: Node, python: str) -> None:
    """One line says what was looked at."""
    code, out, err = node.run(python=python)
    assert (0, "") == (code, err)
    assert re.match(r"PASS gpu: none of \d+ rules, \d\.\d s\n\Z", out)


@pytest.mark.parametrize("python", PYTHONS, ids=lambda python: python.split("/")[-3])
def test_prolog_with_a_listed_fault_ends_with_1_and_one_line(node: Node, python: str) -> None:
    """The line is what an administrator reads as the reason for the drain."""
    node.set(gpu3__remapped="0,1,0,1")
    assert (1, f"{FAULT}\n", "") == node.run(python=python)


def test_prolog_line_is_short_with_many_faults(node: Node) -> None:
    """The worst first, the others counted."""
    node.set(remapped="0,1,0,1", **{"3.lost": 1})
    code, out, _ = node.run()
    assert 1 == code
    assert 1 == out.count("\n")
    assert len(out.rstrip("\n")) <= prolog.LINE_CHARACTERS
    assert "; drain (1 more" in out


def test_prolog_leaves_a_fault_alone_that_the_policy_does_not_list(node: Node) -> None:
    """Only what is listed drains."""
    node.set(gpu3__remapped="0,1,0,1")
    node.with_policy('[gate]\nprolog = ["EA310"]\n')
    code, out, _ = node.run()
    assert 0 == code
    assert out.startswith("PASS gpu: none of 1 rules")


def test_prolog_leaves_a_listed_rule_alone_that_is_no_error(node: Node) -> None:
    """The policy's level counts."""
    node.set(gpu3__remapped="0,1,0,1")
    node.with_policy('[gate]\nprolog = ["EA352"]\n[rules.EA352]\nseverity = "warning"\n')
    assert 0 == node.run()[0]


def test_prolog_leaves_a_waived_fault_alone(node: Node) -> None:
    """Somebody knows of it."""
    node.set(gpu3__remapped="0,1,0,1")
    node.with_policy(
        '[[waivers]]\nrule = "EA352"\nreason = "card ordered"\nowner = "ops"\nexpires = 2999-01-01\n'
    )
    assert 0 == node.run()[0]


@pytest.mark.parametrize(
    "words",
    [["--polcy", "x"], ["--policy"], ["--policy", "gone.toml"], ["--nodes", "node01"], ["--format", "json"]],
    ids=" ".join,
)
def test_prolog_with_a_typing_error_ends_with_0(node: Node, words: list[str]) -> None:
    """It says why nothing was judged."""
    node.set(gpu3__remapped="0,1,0,1")
    code, out, err = node.run(*words)
    assert (0, "") == (code, out)
    assert err.startswith("envaudit: not judged: ")


@pytest.mark.parametrize(
    "words", [("gaet", "--prolog"), ("--prolog",), ("gate", "--prologue"), ("gate", "--prol")], ids=" ".join
)
def test_prolog_that_is_mistyped_ends_with_0(node: Node, words: tuple[str, ...]) -> None:
    """A line of a scheduler's configuration reaches all nodes at once."""
    said = subprocess.run(
        [sys.executable, str(node.zip), *words], capture_output=True, text=True, check=False, timeout=30
    )
    assert (0, "") == (said.returncode, said.stdout)
    assert said.stderr.startswith("envaudit: not judged: ")


def test_run_leaves_prolog_to_the_command_behind_it(tmp_path: Path) -> None:
    """The words behind `--` are the command's own."""
    said = subprocess.run(
        [
            sys.executable,
            "-m",
            "envaudit",
            "run",
            "--gate-exit",
            "77",
            "--policy",
            "gone",
            "--",
            "false",
            "--prolog",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert 77 == said.returncode


def test_prolog_of_a_file_that_was_damaged_ends_with_0(node: Node) -> None:
    """Overwritten in the middle, as a copy does that is not through."""
    whole = node.zip.read_bytes()
    with zipfile.ZipFile(node.zip) as archive:
        place = archive.getinfo("envaudit/cli/main.py").header_offset
    node.zip.write_bytes(whole[: place + 60] + bytes(400) + whole[place + 460 :])
    code, out, err = node.run()
    assert (0, "") == (code, out)
    assert err.startswith("envaudit: not judged: this file is damaged")


@pytest.mark.parametrize("fault", ["half a file", "no file", "no interpreter", "no rights", "a hanging file"])
def test_prolog_script_drains_nobody_where_the_gate_cannot_begin(node: Node, fault: str) -> None:
    """Python itself ends with another code than 0 then."""
    node.set(gpu3__remapped="0,1,0,1")
    python = sys.executable
    assert (1, f"print envaudit: {FAULT}\n") == _script(node, python)
    if fault == "half a file":
        node.zip.write_bytes(node.zip.read_bytes()[:300_000])
    elif fault == "no file":
        node.zip.unlink()
    elif fault == "no interpreter":
        python = str(node.folder / "python3")
    elif fault == "no rights":
        python = str(node.zip)
        node.zip.chmod(0o000)
    else:
        node.zip.unlink()
        os.mkfifo(node.zip)
    assert (0, "") == _script(node, python)


def _script(node: Node, python: str) -> tuple[int, str]:
    """Exit code and standard output of docs/ci/slurm/prolog.sh, in the environment that slurmd gives it."""
    done = subprocess.run(
        ["/bin/sh", str(PROJECT / "docs" / "ci" / "slurm" / "prolog.sh")],
        cwd="/",
        env={
            "PATH": "/usr/bin:/bin",
            "ENVAUDIT_PYTHON": python,
            "ENVAUDIT_PYZ": str(node.zip),
            "LD_LIBRARY_PATH": os.path.dirname(node.library),
            "FAKENVML_CONF": str(node.folder / "state"),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    return done.returncode, done.stdout


def test_prolog_with_an_interpreter_that_is_too_old_ends_with_0(node: Node) -> None:
    """It drains no node; every other command says that something needed is absent."""
    old = (
        "import sys, runpy; sys.version_info = (3, 6, 8); sys.argv = sys.argv[1:]; "
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    codes = [
        subprocess.run(
            [sys.executable, "-c", old, str(node.zip), *words], capture_output=True, check=False, timeout=30
        ).returncode
        for words in (("gate", "--prolog"), ("gate",))
    ]
    assert [0, 5] == codes


@pytest.mark.parametrize(
    "text", ["[gate\n", '[gate]\nprolog = ["EA999"]\n', '[gate]\nprolog = "EA352"\n', "[rules.EA35]\n", "\0"]
)
def test_prolog_with_a_broken_policy_ends_with_0(node: Node, text: str) -> None:
    """Where the package reads a policy itself, its faults drain nobody."""
    node.set(gpu3__remapped="0,1,0,1")
    (node.folder / "policy.toml").write_text(text)
    process = subprocess.run(
        [sys.executable, "-m", "envaudit", "gate", "--prolog", "--policy", "policy.toml"],
        cwd=node.folder,
        env={
            **os.environ,
            "LD_LIBRARY_PATH": os.path.dirname(node.library),
            "FAKENVML_CONF": str(node.folder / "state"),
            "XDG_CONFIG_HOME": str(node.folder),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert (0, "") == (process.returncode, process.stdout)
    assert process.stderr.startswith("envaudit: not judged: ")


def test_prolog_with_a_damaged_compiled_policy_ends_with_0(node: Node) -> None:
    """Whatever stands in the zip."""
    for text in (b"{", b"[]", b'{"policy": {}, "prolog": null}'):
        node.zip.write_bytes(build_bundle({compiled.POLICY: text}))
        code, _, err = node.run()
        assert 0 == code
        assert err.startswith("envaudit: not judged: ")


def test_prolog_with_a_hanging_driver_ends_in_8_s_with_0(node: Node) -> None:
    """A section's own time is over before the watchdog's."""
    node.set(**{"return.nvmlInit": "hang"})
    began = time.monotonic()
    code, out, err = node.run()
    assert time.monotonic() - began < 8
    assert (0, "") == (code, out)
    assert "gpu could not be read" in err


def test_prolog_whose_worker_stops_ends_in_8_s_with_0(node: Node) -> None:
    """The watchdog holds where the process that reads says nothing any more."""
    node.set(**{"return.nvmlInit": "hang"})
    began = time.monotonic()
    process = node.start()
    worker = _child_of(process.pid)
    os.kill(worker, signal.SIGSTOP)
    _, err = process.communicate(timeout=30)
    assert time.monotonic() - began < 8
    assert 0 == process.returncode
    assert "not through in" in err
    assert not os.path.exists(f"/proc/{worker}/exe")


def test_prolog_with_a_crashing_driver_ends_with_0(node: Node) -> None:
    """A crash is no fault that is listed."""
    node.set(**{"return.nvmlInit": "crash"})
    code, out, err = node.run()
    assert (0, "") == (code, out)
    assert "SIGSEGV" in err


def test_prolog_whose_worker_is_killed_ends_with_0(node: Node) -> None:
    """As the kernel does it when memory is short."""
    node.set(**{"return.nvmlInit": "hang"})
    process = node.start()
    os.kill(_child_of(process.pid), signal.SIGKILL)
    _, err = process.communicate(timeout=30)
    assert 0 == process.returncode
    assert "SIGKILL" in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_prolog_that_is_ended_ends_with_0_and_leaves_nothing(node: Node, number: int) -> None:
    """The scheduler's own time limit drains nobody."""
    node.set(**{"return.nvmlInit": "hang"})
    process = node.start()
    worker = _child_of(process.pid)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert 0 == process.returncode
    assert f"ended by {signal.Signals(number).name}" in err
    deadline = time.monotonic() + 2
    while os.path.exists(f"/proc/{worker}/exe") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not os.path.exists(f"/proc/{worker}/exe")


def test_prolog_whose_output_is_closed_tells_a_fault_by_its_code(node: Node) -> None:
    """Nobody may read it; the code counts."""
    node.set(gpu3__remapped="0,1,0,1")
    process = node.start()
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    process.stderr.read()
    process.stderr.close()
    assert 1 == process.wait(30)


def test_prolog_started_without_standard_streams_tells_a_fault_by_its_code(node: Node) -> None:
    """Its own pipe must not take their numbers."""
    node.set(gpu3__remapped="0,1,0,1")
    assert 1 == node.run(before=("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"))[0]


def test_prolog_tells_a_fault_where_ends_of_children_were_ignored(node: Node) -> None:
    """SIGCHLD as some daemons leave it."""
    node.set(gpu3__remapped="0,1,0,1")
    ignoring = "import os, signal, sys; signal.signal(signal.SIGCHLD, 1); os.execv(sys.argv[1], sys.argv[1:])"
    assert (1, f"{FAULT}\n", "") == node.run(before=(sys.executable, "-c", ignoring))


def test_prolog_with_a_hanging_driver_ends_though_its_signals_are_blocked(node: Node) -> None:
    """As whoever starts it may have left them."""
    node.set(**{"return.nvmlInit": "hang"})
    blocked = (
        "import os, signal, sys; signal.pthread_sigmask(0, range(1, 32)); os.execv(sys.argv[1], sys.argv[1:])"
    )
    process = node.start(before=(sys.executable, "-c", blocked))
    os.kill(_child_of(process.pid), signal.SIGSTOP)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=8)
    assert 0 == process.returncode
    assert "ended by SIGTERM" in err


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts take root")
def test_prolog_on_a_read_only_root_without_run_judges(node: Node) -> None:
    """Nothing is written to a disk: a whole node is read-only, /run and /tmp are empty and read-only too."""
    node.set(gpu3__remapped="0,1,0,1")
    shell = (
        "mount --make-rprivate / && mount -t tmpfs -o ro none /run && mount -o remount,bind,ro / && "
        'mount -o remount,bind,ro /tmp 2>/dev/null; exec "$@"'
    )
    assert (1, f"{FAULT}\n", "") == node.run(before=("unshare", "--mount", "sh", "-c", shell, "sh"))


def test_prolog_reads_no_configuration_of_the_folder_it_starts_in(node: Node) -> None:
    """A scheduler starts it anywhere."""
    node.set(gpu3__remapped="0,1,0,1")
    (node.folder / "envaudit.toml").write_text('[gate]\nprolog = []\n[rules.EA352]\nseverity = "off"\n')
    code, out, _ = node.run()
    assert (1, f"{FAULT}\n") == (code, out)


def test_prolog_listens_by_default_to_errors_of_gpu_and_driver_alone() -> None:
    """Each default rule is an error of one node that the section gpu alone tells."""
    rules = {rule.id: rule for rule in all_rules()}
    assert {("error", "node", ("gpu",))} == {
        (rules[name].severity, rules[name].scope, rules[name].needs) for name in prolog.DEFAULT_RULES
    }


def test_prolog_takes_less_than_a_second_of_cpu(node: Node) -> None:
    """On a node whose driver answers; how long that takes by the clock is the machine's load."""
    before = os.times()
    node.run()
    after = os.times()
    took_s = after.children_user + after.children_system - before.children_user - before.children_system
    assert took_s < 1


@pytest.mark.parametrize("python", PYTHONS, ids=lambda python: python.split("/")[-3])
def test_prolog_imports_the_listed_rules_and_no_report(node: Node, python: str) -> None:
    """Every job waits for it, and a zip keeps no bytecode: what is imported is compiled each time."""
    names = _imported(node, python)
    assert {"envaudit.rules.gpumemory", "envaudit.rules.evidence"} <= names
    unwanted = ("envaudit.report", "envaudit.rules.nccl", "envaudit.rules.numbers", "envaudit.checks")
    assert [] == sorted(name for name in names if name.startswith(unwanted))


def _imported(node: Node, python: str) -> set[str]:
    """The modules of the package that judging takes, in a process that can tell."""
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from envaudit.cli import prolog\n"
        "prolog._judged(['--prolog'])\n"
        "print(*[name for name in sys.modules if name.startswith('envaudit.')])"
    )
    said = subprocess.run(
        [python, "-I", "-c", script, str(node.zip)], capture_output=True, text=True, check=True, timeout=30
    )
    return set(said.stdout.split())


def _child_of(pid: int) -> int:
    """The process that the watchdog has made, once it has a session of its own."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid and fields[3] == entry:
                return int(entry)
        time.sleep(0.005)
    raise AssertionError("no worker")
