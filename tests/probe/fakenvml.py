"""The stand-in for libnvidia-ml.so.1, compiled where a test wants it, and files with its state.

`fakenvml.c` says what the keys of a state file are. The library finds its state through
FAKENVML_CONF, or in /etc/fakenvml.conf, so that nodes with private mounts share one library.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from functools import lru_cache

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fakenvml.c")


def build(directory: str) -> str:
    """The path of libnvidia-ml.so.1 in `directory`, put there unless one newer than its source is there."""
    path = os.path.join(directory, "libnvidia-ml.so.1")
    if not os.path.exists(path) or os.path.getmtime(path) < os.path.getmtime(SOURCE):
        os.makedirs(directory, exist_ok=True)
        fresh = f"{path}.{os.getpid()}"
        with open(fresh, "wb") as stream:
            stream.write(_compiled())
        os.chmod(fresh, 0o755)
        os.replace(fresh, path)
    return path


@lru_cache(maxsize=None)
def _compiled() -> bytes:
    """The library; compiled once, for dozens of tests have one each."""
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "library")
        command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-o", path, SOURCE]
        subprocess.run([*command, "-Wl,-soname,libnvidia-ml.so.1"], check=True)
        with open(path, "rb") as stream:
            return stream.read()


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
