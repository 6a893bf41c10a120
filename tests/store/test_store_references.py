"""References: tags, times and `latest`, and what is said when there is none."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Iterator

import pytest

from envaudit.errors import InputError, UsageError
from envaudit.store import Store
from tests.store.snapshots import TOOL, keep, snapshot_of, value_of


@pytest.fixture
def filled(store: Store) -> Store:
    """Four runs: both nodes at 9, node01 at 10 (tagged) and 11, node02 at 12."""
    keep(store, 9, at="2026-11-30T09:00:00Z", tags=["first"])
    keep(store, 10, at="2026-11-30T10:00:30Z", nodes=["node01"], tags=["good"])
    keep(store, 11, at="2026-11-30T11:00:00Z", nodes=["node01"])
    keep(store, 12, at="2026-11-30T12:00:00Z", nodes=["node02"])
    return store


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A zone one hour ahead of UTC in winter, two in summer."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("node", "reference", "expected"),
    [
        ("node01", "good", 10),
        ("node01", "first", 9),
        ("node01", "latest", 11),
        ("node02", "latest", 12),
        ("node01", "2026-11-30T09:30Z", 9),
        ("node01", "2026-11-30T10:00:29Z", 9),
        ("node01", "2026-11-30T10:00:30Z", 10),
        ("node01", "2026-11-30T10:00:30.5Z", 10),
        ("node01", "2026-11-30T10:00Z", 10),
        ("node01", "2026-11-30T09:59Z", 9),
        ("node01", "2026-11-30 11:00Z", 11),
        ("node01", "2026-11-30Z", 11),
        ("node02", "2026-11-30T11:59:59Z", 9),
        ("node02", "2027-01-01Z", 12),
    ],
)
def test_reference_of_a_node_means_one_snapshot(
    filled: Store, node: str, reference: str, expected: int
) -> None:
    """A tag's own, the newest that has the node, or the newest that is not later."""
    assert expected == value_of(filled, node, reference)


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("2026-11-30T10:59:59", 9),
        ("2026-11-30T11:00", 10),
        ("2026-11-30T12:00:00", 11),
        ("2026-11-30", 11),
        ("2026-11-30T11:00Z", 11),
    ],
)
def test_time_without_z_is_local(filled: Store, reference: str, expected: int) -> None:
    """Ten o'clock in UTC is eleven o'clock on the wall."""
    assert expected == value_of(filled, "node01", reference)


@pytest.mark.usefixtures("berlin")
def test_time_in_summer_counts_its_own_hour(store: Store) -> None:
    """The offset is that of the day in question, not of today."""
    keep(store, 1, at="2026-07-01T10:00:00Z")
    assert 1 == value_of(store, "node01", "2026-07-01T12:00")
    with pytest.raises(UsageError, match="no snapshot as old as"):
        store.resolve_many(["node01"], "2026-07-01T11:59")


@pytest.mark.parametrize(
    ("node", "reference", "expected"),
    [
        ("node01", "god", "no tag 'god' in the store ({path}). Did you mean 'good'?"),
        ("node01", "zzz", "no tag 'zzz' in the store ({path}). Its tags are first, good."),
        ("node01", "lates", "no tag 'lates' in the store ({path}). Did you mean 'latest'?"),
        (
            "node02",
            "good",
            "node02: no tag 'good' on this node (node01 has it). Did you mean 'node01'? "
            "If not, give it one: envaudit baseline accept --from 'node02@latest' --tag good.",
        ),
        (
            "node03",
            "first",
            "node03: no tag 'first' on this node (node[01-02] have it). Did you mean 'node02'? "
            "If not, give it one: envaudit baseline accept --from 'node03@latest' --tag first.",
        ),
        (
            "node03",
            "latest",
            "node03: no snapshot in the store ({path}). Did you mean 'node02'? "
            "If not, run 'envaudit snapshot --nodes' for it first.",
        ),
        (
            "zz",
            "latest",
            "zz: no snapshot in the store ({path}). Run 'envaudit snapshot --nodes' for it first.",
        ),
        (
            "node01",
            "2026-11-29",
            "node01: no snapshot as old as 2026-11-29. The oldest one of node01 is of 2026-11-30T09:00:00Z.",
        ),
    ],
)
def test_unknown_reference_suggests_the_nearest(
    filled: Store, node: str, reference: str, expected: str
) -> None:
    """Never an empty pass: exit code 2, and what was probably meant."""
    with pytest.raises(UsageError) as caught:
        filled.resolve_many([node], reference)
    assert expected.format(path=filled.path) == str(caught.value).replace("node01'?", "node01'?")
    assert 2 == caught.value.exit_code


def test_oldest_snapshot_of_an_impossible_time_is_named_as_it_is(store: Store) -> None:
    """A store can come from a repository under test, and a file in it may have any name."""
    keep(store, 1, at="2026-99-99T99:99:99Z")
    with pytest.raises(UsageError, match="The oldest one of node01 is of 2026-99-99T99:99:99Z"):
        store.resolve_many(["node01"], "2026-11-29")


def test_tag_that_no_node_got_is_not_suggested(store: Store) -> None:
    """Where no node answered to be tagged, the tag's folder alone is there."""
    keep(store, 1, nodes=[], tags=["good"])
    keep(store, 2)
    with pytest.raises(UsageError, match=r"no tag 'good' in the store .* It has no tags yet"):
        store.resolve_many(["node01"], "good")


@pytest.mark.parametrize(
    "reference",
    ["9", "2026", "2026-13-01", "2026-11-30T25:00", "0001-01-01", "9999-12-31", "2026-11-30T1:00", ""],
)
def test_reference_that_is_no_time_is_refused(filled: Store, reference: str) -> None:
    """Something that is neither a tag nor a time, nor one that a calendar has."""
    with pytest.raises(UsageError):
        filled.resolve_many(["node01"], reference)


@pytest.mark.parametrize("reference", ["latest", "good", "2026-11-30"])
def test_empty_store_says_how_to_fill_it(store: Store, reference: str) -> None:
    """The first command of a new user tells the second one."""
    with pytest.raises(UsageError, match=r"no snapshot yet\. Run 'envaudit snapshot' first"):
        store.resolve_many(["node01"], reference)


def test_snapshot_of_a_clock_that_was_ahead_is_not_the_latest(store: Store) -> None:
    """What was taken since is newer; where nothing was, it is better than none."""
    keep(store, 99, at="2999-01-01T00:00:00Z", nodes=["node01", "node02"])
    keep(store, 11, at="2020-11-30T11:00:00Z", nodes=["node01"])
    assert [11, 99] == [value_of(store, node, "latest") for node in ("node01", "node02")]


def test_snapshot_of_a_clock_a_little_ahead_is_the_latest(store: Store) -> None:
    """Machines that share a store are seconds apart."""
    keep(store, 13, at="2020-11-30T13:00:00Z")
    keep(store, 14, at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 60)))
    assert 14 == value_of(store, "node01", "latest")


def test_many_nodes_are_resolved_at_once(filled: Store) -> None:
    """In the order that was asked for, from as many snapshots as it takes."""
    found = filled.resolve_many(["node02", "node01"], "latest")
    assert ["node02", "node01"] == list(found)
    assert [12, 11] == [one.sections["host"].facts["value"] for one in found.values()]


def test_many_unknown_nodes_are_told_in_one_line(filled: Store) -> None:
    """Sixteen nodes without a snapshot are one message, folded."""
    with pytest.raises(UsageError, match=r"^new\[01-16\]: no snapshot in the store"):
        filled.resolve_many([*(f"new{number:02d}" for number in range(1, 17)), "node01"], "latest")


def test_node_that_did_not_answer_last_time_has_its_older_snapshot(filled: Store) -> None:
    """A run in which a node was missing holds no snapshot of it."""
    snapshot = snapshot_of(["node02"], 13, missing=["node01"])
    filled.write(snapshot, captured_at="2026-11-30T13:00:00Z", tool=TOOL, host="login")
    assert (11, 13) == (value_of(filled, "node01", "latest"), value_of(filled, "node02", "latest"))


def test_tag_that_moved_means_the_new_snapshot(filled: Store) -> None:
    """A tag can be set again, for one node or for all."""
    newest = filled.entries()[-2].name
    filled.tag("good", "node01", newest)
    assert 11 == value_of(filled, "node01", "good")
    assert {"node01": newest} == filled.tags()["good"]


@pytest.mark.parametrize(
    "tag", ["latest", "", "1st", "-x", "..", "../x", "a/b", "a b", "ä", "a" * 101, "a\n"]
)
def test_tag_of_another_shape_is_refused(filled: Store, tag: str) -> None:
    """A tag is a folder's name: it cannot be a path, a time, or the built-in one."""
    name = filled.entries()[0].name
    before = filled.tags()
    with pytest.raises(UsageError):
        filled.tag(tag, "node01", name)
    with pytest.raises(UsageError):
        keep(filled, 99, tags=["fine", tag])
    assert before == filled.tags()
    assert 4 == len(filled.entries())


@pytest.mark.parametrize("tag", ["a", "Good", "v1.2", "a..b", "a-b_c", "a" * 100])
def test_tag_of_the_right_shape_is_kept(filled: Store, tag: str) -> None:
    """Dots inside a name are no path."""
    filled.tag(tag, "node01", filled.entries()[0].name)
    assert 9 == value_of(filled, "node01", tag)


def test_tag_for_a_node_that_the_snapshot_lacks_is_refused(filled: Store) -> None:
    """A tag never promises what its snapshot does not hold."""
    newest = filled.entries()[-1].name
    with pytest.raises(UsageError, match=r"^node01: not in the snapshot .* Did you mean 'node02'"):
        filled.tag("good", "node01", newest)
    assert 10 == value_of(filled, "node01", "good")


def test_tag_of_a_broken_snapshot_is_refused(filled: Store) -> None:
    """A tag never names a snapshot that is not whole."""
    newest = filled.entries()[-1].name
    Path(filled.path, "snapshots", newest).write_bytes(b"")
    with pytest.raises(InputError, match="the file is empty"):
        filled.tag("good", "node02", newest)
    assert {"node01"} == set(filled.tags()["good"])


@pytest.mark.parametrize("content", [b"", b"../../etc/passwd", b"x" * 10_000, b"\xff\n", b"a\nb\n"])
def test_tag_file_that_names_no_snapshot_is_told(filled: Store, content: bytes) -> None:
    """A tag's content is checked before it becomes part of a path."""
    path = Path(filled.path, "tags", "good", "node01")
    path.write_bytes(content)
    with pytest.raises(InputError, match="does not hold the name of a snapshot"):
        filled.resolve_many(["node01"], "good")
    assert [(str(path), "does not hold the name of a snapshot")] == [tuple(one) for one in filled.verify()]
    assert {"first"} == set(filled.tags())


def test_tag_that_leads_nowhere_is_told(filled: Store) -> None:
    """Its snapshot was removed by other means than prune."""
    name = filled.tags()["good"]["node01"]
    os.unlink(os.path.join(filled.path, "snapshots", name))
    with pytest.raises(InputError, match=f"{name}: cannot be read"):
        filled.resolve_many(["node01"], "good")
    assert [f"leads to {name}, which does not exist"] == [problem.text for problem in filled.verify()]


def test_tag_set_by_hand_for_another_node_is_told(filled: Store) -> None:
    """A snapshot that does not hold the node."""
    newest = filled.entries()[-1].name
    Path(filled.path, "tags", "good", "node01").write_text(f"{newest}\n")
    with pytest.raises(InputError, match=r"does not hold node01\. Tag node01 again"):
        filled.resolve_many(["node01"], "good")
    assert [f"leads to {newest}, which does not hold node01"] == [one.text for one in filled.verify()]


def test_strange_things_among_tags_are_told_and_left(filled: Store) -> None:
    """Names that no tag and no node can have."""
    tags = Path(filled.path, "tags")
    (tags / "latest").mkdir()
    (tags / "file").write_text("x")
    (tags / "1st").mkdir()
    (tags / "good" / "-oProxyCommand=x").write_text("x")
    texts = {os.path.relpath(one.path, tags): one.text for one in filled.verify()}
    assert {
        "latest": "not the folder of a tag",
        "file": "not the folder of a tag",
        "1st": "not the folder of a tag",
        "good/-oProxyCommand=x": "not named after a node",
    } == texts
    assert (10, {"first", "good"}) == (value_of(filled, "node01", "good"), set(filled.tags()))


def test_history_of_a_node_is_in_the_order_of_time(filled: Store) -> None:
    """Only runs that hold the node, with its digest and its tags."""
    history = filled.history("node01")
    assert [("first",), ("good",), ()] == [entry.tags_of("node01") for entry in history]
    assert 3 == len({entry.nodes["node01"] for entry in history})
    assert sorted(entry.captured_at for entry in history) == [entry.captured_at for entry in history]


def test_history_of_an_unknown_node_suggests_the_nearest(filled: Store) -> None:
    """A typing error is no empty history."""
    with pytest.raises(UsageError, match="Did you mean 'node02'"):
        filled.history("nod02")
