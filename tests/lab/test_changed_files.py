"""Installed files that are not as recorded, on one node of four over ssh."""

from __future__ import annotations

import base64
import hashlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.cluster import Cluster
from tests.lab.command import Command
from tests.lab.faults import Faults
from tests.lab.training_env import TrainingEnvironment

pytestmark = pytest.mark.lab

ODD = "node03"
NODES = "node[01-04]"
END_S = 5.0
MODULE = "torch/version.py"


def row(path: Path, site: Path) -> str:
    """A row of a RECORD for a file as it is."""
    text = path.read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(text).digest()).decode().rstrip("=")
    return f"{path.relative_to(site)},sha256={digest},{len(text)}\n"


@pytest.fixture
def site(training: TrainingEnvironment) -> Iterator[Path]:
    """Site-packages, with a RECORD of torch that names its files, as pip writes it."""
    site = Path(training.site_packages)
    (record,) = site.glob("torch-*.dist-info/RECORD")
    before = record.read_text()
    files = sorted(path for path in (site / "torch").rglob("*") if path.is_file() and path.suffix != ".pyc")
    record.write_text("".join(row(path, site) for path in files))
    yield site
    record.write_text(before)


def edited(site: Path, folder: Path) -> Path:
    """The module with its last byte changed, of the same size; a node has a /tmp of its own."""
    text = (site / MODULE).read_text()
    copy = folder / "edited.py"
    copy.write_text(text[:-1] + " ")
    assert (text != copy.read_text(), len(text)) == (True, copy.stat().st_size)
    return copy


def test_hand_edited_module_on_one_node_is_found_by_a_snapshot(
    envaudit: Command, faults: Faults, site: Path, cluster: Cluster
) -> None:
    """Package, file and node; the other nodes are not named, and `size` sees nothing of it."""
    faults.shown(ODD, str(edited(site, Path(cluster.folder))), str(site / MODULE))
    ended = envaudit("snapshot", "--nodes", NODES, "--integrity", "hash", "--format", "json")
    assert 1 == ended.code, ended.text
    (finding,) = [each for each in ended.envelope["findings"] if each["severity"] == "error"]
    assert ("EA206", [ODD]) == (finding["rule"], finding["nodes"]), ended.text
    assert "pip:torch: 1 file changed on disk since the install" == finding["message"]
    (line,) = finding["evidence"]
    assert line.endswith(f"site-packages/{MODULE}")
    by_size = envaudit("snapshot", "--nodes", NODES, "--integrity", "size", "--format", "json")
    assert 0 == by_size.code, by_size.text


def test_hand_edited_module_is_found_by_a_comparison_of_snapshots(
    envaudit: Command, faults: Faults, site: Path, cluster: Cluster
) -> None:
    """What was stored with digests is judged later, once for each cause."""
    faults.shown(ODD, str(edited(site, Path(cluster.folder))), str(site / MODULE))
    stored = envaudit("snapshot", "--nodes", NODES, "--integrity", "hash", "--tag", "today")
    assert 1 == stored.code, stored.text
    ended = envaudit("diff", f"{NODES}@today", "--format", "json")
    assert 1 == ended.code, ended.text
    errors = [each for each in ended.envelope["findings"] if each["severity"] == "error"]
    assert [("EA206", [ODD])] == [(each["rule"], each["nodes"]) for each in errors], ended.text


def test_whole_files_of_four_nodes_are_no_finding(envaudit: Command, site: Path) -> None:
    """All nodes read their own files; nothing differs."""
    ended = envaudit("diff", NODES, "--section", "integrity", "--format", "json")
    assert 0 == ended.code, ended.text
    assert [] == ended.envelope["findings"], ended.text


def _hashing(cluster: Cluster, path: Path) -> list[str]:
    """The nodes on which a process has the file open."""
    found = []
    for name in cluster.names:
        for process in cluster.node(name).work():
            try:
                links = [
                    os.readlink(f"/proc/{process.pid}/fd/{fd}")
                    for fd in os.listdir(f"/proc/{process.pid}/fd")
                ]
            except OSError:
                continue
            if any(link.endswith(path.name) for link in links):
                found.append(name)
                break
    return found


def test_killed_controller_leaves_nobody_hashing(envaudit: Command, cluster: Cluster, site: Path) -> None:
    """`kill -9` while four nodes hash a terabyte of zeros: five seconds later nobody does."""
    sparse = site / "torch/lib/sparse_terabyte.bin"
    (record,) = site.glob("torch-*.dist-info/RECORD")
    sparse.touch()
    os.truncate(sparse, 1 << 40)
    with record.open("a") as file:
        file.write(f"torch/lib/{sparse.name},sha256={'A' * 43},{1 << 40}\n")
    try:
        with envaudit.running("snapshot", "--nodes", NODES, "--integrity", "hash") as process:
            deadline = time.monotonic() + 20
            while len(_hashing(cluster, sparse)) < len(cluster.names) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert cluster.names == _hashing(cluster, sparse)
            process.send_signal(signal.SIGKILL)
            envaudit.finish(process, 10.0)
        assert {name: [] for name in cluster.names} == {
            name: cluster.node(name).work_after(END_S) for name in cluster.names
        }
    finally:
        sparse.unlink()
