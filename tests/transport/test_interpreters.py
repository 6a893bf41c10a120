"""The probe really asked, through every Python that is present."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from envaudit import __version__
from envaudit.errors import UsageError
from envaudit.probe.registry import section_names
from envaudit.transport import Request, Target, gather
from envaudit.transport.exec import Exec
from envaudit.transport.inband import read_here
from envaudit.transport.local import Local
from tests.transport.asking import interpreters


@pytest.mark.parametrize("python", interpreters("3.8"), ids=lambda python: python.split("/")[-3])
def test_gather_local_reads_every_section_under_every_python(python: str) -> None:
    """From 3.8 on all sections come back; the newer ones compile what the bytecode does not fit."""
    snapshot = gather(Local(), [Target("here", python)], Request())
    assert {} == snapshot.missing
    fingerprint = snapshot.fingerprints[0]
    assert section_names() == sorted(fingerprint.sections)
    assert ("probe", __version__) == (fingerprint.source, fingerprint.tool)
    assert python.split("/")[-3] == fingerprint.sections["python"].facts["version"]
    assert "local" == fingerprint.sections["host"].facts["launch"]


@pytest.mark.parametrize("python", interpreters("2.7", "3.7"), ids=lambda python: python.split("/")[-3])
def test_gather_python_that_is_too_old_is_named(python: str) -> None:
    """Python 2.7 to 3.7 are unreachable with the version and what to do."""
    missing = gather(Exec("{python}"), [Target("old", python)], Request(timeout_s=20)).missing["old"]
    version = python.split("/")[-3]
    assert "unreachable" == missing.kind
    assert ("Python 2" if version.startswith("2") else f"Python {version}") in missing.why
    assert "too old" in missing.why
    assert "3.8 or newer" in missing.next_step


@pytest.mark.parametrize(("template", "launch"), [("{python}", "exec"), ("env NODE={node} {python}", "exec")])
def test_gather_exec_two_nodes_of_one_machine_are_equal(template: str, launch: str) -> None:
    """The same interpreter asked twice gives one digest under two names, and says how it was reached."""
    targets = [Target("node01", sys.executable), Target("node02", sys.executable)]
    request = Request(sections=("host", "python", "packages"))
    first, second = gather(Exec(template), targets, request).fingerprints
    assert ("node01", "node02") == (first.node, second.node)
    assert first.digest == second.digest
    assert launch == first.sections["host"].facts["launch"]


def test_gather_sections_and_workdir_reach_the_probe(tmp_path: Path) -> None:
    """Only what was asked for comes back, read where it was asked for."""
    request = Request(sections=("git",), workdir=str(tmp_path))
    (fingerprint,) = gather(Local(), [Target("here", sys.executable)], request).fingerprints
    assert ["git"] == list(fingerprint.sections)
    assert "absent" == fingerprint.sections["git"].status


def test_gather_local_unknown_section_is_a_usage_error() -> None:
    """What the probe refuses on this very machine is the user's to mend (2)."""
    with pytest.raises(UsageError, match="no section 'nonsense'"):
        gather(Local(), [Target("here", sys.executable)], Request(sections=("nonsense",)))


def test_read_here_equals_what_a_transport_brings(tmp_path: Path) -> None:
    """In-band, this process' own machine has the same facts as over a transport, but for the launch."""
    sections = ("packages", "python", "limits")
    here = read_here("here", sections=sections, workdir=str(tmp_path))
    request = Request(sections=sections, workdir=str(tmp_path))
    (there,) = gather(Local(), [Target("here", sys.executable)], request).fingerprints
    assert ("inband", "probe") == (here.source, there.source)
    assert here.sections["packages"].facts == there.sections["packages"].facts
    assert here.sections["limits"].facts == there.sections["limits"].facts


def test_read_here_unknown_section_is_a_usage_error() -> None:
    """The same refusal as over a transport."""
    with pytest.raises(UsageError, match="no section"):
        read_here("here", sections=("nonsense",))
