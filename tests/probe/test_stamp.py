"""The stamp of a shared environment: who may leave its reading to another node, and who must not."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, Callable, Dict

import pytest

from envaudit.probe import stamp
from envaudit.probe.answer import Answer, row_of
from envaudit.probe.context import Context
from envaudit.probe.sections import conda, packages, torch

PREFIX = "/shared/envs/train"
SITE = f"{PREFIX}/lib/python3.11/site-packages"
ROOT_MOUNT = "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
NFS_MOUNT = "30 20 0:50 / /shared rw,noatime - nfs4 filer:/export rw,vers=4.2,addr=10.0.0.{number}\n"
MOUNTS = ROOT_MOUNT + NFS_MOUNT.format(number=1)
TOLD: Dict[str, Any] = {
    "executable": f"{PREFIX}/bin/python",
    "prefix": PREFIX,
    "base_prefix": PREFIX,
    "exec_prefix": PREFIX,
    "path": [f"{PREFIX}/lib/python311.zip", f"{PREFIX}/lib/python3.11", SITE],
    "site_packages": [SITE],
    "user_site": "/home/alice/.local/lib/python3.11/site-packages",
    "user_site_enabled": True,
}
FILES = {
    f"{PREFIX}/conda-meta/zlib-1.3-0.json": '{"name": "zlib", "version": "1.3", "build": "0"}',
    f"{PREFIX}/conda-meta/history": "==> 2026-01-01 <==\n",
    f"{SITE}/numpy-2.0.0.dist-info/INSTALLER": "pip\n",
    f"{SITE}/torch/__init__.py": "",
    f"{SITE}/torch/version.py": "__version__ = '2.7.0'\ncuda = None\nhip = None\ndebug = False\n",
}
SECTIONS = {"conda": conda, "packages": packages, "torch": torch}


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """The file server's folder: what every client sees at /shared."""
    server = tmp_path / "server"
    for path, text in FILES.items():
        place = server / path[len("/shared/") :]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return server


@pytest.fixture
def client(tmp_path: Path, server: Path) -> Callable[..., Context]:
    """A node with that folder at /shared; PROVENANCE: hand-made mount tables."""

    def make(
        name: str = "node01",
        *,
        part: str = stamp.WAIT,
        mounts: str = MOUNTS,
        at: Path = server,
        environ: Any = None,
        **told: Any,
    ) -> Context:
        root = tmp_path / name
        (root / "proc/self").mkdir(parents=True, exist_ok=True)
        (root / "proc/self/mountinfo").write_text(mounts)
        if not (root / "shared").is_symlink():
            (root / "shared").symlink_to(at)
        return _MountedContext(
            root=str(root),
            environ=environ or {"HOME": "/home/alice", "USER": "alice"},
            workdir="/",
            launch="ssh",
            interpreter={**TOLD, **told},
            options={stamp.OPTION: part} if part else {},
            node={"hostname": name},
        )

    return make


class _MountedContext(Context):
    """A fake node in whose own eyes /shared is a folder: a link stands for the mount."""

    def readlink(self, path: str) -> str:
        if path == "/shared":
            raise OSError(22, "Invalid argument", path)
        return super().readlink(path)


def read(context: Context, name: str) -> Answer:
    """What a section says on a node."""
    return stamp.read(name, context, SECTIONS[name].read)


@pytest.mark.parametrize("name", sorted(SECTIONS))
def test_waiting_node_on_a_network_file_system_leaves_the_section(
    client: Callable[..., Context], name: str
) -> None:
    """It is an error row, unknown until another node's reading takes its place."""
    row = row_of(name, 1, read(client(), name))
    assert ("error", {}, True) == (row["status"], row["facts"], stamp.is_left(row))
    seen = row["notes"][stamp.NOTE]
    assert ("nfs4", "filer:/export", "/envs/train") == (seen["filesystem"], seen["source"], seen["path"])


@pytest.mark.parametrize("name", sorted(SECTIONS))
def test_lead_reads_whole_and_has_the_stamp_of_those_that_wait(
    client: Callable[..., Context], name: str
) -> None:
    """Its facts are those of a reading without any part, and the stamps of both nodes are one."""
    lead = read(client("node01", part=stamp.LEAD), name)
    alone = read(client("node02", part=""), name)
    waiting = read(client("node03", mounts=ROOT_MOUNT + NFS_MOUNT.format(number=3)), name)
    assert (alone.status, alone.facts) == (lead.status, lead.facts)
    assert waiting.notes[stamp.NOTE] == lead.notes[stamp.NOTE]
    assert stamp.NOTE not in alone.notes


def test_sections_of_the_node_itself_are_never_left(client: Callable[..., Context]) -> None:
    """What its own loader takes is asked on every node."""
    assert "ok" == stamp.read("libraries", client(), lambda _: Answer("ok", {})).status


@pytest.mark.parametrize(
    "mounts",
    [
        ROOT_MOUNT,
        ROOT_MOUNT + "30 20 0:50 / /shared rw - ext4 /dev/sdb1 rw\n",
        ROOT_MOUNT + "30 20 0:50 / /shared rw - overlay overlay rw,lowerdir=/nfs/envs\n",
        MOUNTS + f"40 30 8:2 /own {SITE}/torch rw - ext4 /dev/sda1 rw\n",
        MOUNTS + f"40 30 8:2 /own.json {PREFIX}/conda-meta/zlib-1.3-0.json rw - ext4 /dev/sda1 rw\n",
        "",
        "\0garbage " * 100,
    ],
    ids=["local", "ext4", "overlay", "folder over it", "file over it", "empty", "garbage"],
)
def test_environment_that_is_not_wholly_shared_is_read_on_every_node(
    client: Callable[..., Context], mounts: str
) -> None:
    """A difference that only this node has must not hide behind another node's reading."""
    assert ("ok", {"zlib"}) == _packages(read(client(mounts=mounts), "conda"))


def test_node_without_a_network_file_system_has_no_part_in_it(client: Callable[..., Context]) -> None:
    """It pays one look at its mounts, before its sections are dealt out."""
    local, shared = client("node01", mounts=ROOT_MOUNT), client("node02")
    for context in (local, shared):
        stamp.prepare(context)
    assert ({}, {stamp.OPTION: stamp.WAIT}) == (local.options, shared.options)


def test_unreadable_mount_table_makes_every_node_read(client: Callable[..., Context]) -> None:
    """Without it nobody knows what is shared."""
    context = client()
    os.unlink(context.real("/proc/self/mountinfo"))
    assert ("ok", {"zlib"}) == _packages(read(context, "conda"))


@pytest.mark.parametrize("name", ["numpy-1.0.dist-info", "torch", "project.pth"])
def test_local_folder_with_packages_on_the_path_makes_the_node_read(
    client: Callable[..., Context], name: str
) -> None:
    """PYTHONPATH may put a local checkout before all that is shared."""
    context = client(path=["/opt/own", *TOLD["path"]])
    os.makedirs(context.real(f"/opt/own/{name}"))
    assert "error" != read(context, "packages").status


def test_local_folder_without_packages_on_the_path_changes_nothing(client: Callable[..., Context]) -> None:
    """The standard library of a local interpreter lies under many a shared virtual environment."""
    context = client(path=["/usr/lib/python3.11", *TOLD["path"]])
    os.makedirs(context.real("/usr/lib/python3.11/json"))
    assert stamp.is_left(row_of("packages", 1, read(context, "packages")))


def test_local_conda_base_below_a_shared_environment_is_read_on_every_node(
    client: Callable[..., Context],
) -> None:
    """A virtual environment's conda facts are those of its base."""
    context = client(base_prefix="/opt/conda")
    os.makedirs(context.real("/opt/conda/conda-meta"))
    assert "error" != read(context, "conda").status


CHANGES: Dict[str, Callable[[Path], object]] = {
    "a package more": lambda server: (server / f"{SITE[8:]}/scipy-1.0.dist-info").mkdir(),
    "a record less": lambda server: (server / f"{PREFIX[8:]}/conda-meta/zlib-1.3-0.json").unlink(),
    "history in place": lambda server: (server / f"{PREFIX[8:]}/conda-meta/history").write_text("longer" * 9),
    "torch in place": lambda server: (server / f"{SITE[8:]}/torch/version.py").write_text(
        "__version__ = '3'"
    ),
    "environment gone": lambda server: shutil.rmtree(server / PREFIX[8:]),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_stamp_of_another_state_differs(
    client: Callable[..., Context], server: Path, change: Callable[[Path], object]
) -> None:
    """A client with a stale view of the server reads for itself."""
    context = client()
    before = stamp.stamp_of(context)
    change(server)
    after = stamp.stamp_of(context)
    assert before
    assert after
    assert before["stamp"] != after["stamp"]


def test_stamp_of_another_copy_of_the_environment_differs(
    client: Callable[..., Context], server: Path, tmp_path: Path
) -> None:
    """Two servers that hold the same files at the same place are two environments."""
    copy = tmp_path / "copy"
    shutil.copytree(server, copy)
    one, other = stamp.stamp_of(client("node01")), stamp.stamp_of(client("node02", at=copy))
    assert one
    assert other
    assert one["stamp"] != other["stamp"]


def test_stamp_of_another_search_path_differs(client: Callable[..., Context]) -> None:
    """What the packages are depends on where the interpreter looks first."""
    one = stamp.stamp_of(client("node01"))
    other = stamp.stamp_of(client("node02", path=list(reversed(TOLD["path"]))))
    assert one
    assert other
    assert one["stamp"] != other["stamp"]


def test_stamp_names_no_password_of_a_source(client: Callable[..., Context]) -> None:
    """Some clients keep it in the source that they mount."""
    mounts = ROOT_MOUNT + "30 20 0:50 / /shared rw - fuse.rclone https://bob:pw@files.example/x rw\n"
    seen = stamp.stamp_of(client(mounts=mounts))
    assert seen is not None
    assert "pw" not in seen["source"]


def _packages(answer: Answer) -> Any:
    return answer.status, set(answer.facts.get("packages", ()))
