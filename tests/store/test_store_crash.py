"""Killed writers, full disks and folders that may not be written: nothing is ever half there."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Callable, Iterator, List

import pytest

from envaudit.errors import NeededError
from envaudit.store import Store, atomic_write, temporaries
from envaudit.store.temporaries import ABANDONED_AFTER_S, abandoned, is_temporary, temporary_name
from tests.store.snapshots import keep, snapshot_of, value_of

HERE = os.path.dirname(__file__)
# A guard against a count that misses the calls that matter.
FEWEST_CALLS = 20


def _temporaries(store: Store) -> List[str]:
    found = [os.path.join(folder, name) for folder, _, names in os.walk(store.path) for name in names]
    return [path for path in found if is_temporary(os.path.basename(path))]


def _only_leftovers(store: Store) -> bool:
    return all("left by a writer" in problem.text for problem in store.verify())


@contextlib.contextmanager
def _killed_before(store: Store, action: str) -> Iterator[Callable[[int], bool]]:
    """A function that runs the action up to its n-th call; False when it has fewer."""
    script = os.path.join(HERE, "killed_process.py")
    command = [sys.executable, script, store.path, action]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as parent:

        def run(call: int) -> bool:
            assert parent.stdin is not None
            assert parent.stdout is not None
            parent.stdin.write(b"%d\n" % call)
            ended = int(parent.stdout.readline())
            assert ended in (0, -signal.SIGKILL)
            return ended != 0

        yield run


def test_writer_killed_before_any_call_leaves_a_whole_store(store: Store) -> None:
    """Killed at every step of writing and tagging: old tags or new ones, every file whole."""
    first, call = keep(store, 0, tags=["good"]), 1
    with _killed_before(store, "write") as killed:
        while killed(call):
            assert _only_leftovers(store)
            for node in ("node01", "node02"):
                assert value_of(store, node, "good") in range(call + 1)
            call += 1
    assert call > FEWEST_CALLS
    assert first in [entry.name for entry in store.entries()]
    # The last run was not killed: it removed what all the others had left.
    assert [] == _temporaries(store)
    assert call == value_of(store, "node02", "good")


def test_retag_killed_before_any_call_keeps_one_of_both_tags(store: Store) -> None:
    """A tag names the old snapshot or the new one, never nothing."""
    old, call = keep(store, "old", tags=["good"]), 1
    keep(store, "new", at="2026-11-30T11:00:00Z")
    with _killed_before(store, "retag") as killed:
        while killed(call):
            assert _only_leftovers(store)
            assert value_of(store, "node01", "good") in ("old", "new")
            store.tag("good", "node01", old)
            call += 1
    assert call > FEWEST_CALLS
    assert ("new", "old") == (value_of(store, "node01", "good"), value_of(store, "node02", "good"))


def test_prune_killed_before_any_call_keeps_what_is_needed(store: Store) -> None:
    """Pruning that stops anywhere has removed only what nobody needs."""

    def refill() -> None:
        keep(store, "tagged", tags=["good"])
        keep(store, "unneeded", at="2026-11-30T11:00:00Z")
        keep(store, "newest", at="2026-11-30T12:00:00Z")

    refill()
    call = 1
    with _killed_before(store, "prune") as killed:
        while killed(call):
            assert _only_leftovers(store)
            assert "tagged" == value_of(store, "node01", "good")
            assert "newest" == value_of(store, "node01", "latest")
            refill()
            call += 1
    assert call > FEWEST_CALLS
    assert 2 == len(store.entries())


def test_writer_killed_at_random_moments_loses_no_finished_snapshot(store: Store) -> None:
    """Killing in a loop: what the writer called kept is kept, and the next writer tidies up."""
    chance = random.Random(20261130)
    finished: List[str] = []
    for round_ in range(25):
        command = [sys.executable, os.path.join(HERE, "writing_process.py"), store.path, str(round_ * 10**6)]
        with subprocess.Popen([*command, "0", "good"], stdout=subprocess.PIPE, bufsize=0) as writer:
            assert writer.stdout is not None
            first = writer.stdout.readline()
            time.sleep(chance.uniform(0, 0.02))
            writer.kill()
            lines = (first + writer.stdout.read()).split(b"\n")
        finished += [line.decode() for line in lines[:-1]]
        assert len(_temporaries(store)) <= 1
        assert store.resolve_many(["node01"], "good")["node01"].node == "node01"
    keep(store, "last", nodes=["node01"], tags=["good"])
    assert [] == _temporaries(store)
    assert [] == store.verify()
    assert len(finished) >= 25
    assert set(finished) <= {entry.name for entry in store.entries()}


def test_temporary_of_a_living_writer_stays(store: Store) -> None:
    """A slow writer beside this one is not robbed of its file."""
    keep(store)
    folder = os.path.join(store.path, "snapshots")
    script = (
        "import os, sys; from envaudit.store.temporaries import temporary_name;"
        "path = os.path.join(sys.argv[1], temporary_name()); open(path, 'w').close();"
        "print(path, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=os.path.join(HERE, "..", ".."),
    ) as other:
        assert other.stdout is not None
        path = other.stdout.readline().decode().strip()
        keep(store, 1)
        assert os.path.exists(path)
        assert [] == store.verify()
        other.kill()
    assert [path] == [problem.path for problem in store.verify()]
    keep(store, 2)
    assert not os.path.exists(path)


def test_temporary_of_another_machine_goes_after_an_hour(store: Store) -> None:
    """Nobody can ask whether a process lives elsewhere; only age tells."""
    keep(store)
    folder = os.path.join(store.path, "snapshots")
    path = os.path.join(folder, ".envaudit-node07-0123abcd-1-5-89abcdef.tmp")
    Path(path).write_bytes(b"half")
    written_s = os.stat(path).st_mtime
    assert [] == abandoned(folder, now_s=written_s + ABANDONED_AFTER_S - 1)
    assert [os.path.basename(path)] == abandoned(folder, now_s=written_s + ABANDONED_AFTER_S + 1)
    keep(store, 1)
    assert os.path.exists(path)
    os.utime(path, (written_s - 2 * ABANDONED_AFTER_S,) * 2)
    keep(store, 2)
    assert not os.path.exists(path)


def test_temporary_of_a_reused_process_id_goes(store: Store) -> None:
    """Another process that got a dead writer's id does not keep its file alive."""
    keep(store)
    folder = os.path.join(store.path, "snapshots")
    own = temporary_name()
    start = own.split("-")[-2]
    reborn = own.replace(f"-{start}-", f"-{int(start) - 1}-")
    for name in (own, reborn):
        Path(folder, name).write_bytes(b"")
    assert [reborn] == abandoned(folder)


def _fill(store: Store) -> None:
    noise = random.Random(1)
    for value in range(1, 100):
        keep(store, [value, *(noise.getrandbits(63) for _ in range(1000))], tags=["good"])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[str]:
    """A file system of 64 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "envaudit-small", str(folder)]
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"no small tmpfs here: {mounted.stderr.strip()}")
    try:
        yield str(folder)
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_full_disk_is_told_and_leaves_the_store_whole(small_disk: str) -> None:
    """Exit code 5 with the place and the next step; nothing half written, old tags stand."""
    store = Store(os.path.join(small_disk, ".envaudit"))
    keep(store, 0, tags=["good"])
    with pytest.raises(NeededError, match="No space left on device") as caught:
        _fill(store)
    assert 5 == caught.value.exit_code
    assert caught.value.where.startswith(store.path)
    assert "Free space" in caught.value.next_step
    assert ([], []) == (store.verify(), _temporaries(store))
    assert 1 < len(store.entries()) < 100
    for entry in store.entries():
        assert ["node01", "node02"] == sorted(store.load(entry.name).by_node)
    with pytest.raises(NeededError, match="No space left"):
        atomic_write(os.path.join(small_disk, "report.json"), b"x" * 70000)
    assert [".envaudit"] == os.listdir(small_disk)


@pytest.mark.parametrize("tag", ["good", "new"])
def test_disk_full_to_the_last_byte_tags_all_nodes_or_none(small_disk: str, tag: str) -> None:
    """With room for the snapshot but not for all its tags, the tags stay as they were."""
    store = Store(os.path.join(small_disk, ".envaudit"))
    keep(store, "old", tags=["good"])
    before = store.tags()
    filler = os.path.join(small_disk, "filler")
    for free_pages in range(6):
        with open(filler, "wb", buffering=0) as stream:
            try:
                while stream.write(b"x" * 4096):
                    pass
            except OSError:
                pass
            stream.truncate(max(0, stream.tell() - free_pages * 4096))
        try:
            keep(store, free_pages, tags=[tag])
        except NeededError:
            assert ([], before) == (store.verify(), store.tags())
        else:
            break
        finally:
            os.unlink(filler)
    # Not at once, and not never: both sides of the limit were seen.
    assert 0 < free_pages < 5
    assert [free_pages] * 2 == [value_of(store, node, tag) for node in ("node01", "node02")]


@pytest.fixture
def read_only_disk(tmp_path: Path) -> Iterator[str]:
    """A folder with a store in it, on a file system that turned read-only."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a read-only tmpfs needs root")
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "envaudit-read-only", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"no tmpfs here: {mounted.stderr.strip()}")
    try:
        keep(Store(str(folder / ".envaudit")), 7, tags=["good"])
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        yield str(folder)
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_read_only_store_is_still_read(read_only_disk: str) -> None:
    """Reading needs no permission to write; writing is refused with exit code 5."""
    store = Store(os.path.join(read_only_disk, ".envaudit"))
    assert (7, []) == (value_of(store, "node01", "good"), store.verify())
    for write in (
        lambda: keep(store, 8),
        lambda: store.tag("other", "node01", store.entries()[0].name),
        lambda: Store(os.path.join(read_only_disk, "new")).write(
            snapshot_of(["n"]), captured_at="2026-11-30T10:00:00Z", tool="1", host="h"
        ),
        lambda: atomic_write(os.path.join(read_only_disk, "report.json"), b"{}"),
    ):
        with pytest.raises(NeededError, match="Read-only file system"):
            write()


def test_forbidden_folder_is_told() -> None:
    """A folder of somebody else: exit code 5, and what to do."""
    nobody = 65534
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o555)
        user = os.geteuid()
        if user == 0:
            os.seteuid(nobody)
        try:
            with pytest.raises(NeededError, match=r"Permission denied.*choose another place"):
                keep(Store(os.path.join(folder, ".envaudit")))
            with pytest.raises(NeededError, match=r"Permission denied.*choose another place"):
                atomic_write(os.path.join(folder, "report.json"), b"{}")
        finally:
            os.seteuid(user)


def test_store_below_a_file_is_told(tmp_path: Path) -> None:
    """A file where the store's folder should be."""
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / ".envaudit"):
        with pytest.raises(NeededError, match="cannot be written"):
            keep(Store(str(path)))


def test_temporary_is_as_old_as_the_file_system_says(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose clock is hours ahead does not take another one's new file for abandoned."""
    keep(store)
    path = Path(store.path, "snapshots", ".envaudit-node07-0123abcd-1-5-89abcdef.tmp")
    path.write_bytes(b"being written")
    ahead_s = time.time() + 5 * ABANDONED_AFTER_S
    monkeypatch.setattr(time, "time", lambda: ahead_s)
    keep(store, 1)
    assert path.exists()


def test_temporary_without_proc_is_told_by_age_alone(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody can say which machine this is, no process can be asked."""
    keep(store)
    folder = os.path.join(store.path, "snapshots")
    name = ".envaudit-node07-unknown0-999999999-5-89abcdef.tmp"
    Path(folder, name).write_bytes(b"")
    monkeypatch.setattr(temporaries, "_machine", lambda: "unknown0")
    assert [] == abandoned(folder)
    assert [name] == abandoned(folder, now_s=time.time() + ABANDONED_AFTER_S + 1)
