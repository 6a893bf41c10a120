"""Several supervisors of one run as processes of this machine, under node names of their own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SUPERVISOR = HERE / "supervisor.py"
ARMED = HERE / "armed"
WORKER = "envaudit.checks.collectives.rank"

LIMITS = {"join_s": 20.0, "start_s": 60.0, "stall_s": 3.0, "total_s": 60.0, "door_s": 2.0}
# Ten collectives of a tenth of a second: time enough to be killed in their midst.
PLAN = {"ops": ["all_reduce/sum/fp32"], "ddp": False}


def free_port() -> int:
    """A port of the loopback interface that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Launch:
    """A run under way; leaving the context ends what is left.

    Args:
        folder: for requests, results and marks.
        count: how many supervisors are expected.
        local_ranks: workers of each.
        limits: of the run; LIMITS where nothing else is said.
        plan: of the run.
    """

    def __init__(
        self,
        folder: Path,
        count: int,
        local_ranks: int = 1,
        limits: Mapping[str, float] | None = None,
        plan: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder = folder
        self.count = count
        self.local_ranks = local_ranks
        self.limits = {**LIMITS, **(limits or {})}
        self.plan = dict(plan or PLAN)
        self.port = free_port()
        self.mark = uuid.uuid4().hex
        self.processes: dict[int, subprocess.Popen[str]] = {}

    def __enter__(self) -> Launch:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self.left():
            os.kill(pid, signal.SIGKILL)
        for process in self.processes.values():
            process.kill()
            process.communicate()

    def start(
        self,
        index: int,
        fault: str = "",
        facts: Mapping[str, Any] | None = None,
        argv: Sequence[str] = (),
        **asked: Any,
    ) -> None:
        """Starts one supervisor; `argv` stands before its command."""
        environ = {"ENVAUDIT_TEST_RUN": self.mark, "PYTHONPATH": str(ARMED), "LC_ALL": "C"}
        if fault:
            environ["ENVAUDIT_TEST_COLLECTIVE"] = fault
            environ["ENVAUDIT_TEST_MARK"] = str(self.entered(index))
        request = {
            "seat": [index, self.count, "127.0.0.1", self.port, f"node{index:02d}"],
            "layout": {"local_ranks": self.local_ranks},
            "plan": self.plan,
            "facts": {"torch": "2.9.0", **(facts or {})},
            "limits": self.limits,
            **asked,
            "environ": {**environ, **asked.get("environ", {})},
        }
        path = self.folder / f"request{index}.json"
        path.write_text(json.dumps(request))
        self.processes[index] = subprocess.Popen(
            [*argv, sys.executable, str(SUPERVISOR), str(path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "ENVAUDIT_TEST_RUN": self.mark},
        )

    def start_all(self, faults: Mapping[int, str] | None = None, **asked: Any) -> None:
        """Starts all of them, each slow but where another fault is asked for."""
        for index in range(self.count):
            self.start(index, (faults or {}).get(index, "slow"), **asked)

    def entered(self, index: int) -> Path:
        """The file that stands once a worker of that supervisor is in its third collective."""
        return self.folder / f"entered{index}"

    def await_collectives(self, within_s: float = 60.0) -> float:
        """Waits until every supervisor has a worker in its third collective; the time then."""
        ends = time.monotonic() + within_s
        while not all(self.entered(index).exists() for index in range(self.count)):
            assert time.monotonic() < ends, "the collectives did not begin"
            for process in self.processes.values():
                assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        return time.monotonic()

    def workers(self, index: int) -> list[int]:
        """The processes of the ranks that a supervisor has started."""
        pid = self.processes[index].pid
        return [child for child in _children(pid) if WORKER in _command(child)]

    def result(self, index: int, within_s: float = 90.0) -> dict[str, Any]:
        """What a supervisor printed."""
        out, err = self.processes[index].communicate(timeout=within_s)
        assert out, err
        return dict(json.loads(out))

    def left(self) -> list[int]:
        """Processes of this run that are there, stopped ones too."""
        wanted = f"ENVAUDIT_TEST_RUN={self.mark}".encode()
        found = []
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                environ = Path("/proc", entry, "environ").read_bytes()
                state = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if wanted in environ.split(b"\0") and state not in "ZX":
                found.append(int(entry))
        return found

    def left_after(self, within_s: float = 2.0) -> list[int]:
        """Likewise, once there are none or that time is over."""
        ends = time.monotonic() + within_s
        while (found := self.left()) and time.monotonic() < ends:
            time.sleep(0.02)
        return found


def _children(pid: int) -> list[int]:
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        found += [int(each) for each in Path(f"/proc/{pid}/task/{task}/children").read_text().split()]
    return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""
