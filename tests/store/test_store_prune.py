"""Pruning: what goes, what stays, and what happens while somebody writes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, List, Set, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envaudit.errors import InputError, UsageError
from envaudit.store import Store, files, tags, upkeep
from envaudit.store import store as store_module
from tests.store.snapshots import TOOL, keep, snapshot_of, value_of


def _names(store: Store) -> List[str]:
    return [entry.name for entry in store.entries()]


def test_prune_keeps_the_newest_of_each_node(store: Store) -> None:
    """A node that was last seen long ago keeps its last snapshots too."""
    rare = keep(store, 0, nodes=["node09"], at="2026-01-01T00:00:00Z")
    many = [keep(store, hour, at=f"2026-11-30T{hour:02d}:00:00Z") for hour in range(6)]
    assert many[:4] == store.prune(2)
    assert [rare, *many[4:]] == _names(store)
    assert [] == store.prune(2)
    assert [] == store.verify()


def test_prune_keeps_what_any_tag_needs(store: Store) -> None:
    """One tag on one of its nodes is enough."""
    tagged = keep(store, 0, at="2026-11-30T01:00:00Z")
    store.tag("good", "node02", tagged)
    free = keep(store, 1, at="2026-11-30T02:00:00Z")
    newest = keep(store, 2, at="2026-11-30T03:00:00Z")
    assert [free] == store.prune(1)
    assert [tagged, newest] == _names(store)
    store.tag("good", "node02", newest)
    assert [tagged] == store.prune(1)


def test_prune_counts_no_snapshot_of_a_clock_that_was_ahead(store: Store) -> None:
    """It stays, and keeps none that was taken since from staying."""
    old = keep(store, 0, at="2026-11-30T01:00:00Z")
    newest = keep(store, 1, at="2026-11-30T02:00:00Z")
    ahead = keep(store, 2, at="2027-11-30T01:30:00Z")
    assert [old] == store.prune(1, now="2026-11-30T02:00:00Z")
    assert [newest, ahead] == _names(store)


def test_prune_leaves_a_file_that_cannot_be_read(store: Store) -> None:
    """What is broken may still be somebody's only copy."""
    broken = Path(store.path, "snapshots", keep(store, 0, at="2026-11-30T01:00:00Z"))
    broken.write_bytes(b"")
    keep(store, 1, at="2026-11-30T02:00:00Z")
    keep(store, 2, at="2026-11-30T03:00:00Z")
    assert 1 == len(store.prune(1))
    assert broken.exists()


def test_prune_with_a_tag_that_cannot_be_read_removes_nothing(store: Store) -> None:
    """Nobody knows which snapshot it needs."""
    keep(store, 0, at="2026-11-30T01:00:00Z", tags=["good"])
    keep(store, 1, at="2026-11-30T02:00:00Z")
    Path(store.path, "tags", "good", "node01").write_text("?")
    with pytest.raises(InputError, match=r"tags/good/node01.*nothing was pruned"):
        store.prune(1)
    assert 2 == len(_names(store))


@pytest.mark.parametrize("keep_", [0, -1])
def test_prune_that_keeps_nothing_is_refused(store: Store, keep_: int) -> None:
    """A store that forgets every node is removed with rm."""
    keep(store)
    with pytest.raises(UsageError, match="at least 1"):
        store.prune(keep_)
    assert 1 == len(_names(store))


def test_prune_of_a_run_without_answers_removes_it(store: Store) -> None:
    """It is the newest snapshot of no node."""
    store.write(snapshot_of([], missing=["node01"]), captured_at="2026-11-30T10:00:00Z", tool=TOOL, host="h")
    assert 1 == len(store.prune(1))


# Syncing to a disk that others use takes as long as it takes.
@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.sets(st.sampled_from("abc"), min_size=1), st.booleans()), max_size=6),
    st.integers(1, 3),
)
def test_prune_never_loses_a_needed_snapshot(runs: List[Tuple[Set[str], bool]], keep_: int) -> None:
    """For any runs: each node keeps its newest, each tag its snapshot, and nothing else stays."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        names = []
        for hour, (nodes, tagged) in enumerate(runs):
            tags = [f"t{hour}"] if tagged else []
            names.append(
                keep(store, hour, nodes=sorted(nodes), at=f"2026-11-30T{hour:02d}:00:00Z", tags=tags)
            )
        needed = {name for name, (_, tagged) in zip(names, runs) if tagged}
        for node in "abc":
            needed.update([name for name, (nodes, _) in zip(names, runs) if node in nodes][-keep_:])
        removed = store.prune(keep_)
        assert needed == set(_names(store))
        assert set(names) - needed == set(removed)


def test_prune_met_by_a_tag_after_its_last_look_gives_the_file_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tag comes when the file is already out of the way: it returns under its name."""
    old = keep(store, "old", at="2026-11-30T01:00:00Z")
    keep(store, "new", at="2026-11-30T02:00:00Z")
    tag_file = Path(store.path, "tags", "good", "node01")

    def hide_and_tag(path: str) -> str:
        aside = files.hide(path)
        tag_file.parent.mkdir()
        tag_file.write_text(f"{old}\n")
        return aside

    monkeypatch.setattr(upkeep, "hide", hide_and_tag)
    assert [] == store.prune(1)
    assert "old" == value_of(store, "node01", "good")
    assert [] == store.verify()


def test_tag_met_by_a_prune_keeps_its_snapshot(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file goes between the tag's first look and its writing: it is written again."""
    old = keep(store, "old", at="2026-11-30T01:00:00Z")
    keep(store, "new", at="2026-11-30T02:00:00Z")

    def prune_first(*arguments: Any) -> None:
        assert [old] == store.prune(1)
        monkeypatch.undo()
        tags.write_tags(*arguments)

    monkeypatch.setattr(store_module, "write_tags", prune_first)
    store.tag("good", "node01", old)
    assert "old" == value_of(store, "node01", "good")
    assert [] == store.verify()


def test_prune_beside_a_tagging_writer_loses_no_tagged_snapshot(store: Store) -> None:
    """Two processes for a while: every tag leads to a whole snapshot all the time."""
    script = os.path.join(os.path.dirname(__file__), "writing_process.py")
    command = [sys.executable, script, store.path, "0", "0", "good"]
    removed = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        end_s = time.monotonic() + 2
        while time.monotonic() < end_s:
            removed += len(store.prune(1))
            assert isinstance(value_of(store, "node01", "good"), int)
        writer.kill()
        writer.stdout.read()
    assert removed > 10
    assert all("left by a writer" in problem.text for problem in store.verify())
