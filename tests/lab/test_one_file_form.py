"""envaudit.pyz run on the nodes themselves says what the same nodes say over ssh."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from tests.lab.cluster import Cluster
from tests.lab.command import Command, drifted
from tests.lab.faults import Faults

pytestmark = pytest.mark.lab


@pytest.fixture
def one_file(cluster: Cluster, envaudit: Command) -> str:
    """The one-file form, where every node sees it."""
    path = os.path.join(cluster.folder, "envaudit.pyz")
    ended = envaudit("bundle", "-o", path)
    assert 0 == ended.code, ended.text
    return path


def test_one_file_snapshots_of_healthy_nodes_are_alike(
    cluster: Cluster, envaudit: Command, one_file: str
) -> None:
    """Two nodes record themselves; their files hold no drift."""
    paths = [_snapshot_there(cluster, name, one_file, envaudit.folder) for name in ("node01", "node02")]
    ended = envaudit("diff", *paths)
    assert 0 == ended.code, ended.text
    assert ended.last_line.startswith("PASS"), ended.text


def test_one_file_snapshot_and_ssh_see_the_same_node(
    cluster: Cluster, envaudit: Command, one_file: str
) -> None:
    """Save for what belongs to the launch, which is not compared."""
    path = _snapshot_there(cluster, "node01", one_file, envaudit.folder)
    ended = envaudit("diff", path, "node01", "--format", "json")
    assert 0 == ended.code, ended.text
    assert {drift["kind"] for drift in ended.envelope["drifts"]} <= {"unknown"}, ended.text


def test_one_file_snapshot_shows_a_drift_against_ssh(
    cluster: Cluster, envaudit: Command, one_file: str, faults: Faults
) -> None:
    """What changed on the node between the two is found across them."""
    path = _snapshot_there(cluster, "node01", one_file, envaudit.folder)
    faults.file("node01", "/etc/fakenvml.conf", "driver = 570.86.15\n")
    ended = envaudit("diff", path, "node01", "--format", "json")
    assert 1 == ended.code, ended.text
    assert ("gpu/driver", ("node01",)) in drifted(ended), ended.text


def _snapshot_there(cluster: Cluster, name: str, one_file: str, folder: Path) -> str:
    """Runs the one-file form on a node, takes its snapshot file from there, and gives its new path."""
    done = cluster.node(name).run(["python3", one_file, "snapshot", "--store", "/tmp/envaudit"])
    assert 0 == done.returncode, done.stdout + done.stderr
    found = cluster.node(name).run(
        ["sh", "-c", "cat /tmp/envaudit/snapshots/*.json.gz | base64; rm -r /tmp/envaudit"]
    )
    path = folder / f"{name}.json.gz"
    path.write_bytes(base64.b64decode(found.stdout))
    return str(path)
