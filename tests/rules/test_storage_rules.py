"""EA140: file systems that are not the same on all nodes."""

from __future__ import annotations

from typing import Any

import pytest

from envaudit.rules import Policy
from tests.rules.fleets import GONE, findings, odd_of, told

OPTIONS = "storage/hf_home/options"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (f"{OPTIONS}/vers", "3", "mount option vers of the Hugging Face cache differs"),
        (f"{OPTIONS}/nconnect", GONE, "mount option nconnect of the Hugging Face cache differs"),
        ("storage/shm/options/noexec", True, "mount option noexec of /dev/shm differs"),
        ("storage/workdir/access", "ro", "file system of the working directory differs"),
        ("storage/root/fstype", "xfs", "file system of / differs"),
        ("env/variables/HF_HOME", GONE, "HF_HOME differs"),
    ],
)
def test_mount_that_differs_is_told_by_its_place(path: str, value: Any, message: str) -> None:
    """Another option, another kind, read-only, another folder."""
    (finding,) = findings(odd_of("twin-a", (path, value)))
    assert ("EA140", "warning", ("n3",), message) == (
        finding.rule,
        finding.severity,
        finding.nodes,
        finding.message,
    )


def test_mount_that_is_missing_on_one_node_says_where_its_place_lies_there() -> None:
    """The shared file system was not mounted: the folder is an empty one of the disk."""
    (finding,) = findings(odd_of("twin-a", ("storage/workdir", "as root")))
    assert "file system of the working directory differs" == finding.message
    assert (
        "n[1-2]: the working directory is on lustre at /srv, rw",
        "n3: the working directory is on ext4 at /, rw",
    ) == finding.evidence


def test_variable_and_the_file_system_that_it_leads_to_are_one_finding() -> None:
    """HF_HOME on a local disk of one node."""
    variable, place = ("env/variables/HF_HOME", "/data/hf"), ("storage/hf_home", "as root")
    (finding,) = findings(odd_of("twin-a", variable, place))
    assert ("EA140", "warning", ("n3",)) == (finding.rule, finding.severity, finding.nodes)
    (moved,) = findings(odd_of("twin-a", place))
    assert [True, False] == ["Set HF_HOME" in one.hint for one in (finding, moved)]


def test_place_that_moved_beside_one_that_is_set_otherwise_tells_which_is_which() -> None:
    """One finding, and /dev/shm is still a tmpfs."""
    changes = [("storage/workdir", "as root"), ("storage/shm/options/noexec", True)]
    (finding,) = findings(odd_of("twin-a", *changes))
    what = "file system of the working directory and mount option noexec of /dev/shm differ"
    assert (what, 2) == (finding.message, len(finding.evidence))


def test_several_options_of_a_mount_are_one_finding() -> None:
    """Each with a row of its own."""
    (finding,) = findings(odd_of("twin-a", (f"{OPTIONS}/vers", "3"), (f"{OPTIONS}/nconnect", GONE)))
    assert ("mount options of the Hugging Face cache differ", 2) == (finding.message, len(finding.drifts))


@pytest.mark.parametrize(("profile", "severity"), [("strict", "error"), ("lenient", "info")])
def test_profile_decides_about_a_mount_as_about_other_small_differences(profile: str, severity: str) -> None:
    """As about a fact that no rule has a word for."""
    nodes = odd_of("twin-a", ("storage/root/fstype", "xfs"))
    assert [("EA140", severity, ("n3",))] == told(nodes, Policy(profile=profile))
