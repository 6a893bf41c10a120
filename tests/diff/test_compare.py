"""Nodes against each other: what is drift, on whom, measured against what."""

from __future__ import annotations

import pytest

from envaudit.diff import compare
from envaudit.diff.sides import section_sides
from envaudit.errors import UsageError
from envaudit.model import Drift, Group, Section
from tests.diff.nodes import fingerprint, training_node

RING = {"value": "Ring", "origin": "environment"}


def test_compare_equal_nodes_gives_no_drift() -> None:
    """Healthy nodes that are alike raise nothing."""
    assert () == compare([training_node(f"node{number:02d}") for number in range(1, 9)])


def test_compare_one_node_or_none_gives_no_drift() -> None:
    """There is nothing to differ from; that this is no pass is for EA904 to say."""
    assert () == compare([]) == compare([training_node("node01")])


def test_compare_one_of_three_differs_names_it_against_the_majority() -> None:
    """A strict majority is the reference and stands first."""
    nodes = [training_node("a"), training_node("b", nccl="2.20.5"), training_node("c")]
    expected = Drift(
        path="libraries/nccl/version",
        kind="changed",
        groups=(Group("2.21.5", ("a", "c")), Group("2.20.5", ("b",))),
        reference=("a", "c"),
        basis="majority 2/3",
    )
    assert (expected,) == compare(nodes)
    assert ("b",) == expected.outliers


def test_compare_two_nodes_that_differ_have_no_reference() -> None:
    """One against one is a tie: neither is right by number."""
    (drift,) = compare([training_node("b", nccl="2.20.5"), training_node("a")])
    assert ("none", (), "changed") == (drift.basis, drift.reference, drift.kind)
    assert (Group("2.21.5", ("a",)), Group("2.20.5", ("b",))) == drift.groups
    assert ("a", "b") == drift.outliers


def test_compare_largest_group_without_majority_is_no_reference() -> None:
    """Two of four are no majority; the larger group still comes first."""
    values = {"n1": "1", "n2": "2", "n3": "3", "n4": "3"}
    (drift,) = compare([fingerprint(node, x={"value": value}) for node, value in values.items()])
    assert ("none", ()) == (drift.basis, drift.reference)
    assert [("n3", "n4"), ("n1",), ("n2",)] == [group.nodes for group in drift.groups]


def test_compare_orders_nodes_by_number_not_by_text() -> None:
    """node2 comes before node10."""
    nodes = [fingerprint(f"node{number}", x={"value": number == 1}) for number in (10, 2, 1)]
    (drift,) = compare(nodes)
    assert ("node2", "node10") == drift.groups[0].nodes


def test_compare_fact_that_one_node_lacks_is_missing_there() -> None:
    """The reference has it, the other does not."""
    nodes = [training_node("a"), training_node("b"), training_node("c", algo=None)]
    (drift,) = compare(nodes)
    assert ("env/nccl/NCCL_ALGO", "missing") == (drift.path, drift.kind)
    assert (Group(RING, ("a", "b")), Group(None, ("c",), "absent")) == drift.groups


def test_compare_fact_that_only_one_node_has_is_extra_there() -> None:
    """The reference does not have it, the other does."""
    nodes = [training_node("a", algo=None), training_node("b", algo=None), training_node("c")]
    (drift,) = compare(nodes)
    assert ("extra", ("a", "b")) == (drift.kind, drift.reference)
    assert (Group(None, ("a", "b"), "absent"), Group(RING, ("c",))) == drift.groups


def test_compare_presence_that_differs_on_a_tie_is_missing() -> None:
    """Without a reference nobody can say which node has too much."""
    (drift,) = compare([training_node("a"), training_node("b", algo=None)])
    assert ("missing", "none") == (drift.kind, drift.basis)


def test_compare_null_is_a_value_and_not_absence() -> None:
    """A fact that is null was read; a fact that is not there was not set."""
    (drift,) = compare([fingerprint("a", x={"value": None}), fingerprint("b", x={})])
    assert {("present", ("a",)), ("absent", ("b",))} == {(group.state, group.nodes) for group in drift.groups}


@pytest.mark.parametrize(("one", "other"), [(True, 1), (False, 0), ("1", 1), ("", None), ([True], [1])])
def test_compare_values_of_other_types_differ(one: object, other: object) -> None:
    """Python holds True equal to 1; a digest does not, and neither may a diff."""
    (drift,) = compare([fingerprint("a", x={"value": one}), fingerprint("b", x={"value": other})])
    assert "x/value" == drift.path


def test_compare_lists_are_whole_values() -> None:
    """A list is one value: an entry has no name to be paired by."""
    older = {"version": "2.4.1", "cuda": "12.4", "architectures": ["sm_80"]}
    (drift,) = compare([training_node("a"), training_node("b", torch=older)])
    assert "torch/architectures" == drift.path
    assert [["sm_80", "sm_90"], ["sm_80"]] == [group.value for group in drift.groups]


def test_compare_keys_with_slashes_are_escaped() -> None:
    """A path splits back into its keys."""
    (drift,) = compare([fingerprint("a", x={"/tmp/~x": 1}), fingerprint("b", x={"/tmp/~x": 2})])
    assert "x/~1tmp~1~0x" == drift.path


def test_compare_map_that_one_node_lacks_is_one_drift() -> None:
    """Who lacks the map is said once; the others are compared inside it."""
    facts = [
        {"a": {"x": 1, "y": {"z": 1}}},
        {"a": {"x": 1, "y": {"z": 2}}},
        {"a": {"x": 1, "y": {"z": 1}}},
        {},
    ]
    missing, inside = compare([fingerprint(f"n{place}", x=each) for place, each in enumerate(facts)])
    assert ("x/a", "missing", "majority 3/4") == (missing.path, missing.kind, missing.basis)
    assert (Group(None, ("n0", "n1", "n2")), Group(None, ("n3",), "absent")) == missing.groups
    assert ("x/a/y/z", "majority 2/3") == (inside.path, inside.basis)
    assert [("n0", "n2"), ("n1",)] == [group.nodes for group in inside.groups]


def test_compare_map_against_a_plain_value_keeps_both_values() -> None:
    """They cannot be descended together, and null must not look like the map."""
    (drift,) = compare([fingerprint("a", x={"v": {"k": {}}}), fingerprint("b", x={"v": None})])
    assert [{"k": {}}, None] == [group.value for group in drift.groups]


def test_compare_section_absent_on_one_node_is_one_drift() -> None:
    """No conda on one node is one difference, not one for each package."""
    nodes = [training_node("a"), training_node("b"), training_node("c", conda=Section("conda", 1, "absent"))]
    (drift,) = compare(nodes)
    assert ("conda", "missing", "majority 2/3") == (drift.path, drift.kind, drift.basis)
    assert (Group(None, ("a", "b")), Group(None, ("c",), "absent")) == drift.groups


def test_compare_section_in_error_makes_no_drift_by_itself() -> None:
    """What could not be read is not known to differ; the evidence rule speaks."""
    broken = Section("gpu", 1, "error", errors=("deadline of 30 s passed",))
    assert () == compare([training_node("a"), training_node("b", gpu=broken)])


def test_compare_section_in_error_stands_as_unknown_in_the_others_drift() -> None:
    """A drift between the readable nodes says that the third one is not known."""
    broken = Section("gpu", 1, "error")
    nodes = [training_node("a"), training_node("b", driver="550.54.14"), training_node("c", gpu=broken)]
    (drift,) = compare(nodes)
    assert ("gpu/driver", "none") == (drift.path, drift.basis)
    assert Group(None, ("c",), "unknown", "section could not be read") == drift.groups[-1]
    assert ("a", "b") == drift.outliers


def test_compare_partial_section_lacks_nothing_but_differs_where_read() -> None:
    """A fact that is not there on a partial node is unknown, one that is there counts."""
    partial = Section("torch", 1, "partial", {"version": "2.3.0"}, errors=("cuda: permission denied",))
    (drift,) = compare([training_node("a"), training_node("b"), training_node("c", torch=partial)])
    assert ("torch/version", ("c",)) == (drift.path, drift.outliers)


def test_compare_null_of_a_partial_section_is_unknown() -> None:
    """Where something could not be read, null may be what stands in its place."""
    partial = Section(
        "torch", 1, "partial", {"version": None, "cuda": "12.4"}, errors=("version: not readable",)
    )
    assert () == compare([training_node("a"), training_node("b"), training_node("c", torch=partial)])


def test_compare_section_that_was_not_asked_is_unknown() -> None:
    """An older tool that has no such section makes the facts unknown, not missing."""
    older = fingerprint("b", host={"launch": "ssh"})
    (drift,) = compare([fingerprint("a", host={"launch": "ssh"}, gpu={"driver": "1"}), older])
    assert ("gpu", "unknown", ("b",)) == (drift.path, drift.kind, drift.outliers)
    assert Group(None, ("b",), "unknown", "not asked") == drift.groups[-1]


def test_compare_section_that_was_not_asked_is_told_once_beside_other_drift() -> None:
    """The others are compared; the node without the section is not named for each fact."""
    nodes = [fingerprint(name, x={"p": name, "q": 1, "r": 2}) for name in ("a", "b")]
    drifts = compare([*nodes, fingerprint("c")])
    assert [("x", "unknown"), ("x/p", "changed")] == [(drift.path, drift.kind) for drift in drifts]


def test_compare_older_schema_has_unknown_facts_never_missing_ones() -> None:
    """What the older probe did not read cannot be missing."""
    newer = fingerprint("a", x=Section("x", 2, "ok", {"old": 1, "new": 1}))
    older = fingerprint("b", x=Section("x", 1, "ok", {"old": 2}))
    unknown, changed = compare([newer, older])
    assert ("x/new", "unknown") == (unknown.path, unknown.kind)
    assert Group(None, ("b",), "unknown", "older schema 1") == unknown.groups[-1]
    assert ("x/old", "changed") == (changed.path, changed.kind)


def test_compare_notes_and_errors_are_never_drift() -> None:
    """Serials and temperatures differ on every node by nature."""
    one = Section("gpu", 1, "ok", {"driver": "1"}, notes={"serial": "1"}, errors=("slow",))
    other = Section("gpu", 1, "ok", {"driver": "1"}, notes={"serial": "2"})
    assert () == compare([fingerprint("a", gpu=one), fingerprint("b", gpu=other)])


def test_compare_a_name_given_twice_is_a_usage_error() -> None:
    """A drift could not say which of the two it means."""
    with pytest.raises(UsageError, match="node01 is named twice"):
        compare([training_node("node01"), training_node("node01")])


def test_section_sides_thousand_nodes_with_ten_outliers_are_eleven() -> None:
    """The work depends on what differs, not on how many nodes there are."""
    classes = [(fingerprint("n", x={"v": number}), [f"n{number}"]) for number in range(10)]
    classes.append((fingerprint("n", x={"v": -1}), [f"m{number}" for number in range(990)]))
    assert 11 == len(section_sides("x", classes))


def test_compare_folder_that_was_not_asked_for_is_not_known() -> None:
    """The configuration names folders, and a baseline is older than that; what is asked is compared."""
    mount = {"fstype": "lustre", "options": {"flock": "flock"}}
    named = fingerprint("a", storage={"root": {"fstype": "ext4"}, "/data": mount, "/srv": None})
    bare = fingerprint("b", storage={"root": {"fstype": "xfs"}, "/srv": mount})
    assert {
        "storage/root/fstype": "changed",
        "storage/~1data": "unknown",
        "storage/~1srv": "changed",
    } == {drift.path: drift.kind for drift in compare([named, bare])}


def test_compare_option_of_a_mount_that_one_node_lacks_is_absent_there() -> None:
    """Nobody asks for options one by one."""
    nodes = [
        fingerprint("a", storage={"/data": {"options": {"nconnect": "4"}}}),
        fingerprint("b", storage={"/data": {"options": {}}}),
    ]
    (drift,) = compare(nodes)
    assert ("storage/~1data/options/nconnect", "missing") == (drift.path, drift.kind)
