"""The main job on one machine: two environments that differ, found by `envaudit diff` and mended.

Two real virtual environments stand as node01 and node02 of the exec transport. They differ in one
package's version and in one environment variable. Usage: python demo.py
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

PACKAGE, RIGHT, WRONG = "six", "1.17.0", "1.16.0"
ENTER = '#!/bin/sh\nexport NCCL_ALGO={algo}\nexec "$@"\n'


def main(folder: Path) -> int:
    """Build, snapshot, diff, repair, diff again; 0 when each step ended as it should."""
    for node, version, algo in (("node01", RIGHT, "Ring"), ("node02", WRONG, "Tree")):
        build_node(folder / node, version, algo)
    (folder / "envaudit.toml").write_text(
        "[nodes]\n"
        'hosts = "node[01-02]"\n'
        'transport = "exec"\n'
        f'command = "{folder}/{{node}}/enter {{python}}"\n'
        "[nodes.interpreters]\n"
        f'"node01" = "{folder}/node01/env/bin/python"\n'
        f'"node02" = "{folder}/node02/env/bin/python"\n'
        # Both nodes are this machine, whose own name may stand for a loopback address.
        '[rules.EA473]\nseverity = "off"\n'
    )
    steps = [
        (["trust"], 0, ""),
        (["snapshot", "--all", "--tag", "before"], 0, ""),
        (["diff", "node01", "node02"], 1, PACKAGE),
    ]
    repaired = [(["diff", "node01", "node02"], 0, ""), (["diff", "node02@before", "node02"], 1, "NCCL_ALGO")]
    if not all(step(folder, *each) for each in steps):
        return 1
    say(f"repair node02: {PACKAGE} {RIGHT}, NCCL_ALGO=Ring")
    build_node(folder / "node02", RIGHT, "Ring")
    if not all(step(folder, *each) for each in repaired):
        return 1
    say("demo: every step ended as it should")
    return 0


def build_node(node: Path, version: str, algo: str) -> None:
    """One node: a virtual environment with the package, and a script that sets the variable."""
    python = node / "env" / "bin" / "python"
    if not python.exists():
        say(f"build {node.name}: virtual environment")
        venv.create(node / "env", with_pip=True, symlinks=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, f"{PACKAGE}=={version}"], check=True)
    enter = node / "enter"
    enter.write_text(ENTER.format(algo=algo))
    enter.chmod(0o755)


def step(folder: Path, arguments: list[str], expected: int, named: str) -> bool:
    """Run one command as a user would and hold its exit code and words against what is due."""
    say("$ envaudit " + shlex.join(arguments))
    own = {"XDG_STATE_HOME": str(folder / "state"), "XDG_CONFIG_HOME": str(folder / "none")}
    environment = {**os.environ, **own}
    began = time.monotonic()
    run = subprocess.run(
        [str(Path(sys.executable).parent / "envaudit"), *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    sys.stdout.write(run.stdout)
    say(f"exit {run.returncode} after {time.monotonic() - began:.2f} s\n")
    if run.returncode != expected or named not in run.stdout:
        say(f"demo: expected exit {expected}" + (f" and '{named}' by name" if named else ""))
        return False
    return True


def say(text: str) -> None:
    """Print at once, so that the order holds beside the commands' own output."""
    print(text, flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="envaudit-demo-") as temporary:
        sys.exit(main(Path(temporary)))
