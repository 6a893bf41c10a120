"""Writing and reading: names, order, one file per run, nothing replaced."""

from __future__ import annotations

import gzip
import json
import os
import re
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, List, Tuple

import pytest

from envaudit.errors import InputError, UsageError
from envaudit.store import Store
from envaudit.store.temporaries import is_temporary
from tests.store.snapshots import TOOL, keep, snapshot_of


def _files(store: Store) -> List[str]:
    return sorted(os.listdir(os.path.join(store.path, "snapshots")))


def test_store_written_snapshot_is_loaded_equal(store: Store) -> None:
    """What was kept comes back, missing nodes included."""
    snapshot = snapshot_of(["fe80::1", "node01"], "ä", missing=["node02"])
    name = store.write(snapshot, captured_at="2026-11-30T10:00:00Z", tool=TOOL, host="login")
    assert snapshot == store.load(name)


def test_store_file_name_has_time_host_and_digest(store: Store) -> None:
    """The names sort by time and say who took the snapshot."""
    name = keep(store, at="2026-11-30T10:00:00.25Z", host="../lögin 1")
    assert re.fullmatch(r"20261130T100000Z-_l_gin_1-[0-9a-f]{8}\.json\.gz", name)
    assert [name] == _files(store)


def test_store_file_is_gzip_without_time_and_name(store: Store, tmp_path: Path) -> None:
    """Any gzip reads it, and equal snapshots are equal files."""
    path = os.path.join(store.path, "snapshots", keep(store))
    other = Store(str(tmp_path / "other"))
    with open(path, "rb") as stream:
        data = stream.read()
    with open(os.path.join(other.path, "snapshots", keep(other)), "rb") as stream:
        assert data == stream.read()
    assert b"\x1f\x8b\x08\x00\x00\x00\x00\x00" == data[:8]
    assert {"node01", "node02"} == set(json.loads(gzip.decompress(data))["fingerprints"])


def test_store_same_run_written_twice_is_one_file(store: Store) -> None:
    """Writing again what is there already loses nothing and adds nothing."""
    assert keep(store) == keep(store)
    assert 1 == len(_files(store))


def test_store_name_taken_by_other_data_is_not_replaced(store: Store) -> None:
    """Eight digits of a digest may meet by chance: both files stay."""
    name = keep(store)
    path = os.path.join(store.path, "snapshots", name)
    with open(path, "wb") as stream:
        stream.write(b"somebody else's")
    second = keep(store)
    assert name.replace(".json.gz", "-2.json.gz") == second
    with open(path, "rb") as stream:
        assert b"somebody else's" == stream.read()
    assert snapshot_of(["node01", "node02"]) == store.load(second)


def test_store_entries_are_in_the_order_of_time(store: Store) -> None:
    """Newest last, whatever order they were written in; also two of one second."""
    late = keep(store, 1, at="2026-11-30T12:00:00Z")
    early = keep(store, 2, at="2026-11-30T09:00:00Z")
    same_second = [keep(store, value, at="2026-11-30T10:00:00Z") for value in range(10, 20)]
    assert [early, *same_second, late] == [entry.name for entry in store.entries()]


def test_store_file_has_the_time_of_its_writing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the nanosecond: the kernel's own stamp would be the same for runs some milliseconds apart."""
    now_ns = 1_796_000_000_123_456_789
    monkeypatch.setattr(time, "time_ns", lambda: now_ns)
    name = keep(store)
    assert now_ns == os.stat(os.path.join(store.path, "snapshots", name)).st_mtime_ns


def test_store_syncs_content_before_the_name_and_the_name_after(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut a name that is there leads to its content, and a kept snapshot has its name."""
    keep(store)
    steps: List[str] = []

    def place_of(path: str) -> str:
        name = os.path.basename(path)
        return "temporary" if is_temporary(name) else "folder" if name in ("snapshots", "good") else "file"

    def watch(name: str, real: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            last = arguments[-1]
            path = os.readlink(f"/proc/self/fd/{last}") if name == "fsync" else str(last)
            steps.append(f"{name} {place_of(path)}")
            real(*arguments)

        return call

    for name in ("fsync", "link", "replace"):
        monkeypatch.setattr(os, name, watch(name, getattr(os, name)))
    store.write(
        snapshot_of(["n"]), captured_at="2026-11-30T11:00:00Z", tool=TOOL, host="login", tags=["good"]
    )
    monkeypatch.undo()
    snapshot = ["fsync temporary", "link file", "fsync folder"]
    # The tag's folder is new: the folder that holds it is synced first.
    tag = ["fsync file", "fsync temporary", "replace file", "fsync folder"]
    assert [*snapshot, *tag] == steps


def test_store_entry_tells_what_its_head_says(store: Store) -> None:
    """Nodes with digests, missing nodes with causes, tags by node."""
    snapshot = snapshot_of(["node01", "node02"], missing=["node03"])
    name = store.write(snapshot, captured_at="2026-11-30T10:00:00Z", tool=TOOL, host="login", tags=["good"])
    store.tag("first", "node01", name)
    (entry,) = store.entries()
    assert (name, "2026-11-30T10:00:00Z", "login", TOOL) == (
        entry.name,
        entry.captured_at,
        entry.host,
        entry.tool,
    )
    assert {one.node: one.digest for one in snapshot.fingerprints} == entry.nodes
    assert snapshot.missing == entry.missing
    assert {"good": ("node01", "node02"), "first": ("node01",)} == entry.tags
    assert (("first", "good"), ("good",)) == (entry.tags_of("node01"), entry.tags_of("node02"))


def test_store_with_no_snapshot_has_no_entries(store: Store) -> None:
    """Asking a store that does not exist is no error and creates nothing."""
    assert ([], [], {}) == (store.entries(), store.verify(), store.tags())
    assert not os.path.exists(store.path)


def test_store_folder_is_found_upward(tmp_path: Path) -> None:
    """As git finds `.git`: from a folder deep inside the project."""
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    assert str(deep / ".envaudit") == Store.find(str(deep))
    (tmp_path / ".envaudit").mkdir()
    assert str(tmp_path / ".envaudit") == Store.find(str(deep))
    (tmp_path / "a" / ".envaudit").write_text("a file is no store")
    assert str(tmp_path / ".envaudit") == Store.find(str(deep))


@pytest.mark.parametrize("node", ["../../etc/x", "-oProxyCommand=x", "", "a/b", ".."])
def test_store_node_name_that_is_a_path_is_refused(store: Store, node: str) -> None:
    """A node's name becomes a path only after it has been checked."""
    for snapshot in (snapshot_of([node]), snapshot_of(["node01"], missing=[node])):
        with pytest.raises(UsageError, match="not a node name"):
            store.write(snapshot, captured_at="2026-11-30T10:00:00Z", tool=TOOL, host="login", tags=["good"])
    with pytest.raises(UsageError, match="not a node name"):
        store.resolve_many([node], "latest")
    with pytest.raises(UsageError, match="not a node name"):
        store.history(node)
    assert not os.path.exists(store.path)


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "x.json.gz", "", "..", "20261130T100000Z-..-x.json.gz"]
)
def test_store_file_name_that_is_a_path_is_refused(store: Store, name: str) -> None:
    """Only names that a store gives lead to files."""
    keep(store)
    with pytest.raises(InputError, match="not the name of a stored snapshot"):
        store.load(name)


def test_store_file_that_is_gone_is_named(store: Store) -> None:
    """A snapshot that somebody pruned is an unreadable input."""
    name = keep(store)
    os.unlink(os.path.join(store.path, "snapshots", name))
    with pytest.raises(InputError, match=f"{name}: cannot be read \\(No such file or directory\\)"):
        store.load(name)


def test_store_files_follow_the_umask(store: Store) -> None:
    """A shared store stays readable for the group that its users chose."""
    before = os.umask(0o027)
    try:
        path = os.path.join(store.path, "snapshots", keep(store, tags=["good"]))
    finally:
        os.umask(before)
    assert 0o640 == stat.S_IMODE(os.stat(path).st_mode)
    assert 0o640 == stat.S_IMODE(os.stat(os.path.join(store.path, "tags", "good", "node01")).st_mode)


def test_store_two_writers_lose_nothing(store: Store) -> None:
    """Two processes with one host name in one second: every snapshot of both is there."""
    runs = 120
    script = os.path.join(os.path.dirname(__file__), "writing_process.py")
    writers = [
        subprocess.Popen([sys.executable, script, store.path, str(start), str(runs)], stdout=subprocess.PIPE)
        for start in (0, 1000)
    ]
    written = [writer.communicate(timeout=120)[0].decode().split() for writer in writers]
    assert [0, 0] == [writer.returncode for writer in writers]
    assert {*written[0], *written[1]} == set(_files(store))
    values = {store.load(name).fingerprints[0].sections["host"].facts["value"] for name in _files(store)}
    assert {*range(runs), *range(1000, 1000 + runs)} == values
    assert [] == store.verify()


def test_store_never_renames_over_a_snapshot(store: Store, tmp_path: Path) -> None:
    """On NFS a rename over an open file makes its readers fail: snapshots are linked, not renamed."""
    calls: List[str] = []

    def watch(event: str, arguments: Tuple[str, ...]) -> None:
        if watching and event in ("os.rename", "os.link"):
            calls.append(f"{event} {os.path.basename(os.path.dirname(arguments[1]))}")

    watching = True
    sys.addaudithook(watch)
    keep(store, 1)
    keep(store, 2)
    store.prune(1)
    watching = False
    assert ["os.link snapshots", "os.link snapshots", "os.rename snapshots"] == calls
