"""The whole journey on one machine: lock, install, verify, snapshot, diff, check, gate; then one fault.

A channel of small packages is made here, with a Python that runs. Two installs of one lock stand as node01
and node02 of the exec transport; their torch is the one that stands beside this script's interpreter.
Usage: python demo.py
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from packaging.requirements import Requirement

from tests.lock.channel import build_channel
from tests.lock.packages import Recipe, running_python

NODES = ("node01", "node02")
LOCK = "train.conda-lock.yml"
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
OPS = "gemm/fp32,all_reduce,all_gather"
MODULE = f"lib/python{PYTHON}/site-packages/einops/__init__.py"

# On each node: its own prefix first, and nothing of whoever runs the demo.
ENTER = """\
#!/bin/sh
export CONDA_PREFIX={prefix} OMP_NUM_THREADS=1 NCCL_ALGO=Ring
exec "$@"
"""


def main(folder: Path) -> int:
    """Every step as a user types it; 0 when each ended as it should."""
    say("make a channel of small packages, with a Python that runs")
    channel = build_channel(folder / "channel", more=packages(folder), recipes=False)
    (folder / "train.environment.yml").write_text(
        "name: train\n"
        f"channels: [{channel.url}, nodefaults]\n"
        "platforms: [linux-64]\n"
        f"dependencies: [python={PYTHON}, 'pytorch={torch_version()}=cpu*', einops=0.8]\n"
    )
    (folder / "envaudit.toml").write_text(configuration(folder))
    for node in NODES:
        (folder / node).mkdir()
        (folder / node / "enter").write_text(ENTER.format(prefix=folder / node / "env"))
        (folder / node / "enter").chmod(0o755)
    python = str(folder / NODES[0] / "env" / "bin" / "python")
    gate = ["gate", "--all", "--lock", LOCK, "--baseline", "good", "--ops", OPS]
    steps = [
        (["trust"], 0, ""),
        (["lock", "train.environment.yml", "-o", LOCK], 0, ""),
        *((["install", LOCK, "--prefix", f"{node}/env"], 0, "") for node in NODES),
        (["verify", LOCK, "--all"], 0, ""),
        (["snapshot", "--all", "--tag", "good"], 0, ""),
        (["diff", *NODES], 0, ""),
        (["check", "--python", python, "--nproc", "2", "--ops", OPS], 0, ""),
        (gate, 0, "PASS"),
    ]
    if not all(step(folder, *each) for each in steps):
        return 1
    say(f"plant a fault: somebody edits {MODULE} on node02")
    with (folder / "node02" / "env" / MODULE).open("a") as file:
        file.write("rearrange = None\n")
    if not step(folder, gate, 1, "FAIL EA206 node02"):
        return 1
    say("demo: every step ended as it should")
    return 0


def packages(folder: Path) -> list[tuple[str, Recipe]]:
    """A Python that runs, torch by a path file, and a package of one module."""
    common = {"subdir": "noarch", "number": 0, "format": "conda", "python": PYTHON}
    einops = {
        **common,
        "version": "0.8.1",
        "build": "pyhd8ed1ab_0",
        "depends": [f"python {PYTHON}.*"],
        "distribution": "einops",
        "modules": {"einops/__init__.py": "rearrange = print\n"},
    }
    pytorch = {
        **common,
        "subdir": "linux-64",
        "version": torch_version(),
        "build": "cpu_0",
        "depends": [f"python {PYTHON}.*"],
        "modules": {"torch.pth": f"{torch_alone(folder / 'torch')}\n"},
    }
    # A solver gives every Python its pip.
    pip = {**common, "version": "25.2", "build": "pyh8b19718_0", "depends": [f"python {PYTHON}.*"]}
    return [running_python(), ("einops", einops), ("pip", pip), ("pytorch", pytorch)]


def torch_version() -> str:
    """Of the torch beside this interpreter, without its local part."""
    return metadata.version("torch").partition("+")[0]


def torch_alone(folder: Path) -> Path:
    """A folder with links to torch and what it imports, and to nothing else of this environment."""
    folder.mkdir()
    wanted = ["torch"]
    seen: set[str] = set()
    while wanted:
        name = wanted.pop()
        if name in seen:
            continue
        seen.add(name)
        distribution = metadata.distribution(name)
        for top in {path.parts[0] for path in distribution.files or ()}:
            if top not in ("..", "__pycache__") and not top.endswith(".dist-info"):
                place = Path(str(distribution.locate_file(top)))
                if not (folder / top).is_symlink():
                    (folder / top).symlink_to(place)
        for requirement in map(Requirement, distribution.requires or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                wanted.append(requirement.name)
    return folder


def configuration(folder: Path) -> str:
    """Two nodes that are entered by a script, each with the Python of its own prefix."""
    interpreters = "".join(f'"{node}" = "{folder}/{node}/env/bin/python"\n' for node in NODES)
    return (
        "[nodes]\n"
        'hosts = "node[01-02]"\n'
        'transport = "exec"\n'
        f'command = "{folder}/{{node}}/enter {{python}}"\n'
        f"[nodes.interpreters]\n{interpreters}"
        # Both nodes are this machine, whose own name may stand for a loopback address.
        '[rules.EA473]\nseverity = "off"\n'
    )


def step(folder: Path, arguments: list[str], expected: int, named: str) -> bool:
    """Run one command as a user would and hold its exit code and words against what is due."""
    say("$ envaudit " + shlex.join(arguments))
    own = {"XDG_STATE_HOME": str(folder / "state"), "XDG_CONFIG_HOME": str(folder / "none")}
    began = time.monotonic()
    run = subprocess.run(
        [str(Path(sys.executable).parent / "envaudit"), *arguments],
        cwd=folder,
        env={**os.environ, **own},
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
