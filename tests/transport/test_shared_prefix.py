"""Who reads a shared environment, what the others get of it, and what they never get."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest
from ClusterShell.Task import task_self

from envaudit.model.fingerprint import Fingerprint, Missing, Snapshot
from envaudit.model.section import Section
from envaudit.probe.stamp import LEFT, NOTE, OPTION
from envaudit.transport import Request
from envaudit.transport.pacing import spread_s, start_all
from envaudit.transport.sharing import Sharing, first_round, later_round

FACTS = {"packages": {"zlib": {"version": "1.3"}}}
Read = Callable[[str, str], "Section | None"]


def note(stamp: str) -> dict[str, str]:
    """What a node says of its environment."""
    return {"filesystem": "nfs4", "source": "filer:/export", "path": "/envs/train", "stamp": stamp}


def left(stamp: str, name: str = "conda") -> Section:
    """A section that a node left to another."""
    return Section(name, 1, "error", {}, {NOTE: note(stamp)}, (LEFT,))


def whole(stamp: str, name: str = "conda", **changes: Any) -> Section:
    """A section that a node has read."""
    row = {"status": "ok", "facts": FACTS, "notes": {NOTE: note(stamp)}, "errors": (), **changes}
    return Section(name=name, schema=1, **row)


def one_node(node: str, *sections: Section) -> Fingerprint:
    """A node's fingerprint."""
    return Fingerprint(node, "probe", "2026-11-30T10:00:00Z", "0", {each.name: each for each in sections})


def play(first: Iterable[Fingerprint], read: Read) -> tuple[Snapshot, list[list[str]]]:
    """All rounds; `read(node, section)` is a reader's answer, None where it does not answer."""
    sharing = Sharing(Snapshot(tuple(first)))
    rounds = []
    while readers := sharing.next_readers():
        rounds.append(readers)
        answers = {node: [read(node, name) for name in sharing.sections] for node in readers}
        gone = {node: Missing("timeout", "no answer in 60 s") for node in readers if None in answers[node]}
        sharing.take(
            Snapshot(
                tuple(one_node(node, *filter(None, answers[node])) for node in readers if node not in gone),
                gone,
            )
        )
    return sharing.snapshot(), rounds


def never(node: str, name: str) -> Section | None:
    """No reader is asked."""
    raise AssertionError(f"{node} is asked for {name}")


def test_reader_of_the_first_round_is_enough_where_all_see_the_same() -> None:
    """No second connection: the others' sections have its facts, its digest, and its name in a note."""
    snapshot, rounds = play(
        [one_node("n1", whole("a")), one_node("n2", left("a")), one_node("n3", left("a"))], never
    )
    assert [] == rounds
    one, two, three = (each.sections["conda"] for each in snapshot.fingerprints)
    assert 1 == len({each.digest for each in snapshot.fingerprints})
    assert (one.facts, one.status) == (two.facts, two.status) == (three.facts, three.status)
    assert ["n1", "n1"] == [each.notes[NOTE]["read_by"] for each in (two, three)]  # type: ignore[index,call-overload]
    assert "read_by" not in one.notes[NOTE]  # type: ignore[operator]


def test_nodes_on_local_disks_need_no_second_round() -> None:
    """Who has nothing to leave has read everything."""
    local = [one_node(f"n{number}", whole("a", notes={})) for number in range(3)]
    snapshot, rounds = play(local, never)
    assert ([], tuple(local)) == (rounds, snapshot.fingerprints)


def test_stale_node_reads_for_itself() -> None:
    """Another stamp is another state: what it reads is its own, and a drift shows."""
    other = {"packages": {"zlib": {"version": "1.2"}}}
    snapshot, rounds = play(
        [one_node("n1", whole("a")), one_node("n2", left("b")), one_node("n3", left("a"))],
        lambda node, name: whole("b", facts=other),
    )
    assert [["n2"]] == rounds
    assert [FACTS, other, FACTS] == [each.sections["conda"].facts for each in snapshot.fingerprints]


def test_one_node_of_each_environment_reads_in_the_second_round() -> None:
    """Two environments on one server, and the first node has neither."""
    first = [one_node("n0", whole("a", notes={}))]
    first += [one_node(f"n{number}", left("ab"[number % 2])) for number in range(1, 7)]
    snapshot, rounds = play(first, lambda node, name: whole("ab"[int(node[1:]) % 2]))
    assert [["n1", "n2"]] == rounds
    assert {"ok"} == {each.sections["conda"].status for each in snapshot.fingerprints}


def test_reader_that_does_not_answer_is_followed_by_the_next() -> None:
    """Its own section stays unknown; the rest is read."""
    first = [one_node(f"n{number}", left("a")) for number in (1, 2, 3)]
    snapshot, rounds = play(first, lambda node, name: None if node == "n1" else whole("a"))
    assert [["n1"], ["n2"]] == rounds
    assert ["ok", "ok", "ok"] == [each.sections["conda"].status for each in snapshot.fingerprints]


@pytest.mark.parametrize(
    "answer",
    [None, left("a"), whole("a", status="error", facts={}, errors=("Input/output error",))],
    ids=["silent", "leaves it", "fails"],
)
def test_environment_that_three_readers_failed_at_is_unknown_everywhere(answer: Section | None) -> None:
    """Never silently fine, and never asked of a thousand nodes in turn."""
    first = [one_node(f"n{number}", left("a")) for number in range(1, 8)]
    snapshot, rounds = play(first, lambda node, name: answer)
    assert [["n1"], ["n2"], ["n3"]] == rounds
    sections = [each.sections["conda"] for each in snapshot.fingerprints]
    assert {("error", ())} == {(each.status, tuple(each.facts)) for each in sections}
    assert "asked were n1 (" in sections[-1].errors[0]


def test_partial_reading_is_taken_with_its_faults() -> None:
    """What the reader could not read is unknown on all."""
    torn = whole("a", status="partial", errors=("zlib.json: not a record",))
    snapshot, _ = play([one_node("n1", torn), one_node("n2", left("a"))], never)
    two = snapshot.by_node["n2"].sections["conda"]
    assert ("partial", torn.errors, torn.digest) == (two.status, two.errors, two.digest)


def test_environment_that_changes_meanwhile_is_not_taken_for_its_old_state() -> None:
    """The reader saw another state than those that wait: the next reads, here with the old stamp."""
    first = [one_node("n1", left("a")), one_node("n2", left("a"))]
    snapshot, rounds = play(first, lambda node, name: whole({"n1": "b", "n2": "a"}[node]))
    assert [["n1"], ["n2"]] == rounds
    assert "read_by" not in snapshot.by_node["n2"].sections["conda"].notes[NOTE]  # type: ignore[operator]


def test_editable_packages_are_read_on_every_node() -> None:
    """The checkout behind one may lie on each node's own disk, at another commit."""
    facts = {"distributions": {"ours": {"version": "1", "editable": True, "commit": "abc"}}}
    first = [one_node("n1", whole("a", "packages", facts=facts))]
    first += [one_node(f"n{number}", left("a", "packages"), left("a")) for number in (2, 3)]
    first[0] = one_node("n1", *first[0].sections.values(), whole("a"))
    own = {"distributions": {"ours": {"version": "1", "editable": True, "commit": "def"}}}
    snapshot, rounds = play(first, lambda node, name: whole("a", name, facts=own))
    assert [["n2", "n3"]] == rounds
    commits = [each.sections["packages"].facts for each in snapshot.fingerprints]
    assert [facts, own, own] == commits
    assert [FACTS] * 3 == [each.sections["conda"].facts for each in snapshot.fingerprints]


def test_node_that_lies_about_its_stamp_changes_no_other_node() -> None:
    """It gets what the reader read, as if it had said so itself; the others are as without it."""
    honest = [one_node("n1", whole("a")), one_node("n2", left("a"))]
    alone, _ = play(honest, never)
    beside, _ = play([*honest, one_node("liar", left("a"))], never)
    assert alone.fingerprints == beside.fingerprints[:2]


@pytest.mark.parametrize(
    "garbage", [None, "nfs", [], {}, {"source": 1, "path": [], "stamp": {}}, {"source": "x" * 60000}]
)
def test_garbage_in_the_place_of_a_stamp_stays_an_error(garbage: Any) -> None:
    """Nobody is asked for it, nothing is taken for it."""
    row = Section("conda", 1, "error", {}, {NOTE: garbage}, (LEFT,))
    snapshot, rounds = play([one_node("n1", whole("a")), one_node("n2", row)], never)
    assert ([], "error") == (rounds, snapshot.by_node["n2"].sections["conda"].status)


def test_requests_of_the_rounds_tell_each_node_its_part() -> None:
    """One reads, the others wait; through gateways, which tell all the same, all wait at first."""
    request = Request(also=("files",), options={"integrity": "size"})
    first = first_round(request, "n1")
    parts = [first(node, tree).options[OPTION] for tree in (False, True) for node in ("n1", "n2")]
    assert ["lead", "wait", "wait", "wait"] == parts
    later = later_round(request, ("conda",))
    assert (("conda",), (), {"integrity": "size", OPTION: "lead"}) == (
        later.sections,
        later.also,
        dict(later.options),
    )


@pytest.mark.parametrize(("count", "seconds"), [(1, 0), (64, 0), (65, 0.13), (1000, 2), (5000, 2)])
def test_spread_of_many_starts_is_bounded(count: int, seconds: float) -> None:
    """Few nodes pay nothing, thousands two seconds."""
    assert pytest.approx(seconds) == spread_s(count)


def test_many_nodes_start_one_after_the_other() -> None:
    """A hundred starts take their fifth of a second, evenly."""
    task = task_self()
    times: list[float] = []
    start_all(task, [lambda: times.append(time.monotonic())] * 100)
    assert [] == times
    task.resume(timeout=20)
    assert 100 == len(times)
    assert 0.15 < times[-1] - times[0] < 5
    assert times[49] - times[0] > 0.05


@pytest.mark.parametrize("count", [1000, 2000, 5001])
def test_thousands_of_nodes_are_all_started(count: int) -> None:
    """Where all were a millisecond apart or less, none but the first was started at all."""
    task = task_self()
    started: list[int] = []
    start_all(task, [partial(started.append, number) for number in range(count)])
    task.resume(timeout=60)
    assert list(range(count)) == started
