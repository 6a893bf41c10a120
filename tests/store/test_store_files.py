"""Atomic writing of the files that a user names: reports and `snapshot -o`."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
import threading
from pathlib import Path

import pytest

from envaudit.errors import NeededError
from envaudit.store import atomic_write, files


def test_atomic_write_creates_and_replaces(tmp_path: Path) -> None:
    """The new content, whole, and nothing beside it."""
    path = tmp_path / "report.json"
    atomic_write(str(path), b"1")
    atomic_write(str(path), b"2")
    assert (b"2", ["report.json"]) == (path.read_bytes(), os.listdir(tmp_path))


def test_atomic_write_of_a_relative_path_stays_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bare file name lies in the working directory."""
    monkeypatch.chdir(tmp_path)
    atomic_write("report.json", b"1")
    assert b"1" == (tmp_path / "report.json").read_bytes()


def test_atomic_write_keeps_permissions_and_links(tmp_path: Path) -> None:
    """A report that others may read stays so, and a link keeps leading to it."""
    path, link = tmp_path / "report.json", tmp_path / "link.json"
    path.write_bytes(b"old")
    path.chmod(0o604)
    link.symlink_to(path)
    atomic_write(str(link), b"new")
    assert (True, b"new", 0o604) == (link.is_symlink(), path.read_bytes(), stat.S_IMODE(path.stat().st_mode))


def test_atomic_write_to_a_device_does_not_replace_it() -> None:
    """`--report json=/dev/stdout` writes there; it does not put a file in /dev."""
    before = os.stat("/dev/null").st_rdev
    atomic_write("/dev/null", b"x")
    assert before == os.stat("/dev/null").st_rdev
    reader, writer = os.pipe()
    atomic_write(f"/dev/fd/{writer}", b"report")
    assert b"report" == os.read(reader, 100)
    os.close(reader)
    os.close(writer)


def test_atomic_write_to_redirected_output_keeps_its_file(tmp_path: Path) -> None:
    """`... --report json=/dev/stdout > file`: the shell holds that file, it is not replaced."""
    path = tmp_path / "out"
    with open(path, "wb") as stream:
        before = path.stat().st_ino
        atomic_write(f"/dev/fd/{stream.fileno()}", b"report")
    assert (before, b"report") == (path.stat().st_ino, path.read_bytes())


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("none/report.json", "No such file or directory). Create that folder"),
        ("folder", "Is a directory). A folder stands where a file should"),
        ("file/report.json", "Not a directory). A file stands where a folder should"),
    ],
)
def test_atomic_write_that_cannot_be_done_is_told(tmp_path: Path, path: str, expected: str) -> None:
    """Exit code 5 with the path, the cause and the next step."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(NeededError) as caught:
        atomic_write(str(tmp_path / path), b"x")
    assert str(caught.value).startswith(f"{tmp_path / path}: cannot be written ({expected}")
    assert {"folder", "file"} == set(os.listdir(tmp_path))
    assert b"old" == (tmp_path / "file").read_bytes()


def test_atomic_write_under_readers_is_never_seen_half(tmp_path: Path) -> None:
    """A reader beside the writer sees one content or the other."""
    path = str(tmp_path / "report.json")
    contents = [letter * 300_000 for letter in (b"a", b"b")]
    atomic_write(path, contents[0])
    done = threading.Event()
    seen = set()

    def read() -> None:
        while not done.is_set():
            with open(path, "rb") as stream:
                seen.add(stream.read())

    reader = threading.Thread(target=read)
    reader.start()
    for turn in range(60):
        atomic_write(path, contents[turn % 2])
    done.set()
    reader.join()
    assert seen <= set(contents)


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP, errno.EMLINK])
def test_publish_without_hard_links_replaces_nothing_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """FAT, some network and FUSE file systems have no hard links; there is none to mount in a test."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)
    assert "a.x" == files.publish(str(tmp_path), "a", ".x", b"1")
    assert "a.x" == files.publish(str(tmp_path), "a", ".x", b"1")
    assert "a-2.x" == files.publish(str(tmp_path), "a", ".x", b"2")
    assert {"a.x": b"1", "a-2.x": b"2"} == {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    aside = files.hide(str(tmp_path / "a.x"))
    files.restore(aside, str(tmp_path / "a.x"))
    assert {"a.x", "a-2.x"} == set(os.listdir(tmp_path))


def test_publish_whose_link_was_made_but_not_answered_is_done(tmp_path: Path) -> None:
    """An NFS client that repeats a call after a lost reply hears "exists" from its own success."""
    (tmp_path / "a.x").write_bytes(b"1")
    assert "a.x" == files.publish(str(tmp_path), "a", ".x", b"1")
    assert ["a.x"] == os.listdir(tmp_path)


def test_atomic_write_into_a_folder_that_may_not_be_listed_is_done() -> None:
    """A drop box: files may be put there, but nobody sees which."""
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o333)
        if user == 0:
            os.seteuid(65534)
        try:
            atomic_write(os.path.join(folder, "report.json"), b"1")
        finally:
            os.seteuid(user)
            os.chmod(folder, 0o755)
        assert ["report.json"] == os.listdir(folder)
