"""The envaudit command, run as its users run it: a process of its own in a folder of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Set, Tuple

from tests.lab.cluster import Cluster

PROJECT = Path(__file__).resolve().parents[2]
# The commands that ask nodes, and so take the configuration.
_ASKING = ("snapshot", "diff", "show", "verify", "clock", "check", "gate")


@dataclass(frozen=True)
class Ended:
    """A run of envaudit that is over."""

    argv: Tuple[str, ...]
    code: int
    stdout: str
    stderr: str

    @property
    def envelope(self) -> Dict[str, Any]:
        """The JSON that `--format json` printed."""
        envelope: Dict[str, Any] = json.loads(self.stdout)
        return envelope

    @property
    def findings(self) -> List[Dict[str, Any]]:
        """The findings, but for those of any lab: no time service, fewer processors than told GPUs."""
        of_the_lab = ("EA137", "EA154", "EA155")
        return [each for each in self.envelope["findings"] if each["rule"] not in of_the_lab]

    @property
    def alarms(self) -> list[dict[str, Any]]:
        """The findings that a healthy node must not have: errors and warnings."""
        return [each for each in self.findings if each["severity"] in ("error", "warning")]

    @property
    def last_line(self) -> str:
        """The verdict."""
        return self.stdout.rstrip("\n").rpartition("\n")[2]

    @property
    def text(self) -> str:
        """Everything, for a failed assertion."""
        return f"{' '.join(self.argv)}\nexit {self.code}\n{self.stdout}\n--- stderr\n{self.stderr}"


class Command:
    """envaudit with one configuration and one store.

    Args:
        folder: an empty folder; the store, the configuration and the user's own state lie in it.
        nodes: the `[nodes]` table.
        interpreters: the `[nodes.interpreters]` table.
        environ: variables for the command itself, such as SLURM_CONF.
        silent: rules that the configuration switches off.
    """

    def __init__(
        self,
        folder: Path,
        nodes: Mapping[str, str | int],
        *,
        interpreters: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
        silent: Iterable[str] = (),
    ) -> None:
        self.folder = folder
        self._environ = dict(environ or {})
        lines = ["[nodes]", *_toml(nodes)]
        if interpreters:
            lines += ["[nodes.interpreters]", *_toml(interpreters)]
        for rule in silent:
            lines += [f"[rules.{rule}]", 'severity = "off"']
        (folder / "lab.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
        # ClusterShell's own connect timeout, 10 s, goes before that of the ssh configuration.
        shell = folder / "config" / "clustershell"
        shell.mkdir(parents=True, exist_ok=True)
        (shell / "defaults.conf").write_text("[task.info]\nconnect_timeout: 3\n", encoding="utf-8")

    def __call__(self, name: str, *arguments: str, timeout_s: float = 60.0) -> Ended:
        """One command to its end."""
        with self.running(name, *arguments) as process:
            return self.finish(process, timeout_s)

    @contextmanager
    def running(self, name: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """One command while it runs, in a session of its own; it is killed where it outlives the block."""
        options = ["--config", str(self.folder / "lab.toml")] if name in _ASKING else []
        process = subprocess.Popen(
            [sys.executable, "-m", "envaudit", name, *options, *arguments],
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for stream in (process.stdout, process.stderr):
                assert stream is not None
                stream.close()

    def finish(self, process: subprocess.Popen[str], timeout_s: float = 60.0) -> Ended:
        """The end of a running command; raises AssertionError where it takes too long."""
        try:
            stdout, stderr = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            stdout, stderr = process.communicate()
            raise AssertionError(f"envaudit took more than {timeout_s:g} s\n{stdout}\n{stderr}") from None
        arguments = process.args
        assert isinstance(arguments, list)
        return Ended(tuple(map(str, arguments)), process.returncode, stdout, stderr)

    def _environment(self) -> Dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TERM") if name in os.environ}
        homes = {
            "HOME": str(self.folder),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "PYTHONPATH": str(PROJECT),
        }
        return {**kept, **homes, **self._environ}


def over_ssh(cluster: Cluster, folder: Path, *, timeout_s: int = 30, **options: Any) -> Command:
    """The command over ssh to a cluster; `options` are those of `Command`."""
    nodes: Dict[str, str | int] = {
        "hosts": ",".join(cluster.names),
        "transport": "ssh",
        "ssh-config": cluster.ssh_config,
        "python": cluster.python,
        "timeout": timeout_s,
    }
    return Command(folder, nodes, **options)


def over_exec(cluster: Cluster, folder: Path, command: str, **options: Any) -> Command:
    """The command over an exec template to a cluster; `options` are those of `Command`."""
    nodes: Dict[str, str | int] = {
        "hosts": ",".join(cluster.names),
        "transport": "exec",
        "command": command,
        "python": cluster.python,
        "timeout": 30,
    }
    return Command(folder, nodes, **options)


def drifted(ended: Ended) -> Set[Tuple[str, Tuple[str, ...]]]:
    """The paths that differ, each with the nodes that are not in the reference group."""
    found = set()
    for drift in ended.envelope["drifts"]:
        reference = drift["reference"]
        outliers: List[str] = []
        for group in drift["groups"]:
            if group["nodes"] != reference:
                outliers += group["nodes"]
        found.add((drift["path"], tuple(sorted(outliers))))
    return found


def _toml(table: Mapping[str, str | int]) -> Iterable[str]:
    # A JSON string is a TOML basic string.
    return [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in table.items()]
