"""Files that are not as a store writes them: corrupt, hostile, links, folders, other schemas."""

from __future__ import annotations

import gzip
import json
import os
import tempfile
import zlib
from pathlib import Path
from typing import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envaudit.errors import InputError
from envaudit.model import Snapshot
from envaudit.model.codec import SECTION_SCHEMAS
from envaudit.store import Store, read_snapshot_file, snapshot_file, write_snapshot_file
from tests.store.snapshots import TOOL, keep, snapshot_of

AT = "2026-11-30T10:00:00Z"
SNAPSHOT = snapshot_of(["node01"], "x", missing=["node02"])


def _path(store: Store, name: str) -> Path:
    return Path(store.path, "snapshots", name)


def _rewritten(path: Path, old: bytes, new: bytes) -> None:
    document = gzip.decompress(path.read_bytes())
    assert old in document
    path.write_bytes(gzip.compress(document.replace(old, new), mtime=0))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "empty"),
        (b"garbage", "not a whole gzip file"),
        (b"\x1f\x8b", "cut short"),
        (gzip.compress(b""), "cut short"),
        (gzip.compress(b'{"a": 1}\n'), "not an envaudit snapshot"),
        (gzip.compress(b"\xff\xfe\n"), "not text"),
        (gzip.compress(b'{"head":{"format":"envaudit.snapshot","schema":2},\n}'), "schema 2 is unknown"),
    ],
    ids=["empty", "garbage", "magic", "nothing", "json", "bytes", "newer"],
)
def test_corrupt_file_is_told_and_hides_no_other(store: Store, data: bytes, expected: str) -> None:
    """One bad file costs that snapshot alone, and is named."""
    good, bad = keep(store, 1, at="2026-11-30T09:00:00Z"), keep(store, 2)
    _path(store, bad).write_bytes(data)
    scan = store.scan()
    assert [good] == [entry.name for entry in scan.entries] == [entry.name for entry in store.entries()]
    (problem,) = scan.problems
    assert str(_path(store, bad)) == problem.path
    assert expected in problem.text
    assert [str(_path(store, bad))] == [one.path for one in store.verify()]
    with pytest.raises(InputError, match=bad) as caught:
        store.load(bad)
    assert 4 == caught.value.exit_code
    assert good in [entry.name for entry in store.history("node01")]


def test_corrupt_newest_file_is_not_passed_over(store: Store) -> None:
    """`latest` does not quietly mean an older snapshot because the newest is broken."""
    keep(store, 1, at="2026-11-30T09:00:00Z")
    bad = keep(store, 2)
    _path(store, bad).write_bytes(b"")
    with pytest.raises(InputError, match=f"{bad}.*store verify"):
        store.resolve_many(["node01"], "latest")
    assert 1 == store.resolve_many(["node01"], "2026-11-30T09:00Z")["node01"].sections["host"].facts["value"]


def test_next_step_of_a_stored_file_is_about_the_store_and_of_a_newer_one_about_envaudit(
    store: Store,
) -> None:
    """Nobody has given the file, so none can be given instead; one that is whole is not to be moved away."""
    name = keep(store)
    whole = _path(store, name).read_bytes()
    _path(store, name).write_bytes(whole[:-20])
    with pytest.raises(InputError, match=r"cut short\. See 'envaudit store verify'"):
        store.resolve_many(["node01"], "latest")
    _path(store, name).write_bytes(whole)
    _rewritten(_path(store, name), b'"schema":1,"tool"', b'"schema":2,"tool"')
    with pytest.raises(InputError, match=r"schema 2 is unknown .*Upgrade envaudit\.$"):
        store.resolve_many(["node01"], "latest")


def test_every_flipped_bit_is_detected(store: Store) -> None:
    """Each bit of a stored file matters, or does not change the snapshot (gzip's own remarks)."""
    name = keep(store)
    path, whole = _path(store, name), store.load(name)
    data = path.read_bytes()
    harmless = set()
    for position in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[position] ^= 1 << bit
            path.write_bytes(changed)
            try:
                assert whole == store.load(name)
            except InputError:
                continue
            harmless.add(position)
    # RFC 1952: some of the header; the bits that fill up the last deflated byte; and a distance
    # that now points to another copy of the same text.
    assert len(harmless) < 20 < len(data) / 10


# Syncing to a disk that others use takes as long as it takes.
@settings(deadline=None)
@given(st.data())
def test_any_damage_is_detected(data: st.DataObject) -> None:
    """Bytes that are replaced, inserted, or cut off anywhere."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        name = keep(store)
        path, whole = _path(store, name), store.load(name)
        content = path.read_bytes()
        start = data.draw(st.integers(0, len(content)))
        end = data.draw(st.integers(start, min(len(content), start + 8)))
        damaged = content[:start] + data.draw(st.binary(max_size=8)) + content[end:]
        path.write_bytes(data.draw(st.sampled_from([damaged, content[:start]])))
        _detected(store, name, whole)


def _detected(store: Store, name: str, whole: Snapshot) -> bool:
    """Whether load and verify both refuse the file; otherwise it must be the equal snapshot."""
    loaded, refused = None, ""
    try:
        loaded = store.load(name)
    except InputError as error:
        refused = error.where
    assert (name in refused) == bool(store.verify())
    assert loaded in (whole, None)
    return loaded is None


def test_bytes_after_the_end_are_refused(store: Store) -> None:
    """Another file that was joined on is not quietly left out."""
    name = keep(store)
    path = _path(store, name)
    for more in (b"x", path.read_bytes()):
        path.write_bytes(path.read_bytes() + more)
        with pytest.raises(InputError, match="bytes follow the end of the gzip data"):
            store.load(name)


def test_file_that_is_not_compressed_is_no_stored_one(store: Store) -> None:
    """Listing, which reads the first line alone, and verifying agree on it."""
    path = _path(store, keep(store))
    path.write_bytes(gzip.decompress(path.read_bytes()))
    assert "not a whole gzip file" in store.scan().problems[0].text
    assert "not a whole gzip file" in store.verify()[0].text


def test_changed_head_is_found_by_verify(store: Store) -> None:
    """What section digests do not cover, the digest in the file's name does."""
    name = keep(store)
    _rewritten(_path(store, name), TOOL.encode(), b"6.6")
    (problem,) = store.verify()
    assert "the digest in its name differs from the content" == problem.text


def test_renamed_file_is_found_by_verify(store: Store) -> None:
    """A file cannot pass for one of another time."""
    name = keep(store)
    _path(store, name).rename(_path(store, name.replace("T10", "T11")))
    (problem,) = store.verify()
    assert "the time in its name differs from the content" == problem.text


def test_changed_fact_is_refused_with_its_place(store: Store) -> None:
    """A fact that was edited by hand does not match its digest."""
    name = keep(store, "before")
    _rewritten(_path(store, name), b'"before"', b'"after!"')
    with pytest.raises(InputError, match=f"{name}: sections.*digest differs from the content"):
        store.load(name)
    (problem,) = store.verify()
    assert problem.text.startswith("sections.")


def test_node_name_that_is_a_path_in_a_file_is_refused(store: Store) -> None:
    """What a file says does not become a path either."""
    name = keep(store)
    _rewritten(_path(store, name), b'"node01"', b'"../../etc/x"')
    with pytest.raises(InputError, match="not a node name"):
        store.load(name)
    assert "not a node name" in store.scan().problems[0].text
    assert [] == store.entries()


def test_newer_section_schema_is_exit_code_4(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written by a later version whose host section means something else."""
    name = keep(store)
    monkeypatch.setitem(SECTION_SCHEMAS, "host", 0)
    with pytest.raises(InputError, match=r"schema 1 of section host is unknown.*Upgrade envaudit") as caught:
        store.load(name)
    assert 4 == caught.value.exit_code


def test_older_section_schema_is_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an older version wrote stays comparable."""
    name = keep(store)
    monkeypatch.setitem(SECTION_SCHEMAS, "host", 2)
    assert snapshot_of(["node01", "node02"]) == store.load(name)


def _link(path: Path, target: Path) -> None:
    os.rename(path, target)
    path.symlink_to(target)


def _folder(path: Path, target: Path) -> None:
    path.unlink()
    path.mkdir()


def _pipe(path: Path, target: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("replace", "expected"),
    [(_link, "a symbolic link"), (_folder, "a folder"), (_pipe, "a device or pipe")],
    ids=["link", "folder", "pipe"],
)
def test_no_file_in_a_snapshots_place_is_told(
    store: Store, tmp_path: Path, replace: Callable[[Path, Path], None], expected: str
) -> None:
    """A store from a repository cannot lead a reader elsewhere, nor let it wait for ever."""
    name = keep(store, tags=["good"])
    replace(_path(store, name), tmp_path / "outside")
    with pytest.raises(InputError, match=f"{name}: {expected}, expected a file"):
        store.load(name)
    assert [f"{expected}, expected a file"] == [problem.text for problem in store.verify()]
    assert [] == store.entries()


def test_folder_that_is_a_link_is_not_written_through(store: Store, tmp_path: Path) -> None:
    """A link in the place of `snapshots` or `tags` leads no writer, and no prune, out of the store."""
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("snapshots", "tags"):
        shop = Store(str(tmp_path / name))
        os.makedirs(shop.path)
        os.symlink(outside, os.path.join(shop.path, name))
        with pytest.raises(InputError, match="symbolic link"):
            keep(shop, tags=["good"])
    with pytest.raises(InputError, match="symbolic link"):
        Store(str(tmp_path / "snapshots")).prune(1)
    keep(store)
    os.symlink(outside, os.path.join(store.path, "tags", "good"))
    with pytest.raises(InputError, match="symbolic link"):
        keep(store, tags=["good"])
    with pytest.raises(InputError, match="symbolic link"):
        store.resolve_many(["node01"], "good")
    assert [] == os.listdir(outside)


def test_stray_files_are_named_and_left(store: Store) -> None:
    """What is not the store's own is told and never removed."""
    keep(store)
    _path(store, "notes.txt").write_text("mine")
    _path(store, ".nfs0000000012345678").write_text("an open file that was removed, on NFS")
    _path(store, "٢٠٢٦1130T100000Z-h-00000000.json.gz").write_text("digits that no time is written in")
    assert {"not named like a snapshot"} == {problem.text for problem in store.verify()}
    store.prune(1)
    assert _path(store, "notes.txt").exists()


def _bomb(head: bytes, body_bytes: int) -> bytes:
    deflater = zlib.compressobj(9, zlib.DEFLATED, 31)
    parts = [deflater.compress(head)]
    block = b" " * (1 << 20)
    parts += [deflater.compress(block) for _ in range(body_bytes >> 20)]
    return b"".join([*parts, deflater.flush()])


def test_file_that_inflates_without_end_is_refused(store: Store) -> None:
    """Some kilobytes that become a gigabyte stop early, in the body as in the head."""
    name = keep(store)
    _path(store, name).write_bytes(_bomb(b'{"head":{},\n', 256 << 20))
    with pytest.raises(InputError, match=f"{name}: inflates to more than 600 times its size"):
        store.load(name)
    _path(store, name).write_bytes(_bomb(b'{"head":{', 64 << 20))
    (problem,) = store.scan().problems
    assert "its head is longer than 16777216 bytes" == problem.text


def test_plain_file_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit holds for text that is not compressed, too."""
    monkeypatch.setattr(snapshot_file, "MAX_TEXT_BYTES", 1 << 20)
    path = tmp_path / "long.json"
    path.write_bytes(b" " * (1 << 20) + b"{}")
    with pytest.raises(InputError, match="larger than 1048576 bytes"):
        read_snapshot_file(str(path))
    path.write_bytes(gzip.compress(os.urandom(600_000) * 2))
    with pytest.raises(InputError, match="inflates to more than 1048576 bytes"):
        read_snapshot_file(str(path))


@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "a"])
def test_snapshot_file_is_read_by_its_content(tmp_path: Path, name: str) -> None:
    """`snapshot -o FILE` and `diff a.json b.json`: gzip or plain text, whatever the file is called."""
    path = str(tmp_path / name)
    write_snapshot_file(path, SNAPSHOT, captured_at=AT, tool=TOOL)
    assert SNAPSHOT == read_snapshot_file(path)
    assert (b"\x1f\x8b" if name.endswith(".gz") else b'{"') == Path(path).read_bytes()[:2]
    renamed = str(tmp_path / "b")
    os.rename(path, renamed)
    assert SNAPSHOT == read_snapshot_file(renamed)


def test_snapshot_file_pretty_printed_is_read(tmp_path: Path) -> None:
    """After a pass through a JSON tool the head no longer stands on a line of its own."""
    path = tmp_path / "a.json"
    write_snapshot_file(str(path), SNAPSHOT, captured_at=AT, tool=TOOL)
    path.write_text(json.dumps(json.loads(path.read_text()), indent=4))
    assert SNAPSHOT == read_snapshot_file(str(path))


def test_snapshot_file_through_a_link_or_pipe_is_read(tmp_path: Path) -> None:
    """What a user names may be a link, or the shell's `<(...)`."""
    path = tmp_path / "a.json"
    write_snapshot_file(str(path), SNAPSHOT, captured_at=AT, tool=TOOL)
    (tmp_path / "link").symlink_to(path)
    assert SNAPSHOT == read_snapshot_file(str(tmp_path / "link"))
    reader, writer = os.pipe()
    os.write(writer, path.read_bytes())
    os.close(writer)
    assert SNAPSHOT == read_snapshot_file(f"/dev/fd/{reader}")
    os.close(reader)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("none.json", "none.json: cannot be read (No such file or directory)."),
        (".", "a folder, expected a file."),
        ("/dev/zero", "/dev/zero: a device or pipe, expected a file."),
    ],
)
def test_snapshot_file_that_is_none_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, expected: str
) -> None:
    """Exit code 4 with the path as the user gave it."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        read_snapshot_file(path)
    assert str(caught.value).endswith(expected)
