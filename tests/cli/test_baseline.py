"""`envaudit diff --baseline`: a tag, one node, a file, the majority; what is new, and since when."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List, Sequence

import pytest

from envaudit.cli.since import with_since
from envaudit.model import Fingerprint, Snapshot
from envaudit.rules import Evidence, Policy, judge
from envaudit.store import Store
from tests.cases.nodes import USUAL, node, with_note
from tests.cli.conftest import Ended, Folder
from tests.cli.stored import store_snapshot, write_snapshot

NODES = ("n1", "n2", "n3")
MORNING, NOON, NIGHT = "2026-11-28T08:00:00Z", "2026-11-28T12:00:00Z", "2026-11-29T02:10:00Z"
NCCL = "libraries/nccl/version"
# What the tests' machine is excused from; some tests here are about just that.
OWN = "config/envaudit/envaudit.toml"


def fleet(**changed: Any) -> List[Fingerprint]:
    """Three healthy nodes; `n2={path: value}` changes one of them."""
    return [node(name, USUAL._replace(launch="exec"), changed.get(name)) for name in NODES]


def told(ended: Ended) -> List[Any]:
    """Severity, rule and nodes of each finding."""
    return [(each["severity"], each["rule"], each["nodes"]) for each in ended.findings]


def compared(folder: Folder, baseline: str, *more: str, nodes: str = "n[1-3]@latest") -> Ended:
    """The newest stored nodes against a baseline."""
    return folder.run("diff", nodes, "--baseline", baseline, *more, "--format", "json")


@pytest.fixture
def kept(folder: Folder) -> Folder:
    """A store with a good snapshot, then one in which n2 has another NCCL."""
    store_snapshot(folder.path, fleet(), captured_at=MORNING, tags=["good"])
    store_snapshot(folder.path, fleet(n2={NCCL: "2.27.3"}), captured_at=NOON)
    return folder


def launched(launch: str, **changed: Any) -> List[Fingerprint]:
    """The same nodes, read another way than the baseline was."""
    return [node(name, USUAL._replace(launch=launch), changed.get(name)) for name in NODES]


def test_what_belongs_to_a_launch_is_held_against_the_other_nodes_of_it(folder: Folder) -> None:
    """A baseline over ssh says nothing of a library that the loader of one node takes in a step of Slurm."""
    store_snapshot(folder.path, launched("ssh"), captured_at=MORNING, tags=["good"])
    store_snapshot(folder.path, launched("slurm"), captured_at=NOON)
    assert [] == [each for each in told(compared(folder, "good")) if each[0] != "info"]
    store_snapshot(folder.path, launched("slurm", n2={NCCL: "2.27.3"}), captured_at=NIGHT)
    both = folder.run("diff", "n[1-3]@good", "n[1-3]@latest", "--format", "json")
    for ended in (compared(folder, "good"), both):
        assert [("error", "EA214", ["n2"])] == [each for each in told(ended) if each[0] != "info"]


def test_difference_that_a_baseline_of_another_launch_has_too_is_none(folder: Folder) -> None:
    """It was accepted when the baseline was."""
    store_snapshot(folder.path, launched("ssh", n2={NCCL: "2.27.3"}), captured_at=MORNING, tags=["good"])
    store_snapshot(folder.path, launched("slurm", n2={NCCL: "2.27.3"}), captured_at=NOON)
    assert [] == [each for each in told(compared(folder, "good")) if each[0] != "info"]


@pytest.mark.parametrize("baseline", ["good", "n1@good", "n[1-3]@good", "majority"])
def test_baseline_of_each_form_names_the_node_that_left_it(kept: Folder, baseline: str) -> None:
    """One node is off, whoever says what is right."""
    ended = compared(kept, baseline)
    assert (1, [("error", "EA214", ["n2"])]) == (ended.code, told(ended))


def test_baseline_that_is_a_file_names_the_node_that_left_it(kept: Folder) -> None:
    """A snapshot of one node is the reference of all."""
    write_snapshot(kept.path / "golden.json", [node("golden", USUAL._replace(launch="exec"))])
    ended = compared(kept, "golden.json")
    assert (1, [("error", "EA214", ["n2"])]) == (ended.code, told(ended))


def test_all_nodes_that_left_their_baseline_together_are_named(kept: Folder) -> None:
    """Alike among each other, and not what they were: a majority would have said nothing."""
    store_snapshot(kept.path, fleet(**{name: {NCCL: "2.27.3"} for name in NODES}), captured_at=NIGHT)
    assert [("error", "EA214", list(NODES))] == told(compared(kept, "good"))
    assert [] == told(compared(kept, "majority"))


@pytest.mark.parametrize(
    ("baseline", "words"),
    [
        ("goood", ["no tag", "good"]),
        ("n9@good", ["n9"]),
        ("n[1-2]@good", ["holds 2 nodes"]),
        ("nowhere.json", ["nowhere.json"]),
    ],
)
def test_baseline_that_is_not_there_is_no_pass(kept: Folder, baseline: str, words: Sequence[str]) -> None:
    """A mistyped reference ends the command, and the nearest one is suggested."""
    ended = compared(kept, baseline)
    assert (True, "") == (ended.code in (2, 4), ended.out)
    for word in words:
        assert word in ended.err


def test_node_without_a_baseline_is_an_error_of_use(kept: Folder) -> None:
    """One node of several was never tagged: nothing is compared with nothing."""
    store_snapshot(kept.path, [*fleet(), node("n4", USUAL._replace(launch="exec"))], captured_at=NIGHT)
    ended = compared(kept, "good", nodes="n[1-4]@latest")
    assert (2, True) == (ended.code, "n4" in ended.err)


def test_node_of_two_references_with_a_baseline_is_an_error_of_use_that_says_why(kept: Folder) -> None:
    """One tag means one snapshot of a node; which of its two sides is meant nobody can tell."""
    ended = kept.run("diff", "n1@good", "n1@latest", "--baseline", "good")
    assert (2, "") == (ended.code, ended.out)
    assert "--baseline good: n1 is named twice, and has only one 'good'. Leave --baseline out" in ended.err


def test_finding_says_since_when_it_holds(kept: Folder) -> None:
    """The first snapshot that has what the node has now."""
    store_snapshot(kept.path, fleet(n2={NCCL: "2.27.3"}), captured_at=NIGHT)
    (finding,) = compared(kept, "good").findings
    assert NOON == finding["since"]
    shown = kept.run("diff", "n[1-3]@latest", "--baseline", "good")
    assert f"since {NOON}" in shown.out


def test_only_what_is_new_against_the_baseline_is_told(folder: Folder) -> None:
    """MIG was on when the baseline was taken; the driver has changed since."""
    slices = {"gpu/each/mig": "enabled", "gpu/each/mig_pending": "enabled"}
    before = fleet(**dict.fromkeys(NODES, slices))
    store_snapshot(folder.path, before, captured_at=MORNING, tags=["good"])
    now = fleet(n1=slices, n2=slices, n3={**slices, NCCL: "2.27.3"})
    store_snapshot(folder.path, now, captured_at=NOON)
    assert [("error", "EA214", ["n3"]), ("warning", "EA325", list(NODES))] == told(compared(folder, "good"))
    ended = compared(folder, "good", "--new-only")
    assert [("error", "EA214", ["n3"])] == told(ended)
    assert ["1 finding that the baseline had already"] == [
        stage["text"] for stage in ended.json["stages"] if stage["name"] == "known"
    ]


def test_old_fault_on_a_new_node_is_new(folder: Folder) -> None:
    """What one node had already is news of another."""
    slices = {"gpu/each/mig": "enabled", "gpu/each/mig_pending": "enabled"}
    store_snapshot(folder.path, fleet(n1=slices), captured_at=MORNING, tags=["good"])
    store_snapshot(folder.path, fleet(n1=slices, n2=slices), captured_at=NOON)
    ended = compared(folder, "good", "--new-only")
    assert {"n2"} == {name for finding in ended.findings for name in finding["nodes"]}
    assert 1 == ended.code


def test_new_only_without_a_baseline_is_an_error_of_use(kept: Folder) -> None:
    """New against what?"""
    ended = kept.run("diff", "n[1-3]@latest", "--new-only")
    assert (2, True) == (ended.code, "--new-only needs a baseline" in ended.err)


def test_baseline_of_nodes_that_do_not_answer_is_a_baseline(kept: Folder) -> None:
    """What is missing is the nodes: the option that is there is not asked for."""
    kept.set_node("n1", script="exit 1")
    ended = kept.ask("diff", "n1", "--baseline", "good", "--new-only")
    assert (3, "", True) == (ended.code, ended.err, "EA901" in ended.out)


@pytest.mark.parametrize("words", [("diff", "n1"), ("gate", "--nodes", "n1", "--no-check")])
def test_baseline_that_is_mistyped_is_told_before_any_node_is_asked(
    kept: Folder, words: Sequence[str]
) -> None:
    """Of nodes that do not answer it would have been told as the reference that was compared with."""
    kept.set_node("n1", script=f"touch {kept.path}/asked; exit 1")
    ended = kept.ask(*words, "--baseline", "goood")
    assert (2, "", True) == (ended.code, ended.out, "Did you mean 'good'?" in ended.err)
    assert not (kept.path / "asked").exists()


def test_baseline_of_a_role_is_its_own_nodes_past(tmp_path: Path) -> None:
    """A head without a GPU is held against itself, not against the workers."""
    folder = Folder(tmp_path)
    (tmp_path / "envaudit.toml").write_text('[roles.head]\nhosts = "head"\n')
    head = node("head", USUAL._replace(launch="exec", gpus=0))
    store_snapshot(tmp_path, [head, *fleet()], captured_at=MORNING, tags=["good"])
    store_snapshot(tmp_path, [head, *fleet(n1={"gpu/count": 7})], captured_at=NOON)
    ended = compared(folder, "good", nodes="head,n[1-3]@latest")
    assert [("error", "EA300", ["n1"])] == told(ended)


def test_what_could_not_be_examined_is_one_line_when_asked_for(kept: Folder) -> None:
    """Not in the usual answer, which is about what is wrong."""
    line = "unexamined ACS, "
    assert line.strip() not in kept.run("diff", "n[1-3]@good").out
    shown = kept.run("diff", "n[1-3]@good", "--verbose").out
    (told,) = [each for each in shown.splitlines() if each.startswith("unexamined ")]
    assert "ACS" in told
    assert "(needs root) on n[1-3]" in told


def full(free_bytes: int) -> List[Fingerprint]:
    """A node with so much space left in /tmp."""
    return [with_note(node("n1", USUAL._replace(launch="exec")), "limits", tmp_free_bytes=free_bytes)]


def test_finding_that_got_worse_is_new(folder: Folder) -> None:
    """A warning that somebody knew is no leave for the error that it became."""
    store_snapshot(folder.path, full(3 << 30), captured_at=MORNING, tags=["good"])
    (folder.path / OWN).unlink()
    store_snapshot(folder.path, full(2 << 30), captured_at=NOON)
    ended = compared(folder, "good", "--new-only", nodes="n1@latest")
    assert (0, []) == (ended.code, told(ended))
    store_snapshot(folder.path, full(10), captured_at=NIGHT)
    ended = compared(folder, "good", "--new-only", nodes="n1@latest")
    assert (1, [("error", "EA127", ["n1"])]) == (ended.code, told(ended))


def test_since_of_what_rests_on_notes_is_when_it_was_first_to_be_said(folder: Folder) -> None:
    """The mount of /tmp is what it always was; that it is full is new."""
    (folder.path / OWN).unlink()
    for free_bytes, at in ((99 << 30, MORNING), (3 << 30, NOON), (3 << 30, NIGHT)):
        store_snapshot(folder.path, full(free_bytes), captured_at=at, tags=["good"] if at == MORNING else [])
    (finding,) = compared(folder, "good", nodes="n1@latest").findings
    assert ("EA127", NOON) == (finding["rule"], finding["since"])


def test_since_reads_each_snapshot_once_however_many_nodes_it_names(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot of a thousand nodes takes a third of a second to read, and there are a thousand nodes."""
    nodes = [node(f"m{number}") for number in range(20)]
    full = [with_note(each, "limits", tmp_free_bytes=1 << 30) for each in nodes]
    for at in (MORNING, NOON, NIGHT):
        store_snapshot(folder.path, full, captured_at=at)
    store = Store(str(folder.path / ".envaudit"))
    read: List[str] = []

    def load(name: str) -> Snapshot:
        read.append(name)
        return Store.load(store, name)

    monkeypatch.setattr(store, "load", load)
    found = judge(Evidence(tuple(full), comparing=False))
    assert {MORNING} == {each.since for each in with_since(found, full, store, Policy())}
    assert 3 == len(read)
