"""What the transport tests share: asking pretenders and looking for what is left of them."""

from __future__ import annotations

import os
import shlex
import sys
import time
from pathlib import Path
from typing import Any, List, Union

from envaudit.model.fingerprint import Fingerprint, Missing
from envaudit.transport import Request, Target, gather
from envaudit.transport.exec import Exec

PRETENDER = str(Path(__file__).with_name("pretender.py"))
PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"


def pretend(mode: str) -> Exec:
    """An exec transport whose nodes behave as `mode` says."""
    return Exec(f"{shlex.quote(sys.executable)} {shlex.quote(PRETENDER)} {mode} {{node}} {{python}}")


def ask_one(mode: str, **request: Any) -> Union[Fingerprint, Missing]:
    """What comes back from one node of that kind."""
    snapshot = gather(
        pretend(mode), [Target("node01", sys.executable)], Request(**{"timeout_s": 20, **request})
    )
    assert len(snapshot.fingerprints) + len(snapshot.missing) == 1
    return snapshot.fingerprints[0] if snapshot.fingerprints else snapshot.missing["node01"]


def interpreters(oldest: str, newest: str = "3.99") -> List[str]:
    """The interpreters of pyenv from one minor version to another, by path."""
    found = []
    for python in PYENV.glob("*/bin/python"):
        version = python.parts[-3]
        if all(part.isdigit() for part in version.split(".")) and _key(oldest) <= _key(version)[:2] <= _key(
            newest
        ):
            found.append((_key(version), str(python)))
    return [path for _, path in sorted(found)]


def _key(version: str) -> List[int]:
    return [int(part) for part in version.split(".")]


def processes_with(mark: str) -> List[int]:
    """The processes, this one aside, in whose command line or environment a text occurs."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            folder = Path("/proc") / entry
            seen = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if mark.encode() in seen and state != "Z":
            found.append(int(entry))
    return found


def wait_for(condition: Any, timeout_s: float = 10.0) -> bool:
    """Whether a condition comes true in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
