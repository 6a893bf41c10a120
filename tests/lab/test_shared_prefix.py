"""An environment on a real network mount: what the nodes ask of the file server, and what they say.

The file system is FUSE, mounted as sshfs would be; the nodes are processes in its mount namespace.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from envaudit.model.fingerprint import Snapshot
from envaudit.transport import Request, Target, gather
from envaudit.transport.exec import Exec

PROJECT = Path(__file__).resolve().parents[2]
PACKAGES = 40
SECTIONS = ("conda", "host", "packages", "python", "torch")
TORCH_VERSION = "__version__ = '2.7.0'\ncuda = None\nhip = None\ndebug = False\ngit_version = 'abc'\n"


class Filer:
    """The served folder, the environment in it, and the nodes that see it at one path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder, self.target, self.log = path / "served", path / "mounted", path / "requests"
        self.prefix = self.target / "envs/train"
        self.site = f"envs/train/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
        self._make_environment()
        self.target.mkdir()
        self._server = self._serve()

    def _make_environment(self) -> None:
        base = Path(sys.base_prefix)
        own = self.folder / "envs/train"
        (own / "bin").mkdir(parents=True)
        (own / "bin/python").symlink_to(os.path.realpath(base / "bin/python3"))
        (own / "pyvenv.cfg").write_text(f"home = {base}/bin\ninclude-system-site-packages = false\n")
        site = self.folder / self.site
        (site / "torch").mkdir(parents=True)
        (site / "torch/__init__.py").write_text("")
        (site / "torch/version.py").write_text(TORCH_VERSION)
        (own / "conda-meta").mkdir()
        for number in range(PACKAGES):
            record = {"name": f"package-{number}", "version": f"1.{number}", "build": "0"}
            (own / f"conda-meta/package-{number}-1.{number}-0.json").write_text(json.dumps(record))
            info = site / f"wheel_{number}-2.{number}.dist-info"
            info.mkdir()
            (info / "INSTALLER").write_text("pip\n")

    def _serve(self) -> subprocess.Popen[str]:
        words = [str(self.folder), str(self.target), "filer:/export", "fuse.sshfs", str(self.log)]
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.lab.fusefs", *words],
            cwd=PROJECT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert server.stdout is not None
        if server.stdout.readline() != "ready\n":
            server.wait(10)
            pytest.skip("FUSE cannot be mounted here")
        return server

    def close(self) -> None:
        """End the server; its namespace and mount go with it."""
        self._server.communicate(timeout=10)

    def add_node(self, name: str, setup: str = "true") -> None:
        """A node: `setup` runs in a mount namespace of its own below the server's, as root."""
        enter = f"nsenter --mount=/proc/{self._server.pid}/ns/mnt unshare --mount"
        script = f'#!/bin/sh\nexec {enter} sh -c \'{setup}; exec "$@"\' sh "$@"\n'
        (self.path / name).write_text(script)
        (self.path / name).chmod(0o755)

    def ask(self, *nodes: str, **request: Any) -> Snapshot:
        """What these nodes say, and nothing of it from before in the log."""
        self.log.write_text("")
        python = sys.executable if "prefix" in request else str(self.prefix / "bin/python")
        targets = [Target(node, python) for node in nodes]
        asked = Request(sections=SECTIONS, timeout_s=60, workdir=str(self.path))._replace(**request)
        snapshot = gather(Exec(f"{self.path}/{{node}} {{python}}"), targets, asked)
        assert {} == snapshot.missing
        return snapshot

    def opened(self, form: str) -> int:
        """How many files whose path matches a form were opened on the server."""
        lines = self.log.read_text().splitlines()
        return sum(1 for line in lines if line.startswith("open ") and re.search(form, line))


@pytest.fixture
def filer(tmp_path: Path) -> Iterator[Filer]:
    """A file server with an environment, and the nodes n1 to n4 that mount it alike."""
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        pytest.skip("mounting FUSE takes root and /dev/fuse")
    filer = Filer(tmp_path)
    for number in range(1, 5):
        filer.add_node(f"n{number}")
    try:
        yield filer
    finally:
        filer.close()


def test_shared_environment_is_read_by_one_node_and_said_by_all(filer: Filer) -> None:
    """A quarter of the reading on four nodes, and the very digests of four whole readings."""
    shared = filer.ask("n1", "n2", "n3", "n4")
    opened_once = filer.opened(r"conda-meta/.*\.json|INSTALLER")
    whole = filer.ask("n1", "n2", "n3", "n4", every_node=True)
    opened_by_all = filer.opened(r"conda-meta/.*\.json|INSTALLER")
    assert (2 * PACKAGES, 8 * PACKAGES) == (opened_once, opened_by_all)
    assert [each.digest for each in whole.fingerprints] == [each.digest for each in shared.fingerprints]
    assert 1 == len({each.digest for each in shared.fingerprints})
    notes = [each.sections["conda"].notes["shared_prefix"] for each in shared.fingerprints]
    assert [None, "n1", "n1", "n1"] == [note.get("read_by") for note in notes]  # type: ignore[union-attr]
    assert {("fuse.sshfs", "filer:/export", "/envs/train")} == {
        (note["filesystem"], note["source"], note["path"])  # type: ignore[index,call-overload]
        for note in notes
    }
    assert "shared_prefix" not in whole.fingerprints[1].sections["conda"].notes


def test_node_with_a_file_of_its_own_over_the_shared_ones_is_found(filer: Filer) -> None:
    """A bind mount over one record: that node reads for itself, and its package differs."""
    own = filer.path / "own.json"
    own.write_text('{"name": "package-7", "version": "9.9", "build": "0"}')
    filer.add_node("n3", f"mount --bind {own} {filer.prefix}/conda-meta/package-7-1.7-0.json")
    snapshot = filer.ask("n1", "n2", "n3", "n4")
    packages = [each.sections["conda"].facts["packages"] for each in snapshot.fingerprints]
    versions = [table["package-7"]["version"] for table in packages]  # type: ignore[index,call-overload]
    assert ["1.7", "1.7", "9.9", "1.7"] == versions


def test_other_copy_at_the_same_path_is_read_by_its_own_node(filer: Filer) -> None:
    """One node has mounted a copy with one package less, a stale mirror: a second round asks it."""
    copy = filer.path / "copy"
    subprocess.run(["cp", "-a", str(filer.folder), str(copy)], check=True)
    next((copy / "envs/train/conda-meta").glob("package-7-*.json")).unlink()
    other = Filer.__new__(Filer)
    other.path, other.folder, other.log = filer.path, copy, filer.path / "requests-2"
    other.target, other.prefix = filer.target, filer.prefix
    other._server = other._serve()
    try:
        other.add_node("n4")
        snapshot = filer.ask("n1", "n2", "n4")
    finally:
        other.close()
    counts = [len(each.sections["conda"].facts["packages"]) for each in snapshot.fingerprints]  # type: ignore[arg-type]
    assert [PACKAGES, PACKAGES, PACKAGES - 1] == counts


def test_installed_files_of_a_shared_environment_are_looked_at_by_one_node(filer: Filer) -> None:
    """What was edited is told of all; with every_node each of them reads each file."""
    record = filer.folder / f"{filer.site}/wheel_3-2.3.dist-info/RECORD"
    record.write_text("torch/version.py,sha256=AAAA,7\nwheel_3-2.3.dist-info/RECORD,,\n")
    asked = {"also": ("integrity",), "options": {"integrity": "size"}}
    shared = filer.ask("n1", "n2", "n3", **asked)
    changed = [each.sections["integrity"].facts["changed"] for each in shared.fingerprints]
    assert [{"pip:wheel-3": [f"{filer.site[len('envs/train/') :]}/torch/version.py"]}] * 3 == changed
    readers = [each.sections["integrity"].notes["shared_prefix"] for each in shared.fingerprints]
    assert [None, "n1", "n1"] == [note.get("read_by") for note in readers]  # type: ignore[union-attr]
    whole = filer.ask("n1", "n2", "n3", **asked, every_node=True)
    assert [each.digest for each in whole.fingerprints] == [each.digest for each in shared.fingerprints]
    assert "shared_prefix" not in whole.fingerprints[1].sections["integrity"].notes


def test_environment_that_changes_between_two_runs_is_read_anew(filer: Filer) -> None:
    """Nothing is kept from one run to the next."""
    filer.ask("n1", "n2")
    (filer.folder / f"{filer.site}/late-1.0.dist-info").mkdir()
    snapshot = filer.ask("n1", "n2")
    found = [each.sections["packages"].facts["distributions"] for each in snapshot.fingerprints]
    assert all("late" in table for table in found)  # type: ignore[operator]


def test_shared_prefix_that_is_not_started_is_read_once_too(filer: Filer) -> None:
    """The system's Python reads it on every node, and nothing of it is opened but on one."""
    snapshot = filer.ask("n1", "n2", "n3", prefix=str(filer.prefix))
    assert 2 * PACKAGES == filer.opened(r"conda-meta/.*\.json|INSTALLER")
    assert 1 == len({each.digest for each in snapshot.fingerprints})
