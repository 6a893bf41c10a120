"""Nothing outlives a run: a controller that is killed, interrupted or terminated leaves nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Iterator

import pytest

from tests.transport.asking import processes_with, wait_for

ROOT = Path(__file__).resolve().parents[2]

CONTROLLER = """
import sys
from envaudit.errors import Interrupted
from envaudit.transport import Request, Target, gather
from envaudit.transport.exec import Exec
from envaudit.transport.local import Local
transport = Local() if sys.argv[1] == "local" else Exec(sys.argv[1])
targets = [Target("node%02d" % number, sys.executable) for number in range(1, 4)]
try:
    snapshot = gather(transport, targets, Request(workdir=sys.argv[2], timeout_s=float(sys.argv[3])))
except Interrupted as error:
    print(error)
    sys.exit(error.exit_code)
for fingerprint in snapshot.fingerprints:
    print(fingerprint.sections["git"].status, fingerprint.sections["git"].errors)
print(sorted(gone.kind for gone in snapshot.missing.values()))
"""

HANGING_GIT = """#!/bin/sh
trap '' TERM INT HUP
touch "$STARTED/$$"
sleep 600 &
sleep 600
"""


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[tuple[Path, dict[str, str], str]]:
    """A checkout, an environment in which `git` hangs, and the mark that its processes carry."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    checkout = tmp_path / "checkout"
    subprocess.run(["git", "init", "-q", str(checkout)], check=True)
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "git").write_text(HANGING_GIT)
    (tools / "git").chmod(0o755)
    started = tmp_path / "started"
    started.mkdir()
    mark = uuid.uuid4().hex
    environ = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "STARTED": str(started), "MARK": mark}
    yield checkout, environ, mark
    for pid in processes_with(mark):
        os.kill(pid, signal.SIGKILL)


def start(
    repository: tuple[Path, dict[str, str], str], template: str, timeout_s: float
) -> subprocess.Popen[str]:
    """A controller that asks three nodes whose git hangs; returns once all three hang."""
    checkout, environ, _ = repository
    controller = subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, template, str(checkout), str(timeout_s)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environ,
    )
    assert wait_for(lambda: len(os.listdir(environ["STARTED"])) == 3)
    return controller


@pytest.mark.parametrize(
    "template", ["local", "{python}", "env VIA={node} {python}", 'sh -c \'"$0" "$@"; true\' {python}']
)
@pytest.mark.parametrize(
    "number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name
)
def test_gather_controller_that_ends_leaves_nothing(
    repository: tuple[Path, dict[str, str], str], template: str, number: signal.Signals
) -> None:
    """Within a second of the controller's end every process of the run is gone."""
    mark = repository[2]
    controller = start(repository, template, 60)
    assert len(processes_with(mark)) > 6
    controller.send_signal(number)
    output, complaint = controller.communicate(timeout=5)
    assert wait_for(lambda: not processes_with(mark), 1)
    if number == signal.SIGINT:
        assert (130, "") == (controller.returncode, complaint)
        assert "interrupted" in output
    else:
        assert -number == controller.returncode


def test_gather_hanging_program_costs_its_section_alone(
    repository: tuple[Path, dict[str, str], str],
) -> None:
    """The section gives up before the node's time is over, the node still answers, and nothing is left."""
    controller = start(repository, "{python}", 3.7)
    output, complaint = controller.communicate(timeout=20)
    assert "" == complaint
    *lines, missing = output.splitlines()
    assert "[]" == missing
    assert 3 == len(lines)
    assert all(line.startswith("error ") for line in lines), output
    assert wait_for(lambda: not processes_with(repository[2]), 1)


def test_gather_many_stubborn_commands_are_ended_together() -> None:
    """Thirty commands that ignore SIGTERM cost one grace period at Ctrl-C, not thirty."""
    mark = uuid.uuid4().hex
    code = (
        "import sys\n"
        "from envaudit.errors import Interrupted\n"
        "from envaudit.transport import Request, Target\n"
        "from envaudit.transport import gather\n"
        "from tests.transport.asking import pretend\n"
        "targets = [Target(f'n{number}', sys.executable) for number in range(30)]\n"
        "try:\n"
        "    gather(pretend('stubborn'), targets, Request())\n"
        "except Interrupted as error:\n"
        "    sys.exit(error.exit_code)\n"
    )
    controller = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "MARK": mark}, stderr=subprocess.PIPE
    )
    # Each command has started a child of its own once it ignores the polite signals.
    assert wait_for(lambda: len(processes_with(mark)) == 1 + 2 * 30, 30)
    began = time.monotonic()
    controller.send_signal(signal.SIGINT)
    _, complaint = controller.communicate(timeout=20)
    assert (130, b"") == (controller.returncode, complaint)
    assert time.monotonic() - began < 5
    assert wait_for(lambda: not processes_with(mark), 1)
