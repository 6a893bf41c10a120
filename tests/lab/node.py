"""One node of the lab, seen from the controller."""

from __future__ import annotations

import json
import os
import select
import shlex
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from typing import IO, Any, Dict, Iterator, List, Mapping, Sequence, Tuple

from tests.lab.agent import PID_FILE
from tests.lab.processes import Process, has_mapped, processes_in, start_time

ANSWER_S = 10.0
END_S = 5.0

# Names of what belongs to a node at rest beside sshd; everything else on it is somebody's work.
_SERVICES = ("chronyd", "munged", "slurmctld", "slurmscriptd", "slurmd")

_UNSHARE = (
    "unshare",
    "--net",
    "--uts",
    "--mount",
    "--pid",
    "--ipc",
    "--fork",
    "--mount-proc",
    "--kill-child",
)

_SSHD_CONFIG = """\
ListenAddress {address}
HostKey {lab}/hostkey
AuthorizedKeysFile {lab}/authorized_keys
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PrintMotd no
PidFile {pid_file}
MaxStartups 500:30:1000
MaxSessions 500
Subsystem sftp internal-sftp
"""


class LabError(Exception):
    """The lab itself failed: a program, a mount, a node that does not answer in time."""


@dataclass(frozen=True)
class Place:
    """Where a node stands: folder of the lab, name, addresses, and the bridge's end of its cable."""

    lab: str
    name: str
    address: str
    gateway: str
    cable: str
    prefix_bits: int = 24

    @property
    def folder(self) -> str:
        """The node's own folder on the machine."""
        return os.path.join(self.lab, "nodes", self.name)


class Node:
    """A node from its first process on.

    `begin` returns at once, so that several nodes start side by side; `await_answer` joins it.
    """

    def __init__(self, place: Place, environment: Mapping[str, str]) -> None:
        self.place = place
        self.name = place.name
        self.environment: Dict[str, str] = dict(environment)
        self.sshd_options: Dict[str, str] = {}
        self._unshare: subprocess.Popen[bytes] | None = None
        self._pending = b""
        self.pid = 0

    # Life

    def begin(self, hosts: str) -> None:
        """Writes the node's files and starts its first process.

        Args:
            hosts: the text of the nodes' /etc/hosts.
        """
        os.makedirs(self.place.folder)
        self._write("boot_id", f"{uuid.uuid4()}\n")
        self._write("plan.json", json.dumps(self._plan(hosts)))
        self.write_configuration()
        agent = os.path.join(os.path.dirname(os.path.abspath(__file__)), "agent.py")
        with open(os.path.join(self.place.folder, "agent.log"), "wb") as log:
            self._unshare = subprocess.Popen(
                [
                    *_UNSHARE,
                    base_python(),
                    "-I",
                    "-S",
                    "-B",
                    agent,
                    os.path.join(self.place.folder, "plan.json"),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                env={"PATH": os.environ["PATH"], "HOME": "/", "LANG": "C.UTF-8"},
                cwd="/",
            )

    def settle(self) -> None:
        """Waits until the namespaces are ready; afterwards `pid` is process 1 of the node."""
        self.await_answer()
        assert self._unshare is not None
        with open(f"/proc/{self._unshare.pid}/task/{self._unshare.pid}/children", encoding="ascii") as stream:
            self.pid = int(stream.read().split()[0])
        self._write("init.pid", f"{self.pid}\n")

    def end(self) -> None:
        """Ends the node and everything that runs on it."""
        unshare, self._unshare = self._unshare, None
        if unshare is None:
            return
        for stream in (unshare.stdin, unshare.stdout):
            assert stream is not None
            stream.close()
        try:
            unshare.wait(END_S)
        except subprocess.TimeoutExpired:
            unshare.kill()
            unshare.wait(END_S)

    @property
    def identity(self) -> Tuple[int, int]:
        """Process id and start time of the node's first process, as the state file keeps it."""
        return self.pid, start_time(self.pid)

    # Commands to the agent

    def send(self, do: str, **arguments: Any) -> None:
        """Sends a command without waiting for its answer."""
        assert self._unshare is not None
        _pipe(self._unshare.stdin).write(json.dumps({"do": do, **arguments}).encode() + b"\n")
        _pipe(self._unshare.stdin).flush()

    def await_answer(self) -> None:
        """Waits for the answer of the oldest command.

        Raises:
            LabError: the node said that it failed, ended, or said nothing in time.
        """
        assert self._unshare is not None
        output = _pipe(self._unshare.stdout).fileno()
        deadline = time.monotonic() + ANSWER_S
        while b"\n" not in self._pending:
            ready, _, _ = select.select([output], [], [], max(0.0, deadline - time.monotonic()))
            block = os.read(output, 65536) if ready else b""
            if not block:
                why = "ended" if ready else f"said nothing in {ANSWER_S:g} s"
                raise LabError(f"{self.name}: its first process {why}: {self._log('agent.log')}")
            self._pending += block
        line, self._pending = self._pending.split(b"\n", 1)
        answer = json.loads(line)
        if "error" in answer:
            raise LabError(f"{self.name}: {answer['error']} {self._log('sshd.log')}")

    def call(self, do: str, **arguments: Any) -> None:
        """One command and its answer; raises LabError."""
        self.send(do, **arguments)
        self.await_answer()

    # Work on the node

    def enter(self, argv: Sequence[str]) -> List[str]:
        """The argv that runs `argv` on the node without ssh, with the node's environment."""
        return [os.path.join(self.place.lab, "bin", "enter"), self.name, *argv]

    def run(self, argv: Sequence[str], timeout_s: float = 20.0) -> subprocess.CompletedProcess[str]:
        """Runs `argv` on the node without ssh; what outlives `timeout_s` is ended there.

        A timeout answers 137, as timeout(1) does for KILL.
        """
        bounded = ["timeout", "--signal=KILL", f"{timeout_s}", *argv]
        return subprocess.run(
            self.enter(bounded),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s + 5.0,
            check=False,
        )

    def work(self) -> List[Process]:
        """Processes on the node that are not its own services: what a finished run left behind."""
        listener = self._listener()
        return [
            process
            for process in processes_in(self.pid)
            if process.pid_inside not in (1, listener) and process.name not in _SERVICES
        ]

    def _listener(self) -> int:
        """Process id, inside, of the sshd that listens; its title says so only some time after it does."""
        try:
            with open(f"/proc/{self.pid}/root{PID_FILE}", encoding="ascii") as stream:
                return int(stream.read())
        except FileNotFoundError:
            return 0

    def work_after(self, within_s: float) -> List[Process]:
        """The `work` that is still there after at most this long; returns as soon as there is none."""
        deadline = time.monotonic() + within_s
        while (left := self.work()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return left

    def loads(self, library: str, within_s: float) -> bool:
        """Whether, within that time, some work on the node has loaded a library of this name."""
        deadline = time.monotonic() + within_s
        while not any(has_mapped(process.pid, library) for process in self.work()):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def write(self, path: str, text: str | None) -> None:
        """Writes, or with None removes, a file that is the node's own (/etc, /run, /tmp)."""
        inside = f"/proc/{self.pid}/root{path}"
        if text is None:
            os.unlink(inside)
            return
        with open(inside, "w", encoding="utf-8") as stream:
            stream.write(text)

    def link(self, state: str) -> None:
        """`down` pulls the node's network cable, `up` puts it back."""
        subprocess.run(["ip", "link", "set", self.place.cable, state], check=True, timeout=10)

    def write_configuration(self) -> None:
        """Writes sshd's configuration and the environment, which sshd reads when it is started."""
        options = _SSHD_CONFIG.format(address=self.place.address, lab=self.place.lab, pid_file=PID_FILE)
        # sshd takes the first value of an option.
        changed = "".join(f"{name} {value}\n" for name, value in self.sshd_options.items())
        variables = " ".join(f'{name}="{value}"' for name, value in self.environment.items())
        self._write("sshd_config", f"{changed}{options}SetEnv {variables}\n")
        exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in self.environment.items())
        self._write("environ.sh", exports)

    def restart_sshd(self) -> None:
        """Stops sshd and starts it with the configuration as it is now."""
        self.write_configuration()
        self.call("stop_sshd")
        self.call("start_sshd")

    def _plan(self, hosts: str) -> Dict[str, Any]:
        number = self.place.address.rpartition(".")[2]
        return {
            "hostname": self.name,
            "etc_real": os.path.join(self.place.lab, "etc"),
            "cgroup_keep": os.path.join(self.place.lab, "cgroup"),
            "boot_id": os.path.join(self.place.folder, "boot_id"),
            "sshd_config": os.path.join(self.place.folder, "sshd_config"),
            "sshd_log": os.path.join(self.place.folder, "sshd.log"),
            "etc": {
                "hostname": f"{self.name}\n",
                "hosts": hosts,
                "machine-id": f"{0xABC0000 + int(number):032x}\n",
                # With a name server in it every reverse look-up blocks for seconds.
                "resolv.conf": "",
                "nsswitch.conf": "".join(_nsswitch_lines()),
                "passwd": "".join(_passwd_lines(os.path.join(self.place.lab, "home"))),
                "shadow": "".join(_shadow_lines()),
            },
        }

    def _write(self, name: str, text: str) -> None:
        with open(os.path.join(self.place.folder, name), "w", encoding="utf-8") as stream:
            stream.write(text)

    def _log(self, name: str) -> str:
        path = os.path.join(self.place.folder, name)
        if not os.path.exists(path):
            return ""
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()[-2000:]


def base_python() -> str:
    """The interpreter under a virtual environment: what the nodes run by default."""
    return os.path.realpath(getattr(sys, "_base_executable", sys.executable))


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


def _nsswitch_lines() -> Iterator[str]:
    yield "hosts: files\n"
    with open("/etc/nsswitch.conf", encoding="utf-8") as stream:
        yield from (line for line in stream if not line.startswith("hosts:"))


def _passwd_lines(home: str) -> Iterator[str]:
    """The machine's accounts; root's home is the lab's, so that no start-up file of the machine is run."""
    with open("/etc/passwd", encoding="utf-8") as stream:
        for line in stream:
            yield f"root:x:0:0:root:{home}:/bin/bash\n" if line.startswith("root:") else line


def _shadow_lines() -> Iterator[str]:
    """The machine's accounts without passwords; sshd refuses keys of an account locked by `!`."""
    with open("/etc/shadow", encoding="utf-8") as stream:
        for line in stream:
            name, _, rest = line.split(":", 2)
            yield f"{name}:*:{rest}"
