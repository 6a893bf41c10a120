"""The interpreters of this machine, one of each version that the probe supports."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
from functools import lru_cache
from typing import Dict

VERSIONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13")


@lru_cache(maxsize=None)
def interpreters() -> Dict[str, str]:
    """Version → path of an interpreter that starts: `python3.X` of PATH, else one that pyenv keeps."""
    found: Dict[str, str] = {}
    for version in VERSIONS:
        candidates = [shutil.which(f"python{version}") or ""]
        candidates += sorted(
            glob.glob(os.path.join(_pyenv_root(), "versions", f"{version}.*", "bin", "python"))
        )
        for candidate in filter(None, candidates):
            if _starts(candidate, version):
                found[version] = candidate
                break
    return found


def _starts(python: str, version: str) -> bool:
    # A shim of pyenv stands on PATH for versions that it then refuses to start.
    asked = "import sys; print('%d.%d' % sys.version_info[:2])"
    ran = subprocess.run([python, "-I", "-c", asked], capture_output=True, text=True, timeout=60, check=False)
    return ran.returncode == 0 and ran.stdout.strip() == version


def _pyenv_root() -> str:
    program = shutil.which("pyenv")
    if program:
        ran = subprocess.run([program, "root"], capture_output=True, text=True, timeout=60, check=False)
        if ran.returncode == 0:
            return ran.stdout.strip()
    return os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
