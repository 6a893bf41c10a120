"""`envaudit check` with ranks of this machine: by itself, and as torchrun and mpirun start it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.cli.conftest import Folder

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch: nox -s checks")

FEW = ("--ops", "all_reduce/sum/fp32,barrier", "--format", "json")
WITHIN_S = 120


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A folder with the one-file form."""
    made = Folder(tmp_path)
    made.run("bundle", "-o", "envaudit.pyz")
    return made


def launched(folder: Folder, argv: List[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """A launcher that starts the one-file form under this interpreter, with torch alone beside it."""
    torch = Path(find_spec("torch").origin).parents[1]  # type: ignore[union-attr, arg-type]
    environment = {**folder.environment, "PYTHONPATH": str(torch), "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(
        argv, cwd=folder.path, env=environment, capture_output=True, text=True, timeout=WITHIN_S, check=False
    )


def run_of(text: str) -> Dict[str, Any]:
    """The one run that a report tells of."""
    (run,) = json.loads(text)["collectives"]
    return dict(run)


def test_two_ranks_of_this_machine_agree(folder: Folder) -> None:
    """The hub knows them by a secret that nobody was given."""
    done = launched(folder, [sys.executable, "envaudit.pyz", "check", "--nproc", "2", *FEW])
    assert 0 == done.returncode, done.stdout + done.stderr
    run = run_of(done.stdout)
    assert (2, "gloo", "done", True) == (
        run["world"],
        run["backend"],
        run["ended"]["kind"],
        run["authenticated"],
    )
    assert {"ok"} == {case["status"] for name, case in run["cases"].items() if "fp32" in name}
    assert run["figures"]["all_reduce/sum/fp32/65537+0"]["busbw_milli_gbps"] is not None


@pytest.mark.parametrize(
    ("words", "code", "severity"), [(("--only", "collectives"), 3, "incomplete"), ((), 0, "info")]
)
def test_one_rank_is_listed_and_incomplete_where_asked_for(
    folder: Folder, words: tuple[str, ...], code: int, severity: str
) -> None:
    """Nobody has to ask for it."""
    ops = () if words else ("--ops", "gemm/int8/*,barrier")
    argv = [sys.executable, "envaudit.pyz", "check", *words, *ops, "--budget", "60", "--format", "json"]
    done = launched(folder, argv)
    assert code == done.returncode, done.stdout + done.stderr
    (finding,) = [each for each in json.loads(done.stdout)["findings"] if each["rule"] == "EA609"]
    assert severity == finding["severity"]
    assert "NOT TESTED" in finding["message"]


def test_torchrun_checks_the_cpu_once_and_all_ranks_together(folder: Folder) -> None:
    """One report, of rank 0."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    argv = [*launcher, "--master-port", str(_free_port()), "envaudit.pyz", "check"]
    done = launched(folder, [*argv, "--ops", "gemm/fp64,barrier", "--format", "json"])
    assert 0 == done.returncode, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert (2, {"ok"}) == (
        run_of(done.stdout)["world"],
        {case["status"] for case in run_of(done.stdout)["cases"].values()},
    )
    ((devices,),) = [tuple(report["checks"].values())]
    assert ["0"] == list(devices)


def test_torchrun_with_a_stale_hub_ends_with_a_usage_error_of_rank_0(folder: Folder) -> None:
    """Its port is taken, and the message names --hub."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        hub = f"127.0.0.1:{taken.getsockname()[1]}"
        variables = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
        argv = [sys.executable, "envaudit.pyz", "check", "--hub", hub, *FEW]
        done = launched(folder, argv, **variables)
    assert 2 == done.returncode, done.stdout + done.stderr
    assert "--hub" in done.stderr


def test_rank_whose_others_never_come_is_incomplete_in_time(folder: Folder) -> None:
    """It says how many there are."""
    variables = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
    began = time.monotonic()
    done = launched(folder, [sys.executable, "envaudit.pyz", "check", "--join", "2", *FEW], **variables)
    assert 3 == done.returncode, done.stdout + done.stderr
    assert time.monotonic() - began < 60
    assert "missing" == run_of(done.stdout)["ended"]["kind"]
    assert ["EA602"] == [each["rule"] for each in json.loads(done.stdout)["findings"]]


def test_process_that_never_comes_to_a_check_without_collectives_is_no_pass(folder: Folder) -> None:
    """No run tells of it, and the others alone would have passed."""
    variables = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
    argv = [sys.executable, "envaudit.pyz", "check", "--only", "mtu", "--join", "2", "--format", "json"]
    done = launched(folder, argv, **variables)
    assert 3 == done.returncode, done.stdout + done.stderr
    assert "it never came to 127.0.0.1:29501 in 2 s" in json.loads(done.stdout)["missing"]["rank1"]["why"]


def test_task_of_slurm_that_never_comes_has_the_name_of_its_node(folder: Folder) -> None:
    """Slurm says where its tasks are to run, and who came is where it says."""
    variables = {
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": "0",
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_NUM_NODES": "2",
        "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
        "SLURM_STEP_NODELIST": "node[01-02]",
        "SLURMD_NODENAME": "node01",
    }
    hub = f"127.0.0.1:{_free_port()}"
    argv = [sys.executable, "envaudit.pyz", "check", "--hub", hub, "--join", "2", *FEW]
    done = launched(folder, argv, **variables)
    assert 3 == done.returncode, done.stdout + done.stderr
    assert ["node02"] == run_of(done.stdout)["ended"]["nodes"]


@pytest.mark.parametrize("command", ["check", "gate"])
def test_rank_whose_torchrun_was_killed_ends(folder: Folder, command: str) -> None:
    """Nobody would hear what it finds."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        hub = f"127.0.0.1:{silent.getsockname()[1]}"
        argv = [sys.executable, "-m", "envaudit", command, "--only", "collectives", "--hub", hub]
        launcher = subprocess.Popen(
            [sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])", *argv],
            cwd=folder.path,
            env={**folder.environment, "TORCHELASTIC_RUN_ID": "none", "RANK": "1", "WORLD_SIZE": "2"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        silent.settimeout(WITHIN_S)
        silent.accept()[0].close()
        launcher.kill()
        began = time.monotonic()
        # Its end closes the pipes; it would look for a hub for a minute.
        _, complaint = launcher.communicate(timeout=WITHIN_S)
    assert time.monotonic() - began < 30
    assert b"interrupted" in complaint


def test_launch_with_a_stopped_process_ends_soon_after_it_fell_silent(folder: Folder) -> None:
    """Its connection stands, and nobody waits for what it would have said."""
    marker, port = f"{os.getpid()}-{time.monotonic_ns()}", str(_free_port() - 1)
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "envaudit", "check", "--only", "collectives", "--stall", "3", *FEW],
            cwd=folder.path,
            env={
                **folder.environment,
                "RANK": str(rank),
                "WORLD_SIZE": "2",
                "LOCAL_RANK": str(rank),
                "LOCAL_WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
                "ENVAUDIT_TEST_RUN": marker,
                "OMP_NUM_THREADS": "1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        until = time.monotonic() + 60
        while _ranks(f"ENVAUDIT_TEST_RUN={marker}") < 2 and time.monotonic() < until:
            time.sleep(0.02)
        began = time.monotonic()
        os.kill(processes[1].pid, signal.SIGSTOP)
        told, complaint = processes[0].communicate(timeout=WITHIN_S)
        assert time.monotonic() - began < 30
        assert 1 == processes[0].returncode, told + complaint
        assert ("silent", [1]) == (run_of(told)["ended"]["kind"], run_of(told)["ended"]["ranks"])
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="needs Open MPI")
def test_mpirun_ranks_find_each_other(folder: Folder) -> None:
    """Without any address having been given."""
    argv = ["mpirun", "-n", "2", "--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
    done = launched(folder, [*argv, sys.executable, "envaudit.pyz", "check", *FEW])
    assert 0 == done.returncode, done.stdout + done.stderr
    assert 2 == run_of(done.stdout)["world"]


def test_interrupted_run_leaves_no_rank(folder: Folder) -> None:
    """Ctrl-C while they import torch."""
    marker = f"ENVAUDIT_TEST_RUN={os.getpid()}-{time.monotonic_ns()}"
    name, _, value = marker.partition("=")
    process = subprocess.Popen(
        [sys.executable, "-m", "envaudit", "check", "--nproc", "2", "--python", sys.executable, *FEW],
        cwd=folder.path,
        env={**folder.environment, name: value, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    until = time.monotonic() + 60
    while not any("collectives.rank" in line for line in _commands(marker)) and time.monotonic() < until:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGINT)
    _, complaint = process.communicate(timeout=30)
    assert 130 == process.returncode, complaint
    until = time.monotonic() + 5
    while _commands(marker) and time.monotonic() < until:
        time.sleep(0.02)
    assert [] == _commands(marker)


def _free_port() -> int:
    """A port of the loopback interface that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _ranks(marker: str) -> int:
    """How many workers have a variable of this value."""
    return sum("collectives.rank" in line for line in _commands(marker))


def _commands(marker: str) -> List[str]:
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
