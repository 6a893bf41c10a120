"""Node by node against a reference of the same name."""

from __future__ import annotations

from typing import Dict, Tuple

from envaudit.diff import PathFilter, compare_to_reference
from envaudit.model import Drift, Fingerprint, Group, Section
from tests.diff.nodes import fingerprint, training_node

EVERYTHING = PathFilter()
NODES = ("node01", "node02", "node03")


def against_good(
    good: Dict[str, Fingerprint], now: Dict[str, Fingerprint], paths: PathFilter = EVERYTHING
) -> Tuple[Drift, ...]:
    """Drifts against a snapshot that was tagged good."""
    return compare_to_reference(good, now, basis="baseline", suffix="@good", paths=paths)


def test_reference_equal_gives_no_drift() -> None:
    """Nothing changed, also where the nodes differ among themselves."""
    good = {node: training_node(node, driver=node) for node in NODES}
    assert () == against_good(good, dict(good))


def test_reference_change_on_two_nodes_is_one_drift() -> None:
    """Equal changes are folded; the reference side carries the suffix."""
    good = {node: training_node(node) for node in NODES}
    now = {
        **good,
        "node01": training_node("node01", nccl="2.20.5"),
        "node03": training_node("node03", nccl="2.20.5"),
    }
    expected = Drift(
        path="libraries/nccl/version",
        kind="changed",
        groups=(
            Group("2.21.5", ("node01@good", "node03@good")),
            Group("2.20.5", ("node01", "node03")),
        ),
        reference=("node01@good", "node03@good"),
        basis="baseline",
    )
    assert (expected,) == against_good(good, now)
    assert ("node01", "node03") == expected.outliers


def test_reference_other_changes_on_two_nodes_are_two_drifts() -> None:
    """Each with its own values."""
    good = {node: training_node(node) for node in NODES}
    now = {
        **good,
        "node01": training_node("node01", nccl="2.20.5"),
        "node02": training_node("node02", nccl="2.22.3"),
    }
    assert [("node01",), ("node02",)] == [drift.outliers for drift in against_good(good, now)]


def test_reference_without_the_fact_makes_it_extra() -> None:
    """Kinds are seen from the reference, whatever the numbers say."""
    (drift,) = against_good({"a": training_node("a", algo=None)}, {"a": training_node("a")})
    assert "extra" == drift.kind
    assert (
        Group(None, ("a@good",), "absent"),
        Group({"value": "Ring", "origin": "environment"}, ("a",)),
    ) == drift.groups


def test_reference_with_the_fact_makes_it_missing() -> None:
    """And the other way round."""
    (drift,) = against_good({"a": training_node("a")}, {"a": training_node("a", algo=None)})
    assert "missing" == drift.kind


def test_reference_of_one_side_only_is_left_to_the_caller() -> None:
    """A node without a baseline has nothing to be compared with."""
    assert () == against_good({"a": training_node("a")}, {"b": training_node("b", driver="1")})


def test_reference_from_another_launch_leaves_variables_unknown() -> None:
    """A baseline taken over ssh says nothing of a Slurm step's variables."""
    (drift,) = against_good({"a": training_node("a")}, {"a": training_node("a", launch="slurm", algo="Tree")})
    assert ("env", "unknown", ()) == (drift.path, drift.kind, drift.reference)


def test_reference_lock_is_silent_on_what_it_does_not_say() -> None:
    """A lock knows packages; a node has a GPU too."""
    lock = fingerprint("a", source="lock", conda={"packages": {"numpy": {"version": "1.26.4"}}})
    node = fingerprint("a", conda={"packages": {"numpy": {"version": "2.0.1"}}}, gpu={"driver": "1"})
    (drift,) = compare_to_reference({"a": lock}, {"a": node}, basis="lock", suffix="@lock")
    assert ("conda/packages/numpy/version", "lock") == (drift.path, drift.basis)


def test_reference_section_in_error_now_makes_no_drift() -> None:
    """What could not be read today did not change for all we know."""
    broken = training_node("a", gpu=Section("gpu", 1, "error"))
    assert () == against_good({"a": training_node("a", driver="1")}, {"a": broken})


def test_reference_with_ignored_paths_leaves_them_out() -> None:
    """The same filter as everywhere."""
    drifts = against_good(
        {"a": training_node("a")},
        {"a": training_node("a", nccl="2.20.5")},
        PathFilter.of(ignore=["libraries"]),
    )
    assert () == drifts
