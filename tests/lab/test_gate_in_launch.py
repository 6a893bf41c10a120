"""The gate inside a step of Slurm, and as the prolog that drains a node: docs/ci/slurm, run as it stands."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from envaudit.cli import compiled, compiling
from envaudit.transport.bundle import build_bundle
from tests.lab.cluster import Cluster
from tests.lab.faults import Faults
from tests.lab.slurm import Slurm
from tests.lab.training_env import TrainingEnvironment

pytestmark = pytest.mark.lab

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "ci" / "slurm"
# What a lab without a time service, and a machine of any size, has.
OF_THE_LAB = ("EA126", "EA127", "EA128", "EA137", "EA153", "EA154", "EA155", "EA473")


class Launcher:
    """Slurm over two nodes with GPUs, and the one-file form where both see it."""

    def __init__(self, slurm: Slurm, nvml_folder: str) -> None:
        self.slurm = slurm
        self.nvml_folder = nvml_folder
        self.folder = Path(slurm.cluster.folder)
        self.zip = self.folder / "envaudit.pyz"
        policy = self.folder / "policy.toml"
        policy.write_text("".join(f'[rules.{rule}]\nseverity = "off"\n' for rule in OF_THE_LAB))
        self.zip.write_bytes(build_bundle({compiled.POLICY: compiling.compile_policy(str(policy))}))

    def step(self, *words: str, without: int = -1) -> subprocess.CompletedProcess[str]:
        """The gate as a step of one task a node; one of them may not begin at all."""
        # Each rank says its own code, for srun's is the largest.
        script = '"$@"; code=$?; echo "code $code" >&2; exit $code'
        script = f'[ "$SLURM_PROCID" = {without} ] && exit 0; {script}'
        # On a real node the driver's library lies where the loader finds it.
        export = f"--export=LD_LIBRARY_PATH={self.nvml_folder}"
        argv = ["srun", export, "-N2", "--ntasks-per-node=1", "--kill-on-bad-exit=0"]
        python = [self.slurm.cluster.python, str(self.zip), "gate", "--no-check", *words]
        return self.slurm.run([*argv, "/bin/sh", "-c", script, "sh", *python], timeout_s=90)


@pytest.fixture(scope="module")
def launcher(lab: None) -> Iterator[Launcher]:
    """Slurm of its own: these tests change its prolog."""
    if shutil.which("gcc") is None or shutil.which("slurmctld") is None:
        pytest.skip("no compiler or no Slurm")
    with Cluster(2) as cluster:
        training = TrainingEnvironment(cluster)
        training.build()
        slurm = Slurm(cluster)
        slurm.start()
        yield Launcher(slurm, training.nvml_folder)


@pytest.fixture
def broken(launcher: Launcher) -> Iterator[Faults]:
    """Breaks its nodes for one test."""
    with Faults(launcher.slurm.cluster) as faults:
        yield faults


def test_step_of_healthy_nodes_ends_with_0_on_each(launcher: Launcher) -> None:
    """Two nodes that meet over their network, and one report."""
    done = launcher.step()
    assert [0, 0] == _codes(done), done.stdout + done.stderr
    assert 1 == done.stdout.count("PASS 2 nodes, alike"), done.stdout
    assert "2 read, 0 sections asked for" in done.stdout, done.stdout


def test_step_with_an_odd_node_names_it_and_ends_alike_on_each(launcher: Launcher, broken: Faults) -> None:
    """Another driver on the second node: the first one asks for that section, and judges."""
    broken.file("node02", "/etc/fakenvml.conf", "driver = 570.86.15\n")
    done = launcher.step("--fail-on", "warning")
    assert [1, 1] == _codes(done), done.stdout + done.stderr
    assert "FAIL EA330 node02" in done.stdout, done.stdout


def test_step_whose_second_task_never_comes_names_its_node(launcher: Launcher) -> None:
    """By Slurm's own list, as an administrator has to find it; nobody else knows where that task was."""
    done = launcher.step("--join", "4", without=1)
    assert [3] == _codes(done), done.stdout + done.stderr
    assert "INCOMPLETE EA901 node02" in done.stdout, done.stdout


def test_prolog_of_the_example_drains_a_node_with_a_fault_alone(launcher: Launcher, broken: Faults) -> None:
    """The script as it stands, run by slurmd: a job starts on the good node, the other one is drained."""
    slurm = launcher.slurm
    # Where every node sees it, with what a node's loader and administrator would set.
    shutil.copy(EXAMPLES / "prolog.sh", launcher.folder)
    prolog = launcher.folder / "lab-prolog.sh"
    prolog.write_text(
        f"#!/bin/sh\nexport LD_LIBRARY_PATH={launcher.nvml_folder} ENVAUDIT_PYZ={launcher.zip}\n"
        f"ENVAUDIT_PYTHON={slurm.cluster.python} exec /bin/sh {launcher.folder}/prolog.sh\n"
    )
    prolog.chmod(0o755)
    with open(slurm.configuration, "a") as file:
        file.write(f"Prolog={prolog}\n")
    assert 0 == slurm.run(["scontrol", "reconfigure"]).returncode
    time.sleep(1)
    healthy = slurm.run(["srun", "--export=NONE", "-w", "node01", "-N1", "/bin/hostname"], timeout_s=60)
    assert (0, "node01\n") == (healthy.returncode, healthy.stdout), healthy.stderr
    broken.file("node02", "/etc/fakenvml.conf", "0.remapped = 0,1,0,1\n")
    slurm.run(
        ["timeout", "15", "srun", "--export=NONE", "-w", "node02", "-N1", "/bin/hostname"], timeout_s=60
    )
    assert "drained" == _state(slurm, "node02", "drained")
    assert "idle" == _state(slurm, "node01", "idle")


def test_sbatch_of_the_example_starts_the_training_behind_the_gate(launcher: Launcher) -> None:
    """Executed as it stands in an allocation, though without the queue."""
    for node in launcher.slurm.cluster.names:
        launcher.slurm.run(["scontrol", "update", f"NodeName={node}", "State=RESUME"])
    time.sleep(0.5)
    python = launcher.slurm.cluster.python
    environ = f"ENVAUDIT_PYTHON={python} ENVAUDIT_PYZ={launcher.zip} ENVAUDIT_GATE_OPTIONS=--no-check"
    script = f"cd {launcher.folder} && {environ} sh -c 'exec bash {EXAMPLES}/train.sbatch /bin/hostname'"
    done = launcher.slurm.run(["salloc", "-N2", "--ntasks-per-node=1", "bash", "-c", script], timeout_s=120)
    assert 0 == done.returncode, done.stdout + done.stderr
    assert ["node01", "node02"] == sorted(done.stdout.strip().splitlines()[-2:]), done.stdout + done.stderr
    (verdict,) = launcher.folder.glob("verdict-*.txt")
    assert verdict.read_text().startswith("PASS 2 nodes")


def _codes(done: subprocess.CompletedProcess[str]) -> list[int]:
    """The exit code of each task, as it said itself."""
    return [int(line.split()[1]) for line in done.stderr.splitlines() if line.startswith("code ")]


def _state(slurm: Slurm, node: str, expected: str) -> str:
    """A node's state, once it is the expected one: the controller hears of a prolog after the job's end."""
    deadline = time.monotonic() + 20
    state = ""
    while time.monotonic() < deadline:
        state = slurm.run(["sinfo", "-h", "-N", "-n", node, "-o", "%T"]).stdout.strip()
        if state == expected:
            break
        time.sleep(0.2)
    return state
