"""The probe under each Python that it promises to run on."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Dict, List

import pytest

from envaudit.model.codec import fingerprint_of_answer, parse_json
from envaudit.model.fingerprint import Fingerprint
from envaudit.probe import registry
from envaudit.probe.runner import probe
from tests.conftest import PACKAGE_HOME
from tests.probe.conftest import NODES
from tests.probe.pythons import VERSIONS, interpreters

# What the transport's boot does, without the zip.
_BOOT = (
    "import sys, json; sys.path.insert(0, sys.argv[1]); from envaudit.probe.runner import probe;"
    "json.dump([probe(request) for request in json.loads(sys.argv[2])], sys.stdout)"
)


def probe_under(version: str, *requests: Dict[str, Any]) -> List[Fingerprint]:
    """What the probe says under another Python, read as the controller reads it."""
    python = interpreters().get(version)
    if python is None:
        pytest.skip(f"no Python {version} on PATH or in pyenv")
    ran = subprocess.run(
        [python, "-I", "-B", "-W", "error", "-c", _BOOT, str(PACKAGE_HOME), json.dumps(requests)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (0, "") == (ran.returncode, ran.stderr)
    return [
        fingerprint_of_answer(answer, node="n", source="probe", where="answer")
        for answer in parse_json(ran.stdout, f"python {version}")
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_probe_of_this_machine_under_each_python_is_whole(version: str, tmp_path: Path) -> None:
    """Each supported Python reads all sections, and states its own version."""
    (fingerprint,) = probe_under(version, {"launch": "local", "workdir": str(tmp_path), "tool": "1"})
    assert registry.section_names() == sorted(fingerprint.sections)
    failed = {name: one.errors for name, one in fingerprint.sections.items() if one.status == "error"}
    assert {} == failed
    assert str(fingerprint.sections["python"].facts["version"]).startswith(f"{version}.")


@pytest.mark.parametrize("version", VERSIONS)
def test_fake_nodes_are_the_same_under_each_python(version: str) -> None:
    """What a node is does not depend on the Python that reads it."""
    requests = [{"root": str(NODES / name), "tool": "1"} for name in sorted(os.listdir(NODES))]
    there = probe_under(version, *requests)
    differing = []
    for request, other in zip(requests, there):
        here = fingerprint_of_answer(probe(request), node="n", source="probe", where="answer")
        for name, section in here.sections.items():
            if section.digest != other.sections[name].digest:
                differing.append((request["root"], name, section.facts, other.sections[name].facts))
    assert [] == differing
