"""The stand-in for libnvidia-ml.so.1, compiled where a test wants it, and files with its state.

`fakenvml.c` says what the keys of a state file are. The library finds its state through
FAKENVML_CONF, or in /etc/fakenvml.conf, so that nodes with private mounts share one library.
"""

from __future__ import annotations

import os
import subprocess

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fakenvml.c")


def build(directory: str) -> str:
    """The path of libnvidia-ml.so.1 in `directory`, compiled unless it is there and newer than its source."""
    path = os.path.join(directory, "libnvidia-ml.so.1")
    if not os.path.exists(path) or os.path.getmtime(path) < os.path.getmtime(SOURCE):
        os.makedirs(directory, exist_ok=True)
        fresh = f"{path}.{os.getpid()}"
        command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-o", fresh, SOURCE]
        subprocess.run([*command, "-Wl,-soname,libnvidia-ml.so.1"], check=True)
        os.replace(fresh, path)
    return path


def write_state(path: str, **state: object) -> str:
    """A state file; in keyword names `__` stands for the dot: `gpu3__ecc="0,0"` is `3.ecc = 0,0`."""
    lines = []
    for key, value in state.items():
        key = key.replace("__", ".")
        if key.startswith("gpu") and key[3:4].isdigit():
            key = key[3:]
        lines.append(f"{key} = {value}\n")
    with open(path, "w", encoding="utf-8") as stream:
        stream.writelines(lines)
    return path
