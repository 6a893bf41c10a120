"""`envaudit run -- CMD`: the command's code and signals pass through, and the nodes are recorded."""

from __future__ import annotations

import json
import os
import pty
import resource
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from envaudit.cli import launched
from envaudit.cli.thisnode import this_node
from envaudit.model import Fingerprint, Section
from tests.cli.conftest import Ended, Folder

NODE = this_node()
GATE = ("--no-check",)


def run(folder: Folder, *argv: str, options: tuple[str, ...] = (), **variables: str) -> Ended:
    """`envaudit run` on this machine."""
    return folder.run("run", *GATE, *options, "--", *argv, **variables)


def start(folder: Folder, *argv: str) -> subprocess.Popen[str]:
    """The same, running; its first line of output says that the command has begun."""
    process = subprocess.Popen(
        [sys.executable, "-m", "envaudit", "run", *GATE, "--", *argv],
        cwd=folder.path,
        env=folder.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert "begun\n" == process.stdout.readline()
    return process


def record(folder: Folder, tag: str) -> dict[str, Any]:
    """What is recorded of the launch that a tag of this machine names."""
    shown = folder.run("show", f"{NODE}@{tag}", "--format", "json")
    assert 0 == shown.code, shown.err
    found: dict[str, Any] = json.loads(shown.out)["facts"][NODE]["sections"]["host"]["notes"]["run"]
    return found


@pytest.mark.parametrize("code", [0, 1, 3, 125, 255])
def test_run_passes_the_code_of_the_command_through(folder: Folder, code: int) -> None:
    """Whatever it is, and its output alone on standard output."""
    ended = run(folder, "sh", "-c", f"echo said; exit {code}")
    assert (code, "said\n") == (ended.code, ended.out)


def test_run_of_a_command_ended_by_a_signal_is_128_and_its_number(folder: Folder) -> None:
    """As a shell has it."""
    assert 128 + signal.SIGKILL == run(folder, "sh", "-c", "kill -KILL $$").code
    assert ("SIGKILL", 137) == (record(folder, "failed")["signal"], record(folder, "failed")["exit_code"])


@pytest.mark.parametrize(
    ("name", "code"), [("no-such-program", 127), ("./no-such-program", 127), ("./", 126)]
)
def test_run_of_no_command_starts_nothing(folder: Folder, name: str, code: int) -> None:
    """127 and 126 as a shell has them; nothing is recorded."""
    ended = run(folder, name)
    assert code == ended.code
    assert "nothing was started" in ended.err
    assert not (folder.path / ".envaudit").exists()


@pytest.mark.parametrize(("content", "code"), [(b"exit 7\n", 7), (b"\x7fELF\0\0\0\0", 126)])
def test_run_of_a_script_without_an_interpreter_is_the_shell_s(
    folder: Folder, content: bytes, code: int
) -> None:
    """As every launcher that calls execvp does it; a program for another machine is no script."""
    (folder.path / "train").write_bytes(content)
    (folder.path / "train").chmod(0o755)
    assert code == run(folder, "./train").code


def test_run_that_the_gate_refuses_does_not_start_the_command(folder: Folder) -> None:
    """It says so, and ends with a code that is not the command's."""
    refused = ("--fail-on", "info", "--require", "collectives")
    ended = run(folder, "touch", "started", options=refused)
    assert 125 == ended.code
    assert "the command was not started" in ended.err
    assert not (folder.path / "started").exists()
    assert 77 == run(folder, "true", options=(*refused, "--gate-exit", "77")).code


def test_run_with_a_policy_that_cannot_be_read_does_not_start_the_command(folder: Folder) -> None:
    """A usage error must not look like the command's own code."""
    ended = run(folder, "touch", "started", options=("--policy", "gone.toml"))
    assert 125 == ended.code
    assert "gone.toml: cannot be read" in ended.err
    assert not (folder.path / "started").exists()


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT]
)
def test_run_forwards_a_signal_once_and_passes_the_code_through(folder: Folder, number: int) -> None:
    """The command handles it as if it stood in this process' place."""
    name = signal.Signals(number).name[3:]
    script = f"trap 'echo told; sleep 0.3; exit 42' {name}; echo begun; while :; do sleep 0.05; done"
    process = start(folder, "sh", "-c", script)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (42, "told\n") == (process.returncode, out)
    assert f"{NODE}@failed is" in err


def test_run_forwards_what_its_process_group_is_sent_once(folder: Folder) -> None:
    """Outside of a terminal the command has a group of its own."""
    script = "trap 'echo told' USR1; echo begun; for i in 1 2 3 4 5 6 7 8; do sleep 0.1; done; exit 9"
    process = start(folder, "sh", "-c", script)
    os.killpg(process.pid, signal.SIGUSR1)
    out, _ = process.communicate(timeout=60)
    assert (9, "told\n") == (process.returncode, out)


@pytest.mark.parametrize("late", ["INT TERM", "HUP USR1", "QUIT USR2 ALRM"])
def test_run_passes_the_code_through_though_signals_come_too_late(folder: Folder, late: str) -> None:
    """They were sent while the command lived, and reach this process when it has ended."""
    kills = "; ".join(f"kill -{name} $run" for name in late.split())
    script = f"run=$PPID; echo begun; kill -STOP $run; {kills}; (sleep 1; kill -CONT $run) & exit 7"
    process = start(folder, "sh", "-c", script)
    _, err = process.communicate(timeout=60)
    assert 7 == process.returncode, err
    assert f"{NODE}@failed is" in err


def test_run_passes_the_code_through_though_its_folder_has_gone(folder: Folder) -> None:
    """A job may remove where it ran; no record can be kept, and the code is the command's."""
    (folder.path / "scratch").mkdir()
    process = subprocess.run(
        [sys.executable, "-m", "envaudit", "run", *GATE, "--", "sh", "-c", "rm -r ../scratch; exit 6"],
        cwd=folder.path / "scratch",
        env=folder.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert 6 == process.returncode
    assert "the run is not recorded: " in process.stderr


@pytest.mark.parametrize("closed", ["2>&-", ">&-", "<&-", "<&- >&- 2>&-"])
def test_run_without_a_standard_stream_runs_the_command(folder: Folder, closed: str) -> None:
    """As a daemon may start it; nothing that is printed ends up in a file that took the stream's number."""
    words = f"'{sys.executable}' -m envaudit run {' '.join(GATE)} -- sh -c 'touch ran; exit 7' {closed}"
    done = subprocess.run(
        ["sh", "-c", words], cwd=folder.path, env=folder.environment, check=False, timeout=60
    )
    assert 7 == done.returncode
    assert (folder.path / "ran").exists()
    assert 0 == folder.run("store", "verify").code


def test_run_passes_the_code_through_where_ends_of_children_were_ignored(folder: Folder) -> None:
    """SIGCHLD as some daemons leave it: the kernel would forget the code."""
    ignoring = "import os, signal, sys; signal.signal(signal.SIGCHLD, 1); os.execv(sys.argv[1], sys.argv[1:])"
    words = [sys.executable, "-m", "envaudit", "run", *GATE, "--", "sh", "-c", "exit 7"]
    done = subprocess.run(
        [sys.executable, "-c", ignoring, *words],
        cwd=folder.path,
        env=folder.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert 7 == done.returncode
    assert f"{NODE}@failed is" in done.stderr


def test_run_hands_open_files_and_standard_input_to_the_command(folder: Folder) -> None:
    """As if it stood in this process' place: `envaudit run -- CMD <data 3>log`."""
    words = f"echo data | '{sys.executable}' -m envaudit run {' '.join(GATE)} -- sh -c 'cat >&3' 3>log"
    done = subprocess.run(
        ["sh", "-c", words], cwd=folder.path, env=folder.environment, check=False, timeout=60
    )
    assert 0 == done.returncode
    assert "data\n" == (folder.path / "log").read_text()


def test_run_on_a_terminal_leaves_ctrl_c_to_the_command(folder: Folder) -> None:
    """The terminal sends it to both; the command hears of it once, and its code is passed on."""
    script = "trap 'echo told; sleep 0.3; exit 42' INT; echo begun; while :; do sleep 0.05; done"
    argv = [sys.executable, "-m", "envaudit", "run", *GATE, "--", "sh", "-c", script]
    pid, terminal = pty.fork()
    if not pid:
        os.chdir(folder.path)
        os.execve(sys.executable, argv, folder.environment)
    said = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            chunk = os.read(terminal, 4096)
        except OSError:  # Linux: all that had it open have ended
            break
        if b"begun" in chunk:
            os.write(terminal, b"\x03")
        said += chunk
    os.close(terminal)
    assert 42 == os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert 1 == said.count(b"told")


def test_run_interrupted_in_its_gate_ends_with_130_and_leaves_nothing(folder: Folder) -> None:
    """The command is not started; what reads the node is ended with it."""
    slow = folder.path / "python3"
    slow.write_text("#!/bin/sh\necho $$ >reading\nexec sleep 60\n")
    slow.chmod(0o755)
    argv = ["-m", "envaudit", "run", *GATE, "--python", str(slow), "--", "touch", "ran"]
    process = subprocess.Popen(
        [sys.executable, *argv],
        cwd=folder.path,
        env=folder.environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    reading = folder.path / "reading"
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and not (reading.exists() and reading.read_text().strip()):
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (130, "envaudit: interrupted.") == (process.returncode, err.strip().splitlines()[-1])
    assert not (folder.path / "ran").exists()
    assert not os.path.exists(f"/proc/{int(reading.read_text())}/exe")


def test_run_that_is_killed_leaves_no_command(folder: Folder) -> None:
    """The kernel ends it with its parent."""
    process = start(folder, "sh", "-c", "echo begun; echo $$ >pid; exec sleep 60")
    while not (folder.path / "pid").exists() or not (folder.path / "pid").read_text().strip():
        time.sleep(0.01)
    pid = (folder.path / "pid").read_text().strip()
    process.kill()
    process.communicate(timeout=60)
    deadline = time.monotonic() + 5
    while os.path.exists(f"/proc/{pid}/exe") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not os.path.exists(f"/proc/{pid}/exe")


def test_run_records_the_launch_and_diff_says_what_changed(folder: Folder) -> None:
    """Code, command, world size, locks and commit of the good and of the failed run."""
    git = ["git", "-c", "user.name=n", "-c", "user.email=n@example.org", "-C", str(folder.path)]
    (folder.path / "train.py").write_text("print(1)\n")
    (folder.path / "environment.yml").write_text("dependencies: [python]\n")
    for words in (["init", "-q"], ["add", "train.py", "environment.yml"], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *words], check=True)
    good = run(
        folder, "sh", "-c", "exit 0", "--api-key", "hunter2secret", SLURM_JOB_ID="81231", WORLD_SIZE="8"
    )
    assert 0 == good.code, good.err
    (folder.path / "train.py").write_text("print(2)\n")
    (folder.path / "environment.yml").write_text("dependencies: [python, numpy]\n")
    failed = run(folder, "sh", "-c", "exit 3", WORLD_SIZE="16", NCCL_ALGO="Tree")
    assert 3 == failed.code, failed.err
    assert f"envaudit diff '{NODE}@good' '{NODE}@failed'" in failed.err
    held = record(folder, "good")
    assert "sh -c 'exit 0' --api-key '<secret>'" == held["command"]
    assert ("81231", 8, 0, False) == (held["job"], held["world_size"], held["exit_code"], held["dirty"])
    assert held["started_at"] <= held["ended_at"]
    assert ["environment.yml"] == list(held["files"])
    assert 40 == len(held["commit"])
    told = folder.run("diff", f"{NODE}@good", f"{NODE}@failed", "--format", "json").json
    lines = [stage["text"] for stage in told["stages"] if stage["name"] == "run"]
    assert "command: sh -c 'exit 0' --api-key '<secret>' → sh -c 'exit 3'" in lines
    assert "exit code: 0 → 3" in lines
    assert "local changes: no → yes" in lines
    assert "world size: 8 → 16" in lines
    assert any(line.startswith("environment.yml: sha256:") for line in lines)
    assert "env/nccl/NCCL_ALGO" in [drift["path"] for drift in told["drifts"]]


def test_run_makes_no_drift_by_itself(folder: Folder) -> None:
    """What ran is kept beside the facts: a plain snapshot of the node is alike."""
    assert 0 == run(folder, "true").code
    ended = folder.run("diff", f"{NODE}@good", NODE, "--format", "json")
    assert [] == ended.json["drifts"], ended.out


def test_run_tells_a_policy_that_changed_meanwhile(folder: Folder) -> None:
    """The verdict rests on what it was when the gate judged."""
    (folder.path / "policy.toml").write_text('[gate]\nfail-on = "error"\n')
    script = 'printf "[gate]\\nfail-on = \\"info\\"\\n" >policy.toml'
    ended = run(folder, "sh", "-c", script, options=("--policy", "policy.toml"))
    assert 0 == ended.code
    assert "policy.toml has changed since the gate" in ended.err


def test_run_reads_no_device_that_a_configuration_calls_a_source(folder: Folder) -> None:
    """A repository under test may say so: it would be read until memory ends."""
    (folder.path / "envaudit.toml").write_text('[lock]\nsources = ["/dev/zero"]\n')
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, before[1]))
    try:
        assert 0 == run(folder, "true").code
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_run_tells_a_reason_without_its_terminal_controls(folder: Folder) -> None:
    """A file's name may hold them."""
    ended = run(folder, "true", options=("--lock", "lock\x1b[31m.yml"))
    assert ended.code
    assert "lock\\x1b[31m.yml" in ended.err
    assert "\x1b" not in ended.err


def test_log_tells_runs_and_the_last_good_one_before_a_change(folder: Folder) -> None:
    """When it last went well, with which command."""
    assert 0 == run(folder, "true", SLURM_JOB_ID="7").code
    assert 5 == run(folder, "sh", "-c", "exit 5", NCCL_ALGO="Tree").code
    lines = folder.run("log", NODE).out.splitlines()
    assert "      ran: exit 0, job 7, true" in lines
    assert "      ran: exit 5, sh -c 'exit 5'" in lines
    (last,) = [line for line in lines if "last good before" in line]
    assert last.endswith("exit 0, job 7, true")
    moments = folder.run("log", NODE, "--format", "json").json["timeline"]
    assert "exit 5, sh -c 'exit 5'" == moments[-1]["run"]
    assert moments[-1]["last_good"].endswith("exit 0, job 7, true")


def test_run_refuses_options_that_are_none_of_its_own(folder: Folder) -> None:
    """A prolog runs no command, and stored snapshots are no nodes."""
    assert 2 == folder.run("run", "--stored", "--", "true").code
    assert 2 == folder.run("run", "--tag", "failed", "--", "true").code
    assert 2 == folder.run("run", "--gate-exit", "0", "--", "true").code
    assert 2 == folder.run("run").code


@pytest.mark.parametrize(
    ("argv", "variables", "ranks"),
    [
        (["torchrun", "--nproc-per-node=8", "--nnodes", "4", "t.py"], {}, 32),
        (["torchrun", "--nproc_per_node", "2", "t.py"], {"WORLD_SIZE": "99"}, 2),
        (["mpirun", "-np", "6", "t"], {}, 6),
        (["srun", "-n", "16", "t"], {"SLURM_NTASKS": "4"}, 16),
        (["python", "-n", "16"], {"SLURM_NTASKS": "4"}, 4),
        (["python", "t.py"], {"WORLD_SIZE": "many"}, None),
        (["torchrun", "--nproc-per-node=gpu", "t.py"], {}, None),
    ],
)
def test_world_of_a_launch_is_what_its_launcher_says(
    argv: list[str], variables: dict[str, str], ranks: int | None
) -> None:
    """By options before variables; not known is None."""
    assert ranks == launched.world_of(argv, variables)


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ("a.py --lr 1", "b.py", "a.py --lr 1 → b.py"),
        (
            f"torchrun {'-x 1 ' * 60}--lr 0.1 {'-y 2 ' * 60}end",
            f"torchrun {'-x 1 ' * 60}--lr 0.2 {'-y 2 ' * 60}end",
            "torchrun ... --lr 0.1 ... → torchrun ... --lr 0.2 ...",
        ),
        (f"run {'x ' * 200}", f"run {'x ' * 200}more", "run ... x → run ... x more"),
        ("a" * 4000, "b", f"{'a' * 160} → b"),
    ],
)
def test_change_of_a_command_is_told_by_the_words_that_differ(before: str, after: str, shown: str) -> None:
    """A command may have thousands of characters, and one of them is what changed."""
    host = Section("host", 1, "ok", {}, {})
    node = Fingerprint("n1", "probe", "2026-11-30T10:00:00Z", "0", {"host": host})
    sides = [launched.with_launch(node, {"command": command}) for command in (before.strip(), after)]
    assert [f"command: {shown}"] == launched.changes(sides[:1], sides[1:])


def test_run_shown_redacted_names_neither_people_nor_places(folder: Folder) -> None:
    """A command line, its files and the machine that it was given on are what people name as they like."""
    (folder.path / "policy-mammoth.toml").write_text('[gate]\nfail-on = "error"\n')
    (folder.path / "environment.yml").write_text("name: mammoth\ndependencies: [python]\n")
    words = ("-c", "pass", "mammoth/train.py", "--user", "mammoth-user", "--out", "s3://mammoth/x")
    folder.run("run", *GATE, "--policy", "policy-mammoth.toml", "--", sys.executable, *words)
    shown = folder.run("show", f"{NODE}@good", "--redact", "--format", "json").out
    (facts,) = json.loads(shown)["facts"].values()
    found = facts["sections"]["host"]["notes"]["run"]
    assert "mammoth" not in shown
    assert NODE not in json.dumps(found).split('"')
    assert (0, "node-1") == (found["exit_code"], found["host"])
    assert 1 == len(found["policy"])
