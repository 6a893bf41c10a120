"""The command as a user runs it: a process of its own, in a folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

# What may be true of the machine that runs the tests, and is about nothing that they test.
OF_THE_MACHINE = ("EA126", "EA127", "EA128", "EA153", "EA154", "EA473")


class Ended(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def verdict(self) -> str:
        """The last line of the report."""
        return self.out.rstrip("\n").rsplit("\n", 1)[-1]

    @property
    def json(self) -> Any:
        """The report as JSON."""
        return json.loads(self.out)

    @property
    def findings(self) -> list[dict[str, Any]]:
        """A JSON report's findings."""
        return list(self.json["findings"])

    @property
    def rules(self) -> list[str]:
        """The rules of a JSON report's findings."""
        return [finding["rule"] for finding in self.json["findings"]]


class Folder:
    """A working folder with the nodes n1, n2 and n3 of the exec transport.

    A node is a script that sets variables and starts the interpreter that is running the tests.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.environment = {
            **{name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ},
            "XDG_CONFIG_HOME": str(path / "config"),
            "XDG_STATE_HOME": str(path / "state"),
        }
        own = path / "config" / "envaudit" / "envaudit.toml"
        own.parent.mkdir(parents=True)
        own.write_text("".join(f'[rules.{rule}]\nseverity = "off"\n' for rule in OF_THE_MACHINE))
        for node in ("n1", "n2", "n3"):
            self.set_node(node, NCCL_ALGO="Ring")
        self.configuration = path / "nodes.toml"
        self.configuration.write_text(
            f'[nodes]\ntransport = "exec"\nhosts = "n[1-3]"\npython = "{sys.executable}"\n'
            f'command = "{path}/{{node}} {{python}}"\nworkdir = "{path}"\n'
        )

    def set_node(self, node: str, *, script: str = 'exec "$@"', **variables: str) -> None:
        """Write a node's script."""
        exports = "".join(f"export {name}='{value}'\n" for name, value in variables.items())
        (self.path / node).write_text(f"#!/bin/sh\n{exports}{script}\n")
        (self.path / node).chmod(0o755)

    def run(self, *words: str, **variables: str) -> Ended:
        """Run `envaudit` to its end."""
        run = subprocess.run(
            [sys.executable, "-m", "envaudit", *words],
            cwd=self.path,
            env={**self.environment, **variables},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert "Traceback" not in run.stderr
        return Ended(run.returncode, run.stdout, run.stderr)

    def ask(self, *words: str, **variables: str) -> Ended:
        """Run `envaudit` with the nodes' configuration."""
        return self.run(*words, "--config", str(self.configuration), **variables)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A folder with three equal nodes."""
    return Folder(tmp_path)
