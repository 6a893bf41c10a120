"""Digests kept by the identity of files: what may be believed, and when."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict

import pytest

from envaudit.probe.hashcache import HashCache
from envaudit.probe.hashing import Digest, Identity
from tests.probe.test_integrity import SITE, Environment, found

KNOWN: Dict[Identity, Digest] = {(1, 2, 3, 4, 5): ("sha256", "ab" * 32)}


@pytest.fixture
def settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """A healthy environment that was not written to just now: the clock of this test goes ahead."""
    environment = Environment(tmp_path)
    now_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now_ns() + 10**10)
    return environment


def cached(environment: Environment, mode: str = "size") -> Any:
    """What is found with a cache."""
    return environment.read(mode, integrity_cache=str(environment.folder / "cache"))


def keeping_size_and_mtime(path: Path, text: str) -> None:
    """An edit that only ctime tells of."""
    before = path.stat()
    path.write_text(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (before.st_size, before.st_mtime_ns) == (path.stat().st_size, path.stat().st_mtime_ns)


def test_cache_spares_reading_what_was_not_touched(settled: Environment) -> None:
    """The first run reads all of it, the second none."""
    first, second = cached(settled), cached(settled)
    assert ("cached", {}, {}) == (first.facts["mode"], found(first), found(second))
    assert first.notes["read_bytes"] > 0
    assert (0, 7) == (second.notes["read_bytes"], second.notes["cache"]["believed"])


def test_cache_of_a_hash_run_serves_size_runs(settled: Environment) -> None:
    """And `hash` itself reads everything again, whatever is kept."""
    first = cached(settled, "hash")
    again = cached(settled, "hash")
    assert first.notes["read_bytes"] == again.notes["read_bytes"] > 0
    assert 0 == cached(settled).notes["read_bytes"]


def test_edit_that_keeps_size_and_mtime_is_found_with_a_cache(settled: Environment) -> None:
    """Its ctime is another; exactly that file is hashed, and its state is found on later runs too."""
    cached(settled)
    keeping_size_and_mtime(settled.prefix / "lib/a.so", "librarx")
    for _ in range(2):
        answer = cached(settled)
        assert {"changed": {"a": ["lib/a.so"]}} == found(answer)
        assert answer.notes["read_bytes"] in (7, 0)
    assert {} == found(settled.read("size"))


def test_file_that_was_replaced_by_another_is_hashed(settled: Environment) -> None:
    """Another inode with the times and the size of the first."""
    cached(settled)
    place = settled.site / "tool/__init__.py"
    other = settled.write(f"{SITE}/other", "toox")
    os.utime(other, ns=(place.stat().st_atime_ns, place.stat().st_mtime_ns))
    other.rename(place)
    assert {"pip:tool": [f"{SITE}/tool/__init__.py"]} == cached(settled).facts["changed"]


def test_content_behind_an_unchanged_identity_is_found_by_hash_alone(settled: Environment) -> None:
    """A disk that decays changes no ctime: a forged entry stands for it."""
    cached(settled)
    path = settled.prefix / "lib/a.so"
    path.write_text("librarx")
    seen = path.stat()
    cache = HashCache(str(settled.folder / "cache"))
    known = cache.read()
    (good,) = {digest for identity, digest in known.items() if identity[1] == seen.st_ino}
    known[(seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)] = good
    cache.write(known)
    assert {} == found(cached(settled, "size"))
    assert {"changed": {"a": ["lib/a.so"]}} == found(cached(settled, "hash"))


def test_file_written_a_moment_ago_is_not_kept(tmp_path: Path) -> None:
    """Another write within the same tick would leave its identity as it is."""
    assert 0 == cached(Environment(tmp_path)).notes["cache"]["kept"]


def test_cache_is_its_user_s_alone(tmp_path: Path) -> None:
    """Mode 600, and no other file is left beside it."""
    cache = HashCache(str(tmp_path / "cache"))
    cache.write(KNOWN)
    assert 0o600 == (tmp_path / "cache").stat().st_mode & 0o777
    assert ["cache"] == os.listdir(tmp_path)
    assert KNOWN == cache.read()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"x" * 100,
        b"envaudit file digests 1 " + b"0" * 64 + b"\n[]",
        b"\x00\xff\n" * 50,
    ],
)
def test_damaged_cache_is_as_good_as_none(tmp_path: Path, text: bytes) -> None:
    """Cut short, of something else, forged or binary."""
    (tmp_path / "cache").write_bytes(text)
    (tmp_path / "cache").chmod(0o600)
    cache = HashCache(str(tmp_path / "cache"))
    assert ({}, "damaged") == (cache.read(), cache.said["not_read"])


def test_cache_that_lost_its_end_is_damaged(tmp_path: Path) -> None:
    """What a crash leaves of it."""
    cache = HashCache(str(tmp_path / "cache"))
    cache.write(KNOWN)
    os.truncate(tmp_path / "cache", (tmp_path / "cache").stat().st_size - 1)
    assert {} == cache.read()


def test_cache_that_others_may_write_is_not_believed(tmp_path: Path) -> None:
    """They could say of any file that it is whole."""
    cache = HashCache(str(tmp_path / "cache"))
    cache.write(KNOWN)
    (tmp_path / "cache").chmod(0o660)
    assert ({}, "others may write or read it") == (cache.read(), cache.said["not_read"])


@pytest.mark.parametrize("kind", ["fifo", "folder", "link"])
def test_cache_that_is_no_file_is_neither_read_nor_waited_for(tmp_path: Path, kind: str) -> None:
    """A FIFO would hold the run for good; a link may lead to another user's file."""
    path = tmp_path / "cache"
    {"fifo": os.mkfifo, "folder": os.mkdir, "link": lambda path: os.symlink("/etc/passwd", path)}[kind](path)
    cache = HashCache(str(path))
    assert {} == cache.read()
    assert "not_read" in cache.said


@pytest.mark.parametrize("kind", ["fifo", "link", "model"])
def test_what_is_no_cache_is_not_replaced(tmp_path: Path, kind: str) -> None:
    """A device, which an atomic write would take away from the whole node, or a file named by mistake."""
    path, model = tmp_path / "cache", tmp_path / "model"
    model.write_bytes(b"weights")
    {"fifo": os.mkfifo, "link": lambda path: os.symlink(model, path), "model": model.rename}[kind](path)
    before = os.lstat(path)
    cache = HashCache(str(path))
    cache.write(KNOWN)
    assert (before.st_ino, before.st_mode) == (os.lstat(path).st_ino, os.lstat(path).st_mode)
    why = "something else stands there" if kind == "model" else "not a regular file"
    assert (why, 0) == (cache.said["not_written"], cache.said["kept"])
    assert kind == "fifo" or b"weights" == path.read_bytes()


def test_empty_file_becomes_a_cache(tmp_path: Path) -> None:
    """As mktemp leaves one."""
    (tmp_path / "cache").touch(0o600)
    HashCache(str(tmp_path / "cache")).write(KNOWN)
    assert KNOWN == HashCache(str(tmp_path / "cache")).read()


def test_cache_where_none_can_be_is_said_and_costs_nothing(settled: Environment) -> None:
    """The folder is missing: the answer is whole all the same."""
    answer = settled.read("size", integrity_cache=str(settled.folder / "nowhere/cache"))
    assert ("ok", {}) == (answer.status, found(answer))
    assert "No such file or directory" == answer.notes["cache"]["not_written"]


_FULL = """
import resource, signal, sys
from envaudit.probe.hashcache import HashCache
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
cache = HashCache(sys.argv[1])
cache.write({(1, 2, 3, 4, number): ("sha256", "ab" * 32) for number in range(1000)})
print(cache.said["not_written"])
"""


def test_cache_on_a_full_disk_leaves_the_former_one(tmp_path: Path) -> None:
    """No space for the new one: the old one stays, whole, and nothing lies beside it."""
    cache = HashCache(str(tmp_path / "cache"))
    cache.write(KNOWN)
    argv = [sys.executable, "-c", _FULL, str(tmp_path / "cache")]
    said = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=30).stdout
    assert ("File too large\n", KNOWN, ["cache"]) == (said, cache.read(), os.listdir(tmp_path))


def _write_often(path: str, number: int) -> None:
    for _ in range(30):
        HashCache(path).write({(number, 2, 3, 4, each): ("sha256", "ab" * 32) for each in range(500)})


def test_cache_of_several_writers_is_always_whole(tmp_path: Path) -> None:
    """Whoever reads meanwhile finds one writer's digests, never a mixture or a half."""
    path = str(tmp_path / "cache")
    HashCache(path).write(KNOWN)
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=_write_often, args=(path, number)) for number in (1, 2)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        cache = HashCache(path)
        assert 1 == len({identity[0] for identity in cache.read()})
        assert "not_read" not in cache.said
    for writer in writers:
        writer.join()
    assert [0, 0] == [writer.exitcode for writer in writers]
    assert ["cache"] == os.listdir(tmp_path)
