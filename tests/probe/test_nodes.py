"""What every section owes on every fake node: an answer that the model takes, the same each time."""

from __future__ import annotations

import os
from typing import Callable

import pytest

from envaudit.model.codec import fingerprint_of_answer
from envaudit.model.fingerprint import Fingerprint
from envaudit.probe import registry
from envaudit.probe.runner import probe
from tests.probe.conftest import NODES

Folder = Callable[[str], str]
ALL = sorted(os.listdir(NODES))


def fingerprint(folder: str) -> Fingerprint:
    """A fake node as the controller sees it."""
    return fingerprint_of_answer(
        probe({"root": folder, "tool": "1"}), node="n", source="probe", where="answer"
    )


@pytest.mark.parametrize("name", ALL)
def test_node_of_any_kind_gives_all_sections(node_folder: Folder, name: str) -> None:
    """Healthy, absent, garbled, denied: no section is missing, none breaks the law of facts."""
    assert registry.section_names() == sorted(fingerprint(node_folder(name)).sections)


@pytest.mark.parametrize("name", ALL)
def test_node_read_twice_has_the_same_digest(node_folder: Folder, name: str) -> None:
    """A digest is of the node, not of the moment."""
    assert fingerprint(node_folder(name)).digest == fingerprint(node_folder(name)).digest


@pytest.mark.parametrize(
    "name",
    [
        *("healthy-h100", "twin-a", "twin-b", "pod-a", "pod-b"),
        *("a100-mig", "container-small-shm", "jetson", "wsl"),
        *("slurm-a", "slurm-b", "roce-h100"),
    ],
)
def test_healthy_node_has_no_unread_section(node_folder: Folder, name: str) -> None:
    """A healthy node is never partial: what needs root or an absent tool is a note."""
    unread = {
        key: section.errors
        for key, section in fingerprint(node_folder(name)).sections.items()
        if section.status in ("partial", "error")
    }
    assert {} == unread


@pytest.mark.parametrize(
    ("one", "twin"),
    [("healthy-h100", "twin-a"), ("healthy-h100", "twin-b"), ("pod-a", "pod-b"), ("slurm-a", "slurm-b")],
)
def test_healthy_twins_have_equal_digests(node_folder: Folder, one: str, twin: str) -> None:
    """Nodes that differ in name, user, job, boot and machine ids, memory pages and time source are alike.

    Two Slurm tasks of different jobs and users, and two pods of one stateful set.
    """
    first, second = fingerprint(node_folder(one)), fingerprint(node_folder(twin))
    differing = {
        name: (section.facts, second.sections[name].facts)
        for name, section in first.sections.items()
        if section.digest != second.sections[name].digest
    }
    assert {} == differing


def test_twins_differ_in_their_notes(node_folder: Folder) -> None:
    """The twins are no copies: what must not drift does differ."""
    first, second = fingerprint(node_folder("twin-a")), fingerprint(node_folder("twin-b"))
    differing = {name for name, one in first.sections.items() if one.notes != second.sections[name].notes}
    assert {"clock", "env", "host", "limits", "network"} <= differing


@pytest.mark.parametrize("name", ALL)
def test_no_secret_of_a_fake_node_is_in_its_answer(node_folder: Folder, name: str) -> None:
    """Passwords and tokens that the fixtures plant in variables, URLs and remotes stay on the node."""
    text = str(probe({"root": node_folder(name)}))
    planted = ["hunter2", "very-secret", "hf_aaaa", "ghp_", "tok-", ":pw", "X-Signature"]
    assert [] == [secret for secret in planted if secret in text]
