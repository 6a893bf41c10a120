"""Process 1 of a lab node: prepares its namespaces, reaps orphans, does what the controller asks.

`node.py` starts it as `unshare ... python -I -S -B agent.py PLAN`. Commands come as one JSON object
a line on standard input and are answered by one JSON object a line on standard output. The end of
the input ends this process and, since it is process 1 of its pid namespace, everything on the
node: a controller that was killed leaves no node behind.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from typing import Any, Dict

# linux/mount.h
MS_RDONLY, MS_BIND, MS_REC, MNT_DETACH = 1, 0x1000, 0x4000, 2

SSHD_START_S = 5.0
PID_FILE = "/run/sshd.pid"

_libc = ctypes.CDLL(None, use_errno=True)


def mount(
    source: str, target: str, kind: str | None = None, flags: int = 0, options: str | None = None
) -> None:
    """Mounts `source` on `target`; flags and options as the system call takes them; raises OSError."""
    arguments = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    if _libc.mount(arguments[0], arguments[1], arguments[2], ctypes.c_ulong(flags), arguments[3]) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), target)


def umount(target: str) -> None:
    """Removes the topmost mount from `target`, even while it is in use; raises OSError."""
    if _libc.umount2(os.fsencode(target), MNT_DETACH) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), target)


def private_etc(real: str, files: Dict[str, str]) -> None:
    """An /etc of this node's own: links to the machine's at `real`, and `files` in its stead."""
    os.makedirs(real, exist_ok=True)
    mount("/etc", real, flags=MS_BIND | MS_REC)
    mount("tmpfs", "/etc", "tmpfs", options="mode=755")
    for name in os.listdir(real):
        if name not in files:
            os.symlink(os.path.join(real, name), os.path.join("/etc", name))
    for name, text in files.items():
        with open(os.path.join("/etc", name), "w", encoding="utf-8") as stream:
            stream.write(text)
        os.chmod(os.path.join("/etc", name), 0o600 if name == "shadow" else 0o644)


def own_sysfs(keep: str) -> None:
    """A sysfs that shows this network namespace; the control groups stay where they are."""
    groups = os.path.isdir("/sys/fs/cgroup")
    if groups:
        os.makedirs(keep, exist_ok=True)
        mount("/sys/fs/cgroup", keep, flags=MS_BIND | MS_REC)
    mount("sysfs", "/sys", "sysfs")
    if groups:
        mount(keep, "/sys/fs/cgroup", flags=MS_BIND | MS_REC)


def prepare(plan: Dict[str, Any]) -> None:
    """Everything of a node that does not need its network interface."""
    socket.sethostname(plan["hostname"])
    private_etc(plan["etc_real"], plan["etc"])
    for path, options in (
        ("/run", "mode=755"),
        ("/tmp", "mode=1777,size=16g"),
        ("/dev/shm", "mode=1777,size=2g"),
    ):
        mount("tmpfs", path, "tmpfs", options=options)
    os.makedirs("/run/sshd")
    mount(plan["boot_id"], "/proc/sys/kernel/random/boot_id", flags=MS_BIND)
    own_sysfs(plan["cgroup_keep"])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True, timeout=10)


class Agent:
    """The commands; each method `do_NAME` takes the command's other keys."""

    def __init__(self, plan: Dict[str, Any]) -> None:
        self.plan = plan
        self.sshd = 0

    def do_network(self, address: str, gateway: str) -> None:
        """Address and default route of eth0, which the controller has put here."""
        lines = f"addr add {address} dev eth0\nlink set eth0 up\nroute add default via {gateway}\n"
        subprocess.run(["ip", "-batch", "-"], input=lines, text=True, check=True, timeout=10)

    def do_start_sshd(self) -> None:
        """Starts sshd unless it runs, and waits until it listens."""
        if self.sshd:
            return
        if os.path.exists(PID_FILE):
            os.unlink(PID_FILE)
        null = [(os.POSIX_SPAWN_OPEN, number, "/dev/null", os.O_RDWR, 0) for number in (0, 1, 2)]
        self.sshd = os.posix_spawn(
            "/usr/sbin/sshd",
            ["/usr/sbin/sshd", "-D", "-f", self.plan["sshd_config"], "-E", self.plan["sshd_log"]],
            {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
            file_actions=null,
            setsid=True,
        )
        # sshd writes its pid file once it listens; for a moment the file is empty.
        deadline = time.monotonic() + SSHD_START_S
        while not os.path.exists(PID_FILE) or not os.path.getsize(PID_FILE):
            self.reap()
            if not self.sshd or time.monotonic() > deadline:
                raise OSError(f"sshd does not start, see {self.plan['sshd_log']}")
            time.sleep(0.002)

    def do_stop_sshd(self) -> None:
        """Ends the listener; sessions that are open go on."""
        if self.sshd:
            os.kill(self.sshd, signal.SIGKILL)
            os.waitpid(self.sshd, 0)
            self.sshd = 0

    def do_bind(self, source: str, target: str) -> None:
        """Shows `source`, a file or folder, at `target` on this node only."""
        mount(source, target, flags=MS_BIND)

    def do_tmpfs(self, target: str, options: str, read_only: bool) -> None:
        """An empty file system at `target` on this node only."""
        mount("tmpfs", target, "tmpfs", flags=MS_RDONLY if read_only else 0, options=options)

    def do_unbind(self, target: str) -> None:
        """Undoes the newest bind or tmpfs at `target`."""
        umount(target)

    def reap(self) -> None:
        """Collects ended children, among them orphans of the whole node."""
        while True:
            try:
                pid, _status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.sshd:
                self.sshd = 0

    def answer(self, line: bytes) -> Dict[str, Any]:
        """Does one command; an OSError or a failed program is an answer, not an end."""
        command = json.loads(line)
        try:
            getattr(self, "do_" + command.pop("do"))(**command)
        except (OSError, subprocess.SubprocessError) as error:
            return {"error": str(error)}
        return {"ok": True}


def serve(agent: Agent) -> None:
    """Reads commands until the input ends."""
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_arguments: None)
    pending = b""
    while True:
        ready, _, _ = select.select([0, reading], [], [])
        if reading in ready:
            os.read(reading, 4096)
            agent.reap()
        if 0 in ready:
            block = os.read(0, 65536)
            if not block:
                return
            pending += block
            while b"\n" in pending:
                line, pending = pending.split(b"\n", 1)
                say(agent.answer(line))


def say(answer: Dict[str, Any]) -> None:
    """One answer to the controller."""
    os.write(1, json.dumps(answer).encode() + b"\n")


def main() -> None:
    """Prepares the node, says so, and serves."""
    with open(sys.argv[1], encoding="utf-8") as stream:
        plan = json.load(stream)
    try:
        prepare(plan)
    except (OSError, subprocess.SubprocessError) as error:
        say({"error": str(error)})
        return
    say({"ok": True})
    serve(Agent(plan))


if __name__ == "__main__":
    main()
