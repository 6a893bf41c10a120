"""A gate over four nodes: passes where all is well, and a single fault is exactly one finding, its own.

Faults of what is run on the nodes stand in test_gate_checks.py, which needs torch.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.lab import faketime
from tests.lab.cluster import Cluster
from tests.lab.command import Command, over_exec, over_ssh
from tests.lab.faults import Faults
from tests.lab.gating import LOCK, SOURCE, Gated, Said, gate, lock_what_is_there, policy
from tests.lab.test_changed_files import MODULE, row
from tests.lab.training_env import DRIVER, START_CODE, TrainingEnvironment, driver_text

pytestmark = pytest.mark.lab

ODD = "node03"
STILL = ("--lock", LOCK, "--no-check")


@pytest.fixture(scope="module")
def healthy(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with environment.yml and a fresh lock of what the healthy nodes have."""
    folder = tmp_path_factory.mktemp("healthy")
    lock_what_is_there(over_ssh(cluster, folder))
    return folder


@pytest.fixture
def locked(healthy: Path, envaudit: Command) -> Command:
    """The command in a folder with a lock of what the nodes have."""
    for name in (LOCK, SOURCE):
        shutil.copy(healthy / name, envaudit.folder)
    return envaudit


def told(gated: Gated) -> list[Said]:
    """The findings, after a look at all formats."""
    gated.holds_in_all_formats(("run",))
    return gated.findings


def test_four_nodes_as_locked_pass(locked: Command) -> None:
    """Every stage is told with its time, and the last line is the verdict."""
    gated = gate(locked, *STILL)
    assert (0, []) == (gated.ended.code, told(gated)), gated.ended.text
    assert ["lock", "nodes", "as locked", "compare", "clock", "checks", "rules", "policy"] == [
        stage["name"] for stage in gated.envelope["stages"]
    ]
    assert gated.ended.last_line.startswith("PASS 4 nodes, as locked, alike, no numbers checked"), (
        gated.ended.text
    )


def _old_driver(faults: Faults, training: TrainingEnvironment) -> None:
    faults.file(ODD, "/etc/fakenvml.conf", driver_text("570.86.15"))


def _driver(faults: Faults, training: TrainingEnvironment) -> None:
    faults.file(ODD, "/etc/fakenvml.conf", driver_text("580.82.07"))


def _nccl(faults: Faults, training: TrainingEnvironment) -> None:
    faults.shown(ODD, training.other_nccl("2.26.2"), training.nccl)


def _python_patch(faults: Faults, training: TrainingEnvironment) -> None:
    """The interpreter says another patch than it has, and conda's record says the same."""
    faults.file(ODD, START_CODE, _other_python())
    record = Path(training.conda_record("python"))
    other = Path(training.cluster.folder, "python.json")
    other.write_text(record.read_text().replace("3.11.14", "3.11.13"), encoding="utf-8")
    faults.shown(ODD, str(other), str(record))


def _other_python() -> str:
    major, minor, micro = sys.version_info[:3]
    fields = f"dict(major={major}, minor={minor}, micro={micro + 1}, releaselevel='final', serial=0)"
    return (
        f"import sys; sys.version_info = type('v', (tuple,), {fields})(({major}, {minor}, {micro + 1}, "
        f"'final', 0)); sys.version = sys.version.replace('{major}.{minor}.{micro}', "
        f"'{major}.{minor}.{micro + 1}')\n"
    )


def _start_up_file(faults: Faults, training: TrainingEnvironment) -> None:
    edited = Path(training.cluster.folder, "edited.pth")
    edited.write_text("import sys; sys.dont_write_bytecode = True\n", encoding="utf-8")
    faults.shown(ODD, str(edited), training.start_up)


def _package_build(faults: Faults, training: TrainingEnvironment) -> None:
    faults.shown(ODD, training.rebuilt_record("numpy", "py311h64a7726_1"), training.conda_record("numpy"))


def _variable(faults: Faults, training: TrainingEnvironment) -> None:
    faults.variable(ODD, "NCCL_ALGO", "Tree")


def _mtu(faults: Faults, training: TrainingEnvironment) -> None:
    namespace = training.cluster.netns(ODD)

    def set_mtu(size_bytes: str) -> None:
        argv = ["ip", "netns", "exec", namespace, "ip", "link", "set", "eth0", "mtu", size_bytes]
        subprocess.run(argv, check=True, timeout=10, capture_output=True)

    set_mtu("1400")
    faults.later(lambda: set_mtu("1500"))


def _missing_gpu(faults: Faults, training: TrainingEnvironment) -> None:
    faults.file(ODD, "/etc/fakenvml.conf", f"{driver_text(DRIVER)}count = 7\n")


def _busy_gpu(faults: Faults, training: TrainingEnvironment) -> None:
    faults.file(ODD, "/etc/fakenvml.conf", f"{driver_text(DRIVER)}3.process = 4242,2000\n")


def _dead(faults: Faults, training: TrainingEnvironment) -> None:
    faults.sshd_stopped(ODD)


@pytest.mark.parametrize(
    ("break_node", "expected", "code"),
    [
        (_old_driver, Said("EA330", "error", (ODD,)), 1),
        (_driver, Said("EA331", "warning", (ODD,)), 0),
        (_nccl, Said("EA214", "error", (ODD,)), 1),
        (_python_patch, Said("EA202", "error", (ODD,)), 1),
        (_start_up_file, Said("EA219", "warning", (ODD,)), 0),
        (_package_build, Said("EA203", "error", (ODD,)), 1),
        (_variable, Said("EA451", "error", (ODD,)), 1),
        (_mtu, Said("EA402", "error", (ODD,)), 1),
        (_missing_gpu, Said("EA300", "error", (ODD,)), 1),
        (_busy_gpu, Said("EA320", "error", (ODD,)), 1),
        (_dead, Said("EA901", "incomplete", (ODD,)), 3),
    ],
    ids=lambda value: value.__name__.strip("_") if callable(value) else "",
)
def test_one_fault_of_a_node_is_its_own_finding_alone(
    locked: Command,
    faults: Faults,
    training: TrainingEnvironment,
    break_node: Callable[[Faults, TrainingEnvironment], None],
    expected: Said,
    code: int,
) -> None:
    """What only follows from it is folded; text, JUnit, SARIF and the exit code say the same."""
    break_node(faults, training)
    gated = gate(locked, *STILL)
    assert ([expected], code) == (told(gated), gated.ended.code), gated.ended.text


def test_small_shared_memory_is_its_own_finding_alone(
    locked: Command, cluster: Cluster, faults: Faults
) -> None:
    """Docker's default on one node: an error where the probe is started as training is, not by sshd."""
    node = cluster.node(ODD)
    node.call("tmpfs", target="/dev/shm", options="mode=1777,size=64m", read_only=False)
    faults.later(lambda: node.call("unbind", target="/dev/shm"))
    gated = gate(over_exec(cluster, locked.folder, cluster.enter_command), *STILL)
    assert ([Said("EA129", "error", (ODD,))], 1) == (told(gated), gated.ended.code), gated.ended.text


def test_changed_file_is_its_own_finding_alone(
    locked: Command, faults: Faults, training: TrainingEnvironment
) -> None:
    """A module that somebody has added a line to, on one node, is seen by its size."""
    site = Path(training.site_packages)
    (record,) = site.glob("torch-*.dist-info/RECORD")
    before = record.read_text()
    files = sorted(path for path in (site / "torch").rglob("*") if path.is_file() and path.suffix != ".pyc")
    record.write_text("".join(row(path, site) for path in files))
    faults.later(lambda: _restore(record, before))
    edited = Path(training.cluster.folder, "edited.py")
    edited.write_text((site / MODULE).read_text() + "# a line more\n")
    faults.shown(ODD, str(edited), str(site / MODULE))
    gated = gate(locked, *STILL)
    assert ([Said("EA206", "error", (ODD,))], 1) == (told(gated), gated.ended.code), gated.ended.text


def _restore(path: Path, text: str) -> None:
    path.write_text(text)


@contextmanager
def clock_ahead(cluster: Cluster, name: str) -> Iterator[None]:
    """One clock that is 3.2 seconds ahead."""
    faketime.set_apart(cluster, name, "+3.2s")
    try:
        yield
    finally:
        faketime.set_apart(cluster, name, "+0")


def test_clock_that_is_off_is_its_own_finding_alone(clock_cluster: Cluster, tmp_path: Path) -> None:
    """Measured along the way; nothing else differs for it."""
    with clock_ahead(clock_cluster, ODD):
        gated = gate(over_ssh(clock_cluster, tmp_path), "--no-check")
    assert ([Said("EA150", "error", (ODD,))], 1) == (told(gated), gated.ended.code), gated.ended.text


def test_stale_lock_is_its_own_finding_alone(locked: Command) -> None:
    """The source asks for more than it did when the lock was made; the nodes are still as locked."""
    source = locked.folder / SOURCE
    source.write_text(source.read_text().replace("numpy", "numpy >=2"))
    gated = gate(locked, *STILL)
    gated.holds_in_all_formats((LOCK,))
    assert ([Said("EA060", "error", ())], 1) == (gated.findings, gated.ended.code), gated.ended.text


def test_expired_waiver_is_its_own_finding_alone(locked: Command) -> None:
    """The policy is named, so that it is told with its digest."""
    text = '[[waivers]]\nrule = "EA331"\nreason = "update"\nowner = "ops"\nexpires = "2020-01-31"\n'
    gated = gate(locked, *STILL, "--policy", policy(locked.folder, text))
    assert ([Said("EA910", "error", ())], 1) == (told(gated), gated.ended.code), gated.ended.text
    (line,) = [stage["text"] for stage in gated.envelope["stages"] if stage["name"] == "policy"]
    assert line.startswith("policy.toml sha256:")
    assert line.endswith(": 1 waiver")


def test_waiver_that_is_used_is_told_and_passes(locked: Command, faults: Faults) -> None:
    """Somebody has accepted it until a day; the verdict says which finding and who."""
    faults.variable(ODD, "NCCL_ALGO", "Tree")
    text = '[[waivers]]\nrule = "EA451"\nreason = "trial"\nowner = "ops"\nexpires = "2999-01-31"\n'
    gated = gate(locked, *STILL, "--policy", policy(locked.folder, text))
    assert (0, []) == (gated.ended.code, told(gated)), gated.ended.text
    (line,) = [stage["text"] for stage in gated.envelope["stages"] if stage["name"] == "waived"]
    assert f"EA451 on {ODD} until 2999-01-31: trial (ops)" == line


def test_dead_node_that_is_allowed_is_told_and_never_good(locked: Command, faults: Faults) -> None:
    """The gate passes without it; a second one would be one too many."""
    faults.sshd_stopped(ODD)
    good, bad = locked.folder / "good", locked.folder / "bad"
    files = ("--good-nodes", str(good), "--bad-nodes", str(bad))
    gated = gate(locked, *STILL, *files, "--allow-missing", "1")
    assert ([Said("EA901", "info", (ODD,))], 0) == (told(gated), gated.ended.code), gated.ended.text
    assert ("node[01-02,04]\n", f"{ODD}\n") == (good.read_text(), bad.read_text())
    assert gated.ended.last_line.startswith("PASS 3 of 4 nodes, as locked"), gated.ended.text
    faults.sshd_stopped("node02")
    gated = gate(locked, *STILL, *files, "--allow-missing", "1")
    assert ([Said("EA901", "incomplete", ("node02", ODD))], 3) == (told(gated), gated.ended.code)


def test_bad_node_is_written_and_its_drain_command_printed(locked: Command, faults: Faults) -> None:
    """The commands are words of the register and names that were checked; the last line is the verdict."""
    faults.variable(ODD, "NCCL_ALGO", "Tree; rm -rf /")
    good, bad, verdict = (locked.folder / name for name in ("good", "bad", "verdict"))
    files = ("--good-nodes", str(good), "--bad-nodes", str(bad), "--verdict-file", str(verdict))
    gated = gate(locked, *STILL, *files, "--suggest", "slurm")
    assert 1 == gated.ended.code, gated.ended.text
    assert ("node[01-02,04]\n", f"{ODD}\n") == (good.read_text(), bad.read_text())
    (command,) = gated.envelope["suggestions"]
    assert command.startswith(f"scontrol update NodeName={ODD} State=DRAIN 'Reason=envaudit: EA451 ")
    assert "rm" not in command
    assert command in gated.ended.stdout.splitlines()
    assert f"{gated.ended.last_line}\n" == verdict.read_text()
    assert gated.ended.last_line.startswith(f"FAIL EA451 {ODD}")


def test_nodes_without_the_baseline_are_named_and_held_against_nothing(
    locked: Command, faults: Faults
) -> None:
    """Three nodes have it; the fourth is a gap, although it is like the others."""
    ended = locked("snapshot", "--nodes", "node[01-03]", "--tag", "good")
    assert 0 == ended.code, ended.text
    gated = gate(locked, *STILL, "--baseline", "good")
    assert ([Said("EA906", "incomplete", ("node04",))], 3) == (told(gated), gated.ended.code)
    ended = locked("snapshot", "--nodes", "node04", "--tag", "good")
    gated = gate(locked, *STILL, "--baseline", "good")
    assert ([], 0) == (told(gated), gated.ended.code), gated.ended.text
    faults.variable(ODD, "NCCL_ALGO", "Tree")
    gated = gate(locked, *STILL, "--baseline", "good")
    assert ([Said("EA451", "error", (ODD,))], 1) == (told(gated), gated.ended.code), gated.ended.text


def test_no_node_that_answers_ends_early_and_says_so(locked: Command, faults: Faults) -> None:
    """Nothing is compared, and nothing run."""
    for name in faults.cluster.names:
        faults.sshd_stopped(name)
    ended = locked("gate", "--nodes", "node[01-04]", "--lock", LOCK)
    assert 3 == ended.code, ended.text
    assert "stopped    no node answered" in ended.stdout
    assert "compare" not in ended.stdout


def test_ctrl_c_while_nodes_are_read_ends_with_130(cluster: Cluster, faults: Faults, locked: Command) -> None:
    """No child is left on any node, and no report is written."""
    for name in cluster.names:
        faults.file(name, "/etc/fakenvml.conf", "return.nvmlInit = hang\n")
    report = locked.folder / "gate.json"
    with locked.running("gate", "--nodes", "node[01-04]", "--report", f"json={report}") as process:
        assert all(cluster.node(name).loads("libnvidia-ml.so", 30.0) for name in cluster.names)
        process.send_signal(signal.SIGINT)
        ended = locked.finish(process, 10.0)
    assert 130 == ended.code, ended.text
    assert not os.path.exists(report)
    assert [[]] * 4 == [cluster.node(name).work_after(5.0) for name in cluster.names]
