"""A real CUDA build of torch, read by another Python that starts nothing of it, against its own answer.

Runs where ENVAUDIT_CUDA_PYTHON names the Python of a virtual environment that holds a CUDA build of
torch; no GPU is needed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PROJECT

pytestmark = pytest.mark.cuda

PYTHON = os.environ.get("ENVAUDIT_CUDA_PYTHON", "")
SECTIONS = ["conda", "libraries", "packages", "torch"]


def facts(python: str, request: dict[str, Any], **variables: str) -> dict[str, Any]:
    """What the probe under some Python says, by section."""
    script = (
        f"import json, sys; sys.path.insert(0, {str(PROJECT)!r});"
        f"from envaudit.probe.runner import probe; print(json.dumps(probe({request!r})))"
    )
    ran = subprocess.run(
        [python, "-I", "-B", "-c", script],
        env={"PATH": os.defpath, **variables},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return {row["name"]: (row["status"], row["facts"]) for row in json.loads(ran.stdout)["sections"]}


@pytest.mark.parametrize("variables", [{}, {"LD_LIBRARY_PATH": "nccl"}, {"LD_PRELOAD": "nccl"}])
def test_read_environment_says_what_the_started_one_says(tmp_path: Path, variables: dict[str, str]) -> None:
    """The loader's rules, followed without the loader, find every copy that the loader takes."""
    assert PYTHON, "ENVAUDIT_CUDA_PYTHON must name the Python of an environment with a CUDA build of torch"
    prefix = Path(PYTHON).parent.parent
    (nccl,) = prefix.glob("lib/python*/site-packages/nvidia/nccl/lib/libnccl.so.2")
    second = tmp_path / "libnccl.so.2"
    second.write_bytes(nccl.read_bytes())
    values = {"LD_LIBRARY_PATH": str(tmp_path), "LD_PRELOAD": str(second)}
    environ = {name: values[name] for name in variables}
    started = facts(PYTHON, {"sections": SECTIONS}, **environ)
    read = facts(sys.executable, {"sections": SECTIONS, "prefix": str(prefix)}, **environ)
    assert "ok" == read["libraries"][0]
    assert started == read
