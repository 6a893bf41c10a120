"""`envaudit baseline accept`: a look at what changes, then the tag moves, or nothing happens."""

from __future__ import annotations

from typing import List

import pytest

from envaudit.cli import baseline
from envaudit.cli.main import parser_of
from envaudit.model import Fingerprint
from envaudit.store.snapshot_file import read_document
from tests.cases.nodes import USUAL, node
from tests.cli.conftest import Ended, Folder
from tests.cli.stored import store_snapshot

EARLY, LATE = "2026-11-28T08:00:00Z", "2026-11-28T12:00:00Z"


def pair(nccl: str) -> List[Fingerprint]:
    """Two nodes with some NCCL."""
    return [
        node(name, USUAL._replace(launch="exec"), {"libraries/nccl/version": nccl}) for name in ("n1", "n2")
    ]


@pytest.fixture
def updated(folder: Folder) -> Folder:
    """Nodes that have a baseline and were updated since."""
    store_snapshot(folder.path, pair("2.26.2"), captured_at=EARLY, tags=["good"])
    store_snapshot(folder.path, pair("2.27.3"), captured_at=LATE)
    return folder


def against_good(folder: Folder) -> Ended:
    """The newest snapshot against the tag."""
    return folder.run("diff", "n[1-2]@latest", "--baseline", "good")


def test_accept_shows_the_change_and_moves_the_tag_when_told_yes(updated: Folder) -> None:
    """Both numbers, one finding, and what was an error is the baseline then."""
    assert 1 == against_good(updated).code
    ended = updated.run("baseline", "accept", "--from", "n[1-2]@latest", "--yes")
    assert 0 == ended.code
    for word in ("EA214", "2.26.2", "2.27.3", "good", "difference"):
        assert word in ended.out
    assert "n[1-2]@good is what n[1-2]@latest was" in ended.err
    assert 0 == against_good(updated).code


def test_accept_without_yes_changes_nothing(updated: Folder) -> None:
    """Not on a terminal: shown, refused, and the tag stays where it was."""
    ended = updated.run("baseline", "accept", "--from", "n[1-2]@latest")
    assert (2, True, True) == (ended.code, "EA214" in ended.out, "--yes" in ended.err)
    assert 1 == against_good(updated).code


def test_accept_of_nodes_without_a_baseline_makes_one(updated: Folder) -> None:
    """The first baseline has nothing to differ from, and another tag is another baseline."""
    ended = updated.run("baseline", "accept", "--from", "n1@latest", "--tag", "tested", "--yes")
    assert (0, True) == (ended.code, "no baseline before" in ended.out)
    assert 0 == updated.run("diff", "n1@latest", "--baseline", "tested").code
    assert 2 == updated.run("diff", "n2@latest", "--baseline", "tested").code


def test_accept_of_many_nodes_reads_their_snapshot_as_often_as_of_two(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of a thousand nodes that is read a thousand times takes a minute."""
    reads: List[str] = []

    def counted(path: str) -> bytes:
        reads.append(path)
        return read_document(path)

    monkeypatch.chdir(folder.path)
    monkeypatch.setenv("XDG_CONFIG_HOME", folder.environment["XDG_CONFIG_HOME"])
    monkeypatch.setattr("envaudit.store.store.read_document", counted)
    often = []
    for count in (2, 20):
        store_snapshot(folder.path, [node(f"n{number}", USUAL) for number in range(count)])
        reads.clear()
        words = ["accept", "--from", f"n[0-{count - 1}]@latest", "--tag", f"of-{count}", "--yes"]
        assert 0 == baseline.execute(parser_of("baseline").parse_args(words))
        often.append(len(reads))
    assert 0 < often[0] == often[1]


def test_accept_says_what_is_wrong_with_the_new_baseline(folder: Folder) -> None:
    """Whoever accepts a fault does it knowingly."""
    mixed = [
        pair("2.26.2")[0],
        node("n2", USUAL._replace(launch="exec"), {"gpu/each/remapped_failure": True}),
    ]
    store_snapshot(folder.path, mixed, captured_at=EARLY)
    ended = folder.run("baseline", "accept", "--from", "n[1-2]@latest", "--yes")
    assert (0, True) == (ended.code, "EA352" in ended.out)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--from", "n[1-2]"), "names no stored snapshot"),
        (("--from", "a.json"), "names no stored snapshot"),
        (("--from", "n9@latest"), "n9"),
        (("--from", "n1@latest", "--tag", "../up"), "tag"),
        (("--from", "n1@latest", "--tag", "latest"), "latest"),
        ((), "--from"),
    ],
)
def test_accept_of_what_is_not_stored_is_an_error_of_use(
    updated: Folder, words: List[str], said: str
) -> None:
    """2, and no tag was written."""
    ended = updated.run("baseline", "accept", *words, "--yes")
    assert (2, True) == (ended.code, said in ended.err)
    assert ["good"] == sorted(each.name for each in (updated.path / ".envaudit" / "tags").iterdir())
