"""Facts of the launch are compared between equal launches only."""

from __future__ import annotations

from typing import Dict, Tuple

import pytest

from envaudit.diff import compare
from envaudit.diff.launch import INTERPRETER, LAUNCH, Start
from envaudit.model import Fingerprint, Group, join_path
from tests.diff.nodes import fingerprint, training_node


def test_compare_launch_itself_is_never_drift() -> None:
    """That one answer came over ssh and one from Slurm is how they were asked, not what they are."""
    assert () == compare([training_node("a"), training_node("b", launch="slurm")])


def test_compare_variables_of_other_launches_are_unknown() -> None:
    """One drift for the whole section, and nobody is blamed."""
    (drift,) = compare([training_node("a"), training_node("b", launch="slurm", algo="Tree")])
    assert ("env", "unknown", "none") == (drift.path, drift.kind, drift.basis)
    assert (
        Group(None, ("a",), "unknown", "other launch: ssh"),
        Group(None, ("b",), "unknown", "other launch: slurm"),
    ) == drift.groups


def test_compare_variables_within_one_launch_are_drift_beside_another() -> None:
    """Nodes of one launch are held against each other, whatever else is there."""
    nodes = [training_node("a"), training_node("b"), training_node("c", algo="Tree")]
    changed, unknown = compare([*nodes, training_node("d", launch="slurm", algo=None)])
    assert ("env/nccl/NCCL_ALGO/value", "majority 2/3", ("c",)) == (
        changed.path,
        changed.basis,
        changed.outliers,
    )
    assert Group(None, ("d",), "unknown", "other launch: slurm") == changed.groups[-1]
    assert ("env", "unknown") == (unknown.path, unknown.kind)


def test_compare_facts_of_the_node_differ_across_launches() -> None:
    """A driver is the node's own, however it was asked."""
    (drift,) = compare([training_node("a"), training_node("b", launch="slurm", driver="550.54.14")])
    assert ("gpu/driver", "changed") == (drift.path, drift.kind)


CASES = [(LAUNCH, path) for path in LAUNCH.paths] + [(INTERPRETER, path) for path in INTERPRETER.paths]


@pytest.mark.parametrize(("start", "segments"), CASES)
def test_compare_what_follows_from_a_choice_is_unknown_between_choices(
    start: Start, segments: Tuple[str, ...]
) -> None:
    """Every entry of both tables is honoured, sections and facts alike; the choice is no drift."""
    nodes = []
    for node, choice, value in (("a", "one", 1), ("b", "two", 2)):
        facts: Dict[str, object] = {"value": value}
        for segment in reversed(segments[1:]):
            facts = {segment: facts}
        sections = {segments[0]: facts}
        sections.setdefault(start.said[0], {})[start.said[1]] = choice
        nodes.append(fingerprint(node, **sections))
    assert [(join_path(*segments), "unknown")] == [(drift.path, drift.kind) for drift in compare(nodes)]


def test_compare_place_of_one_interpreter_that_turned_out_to_be_two_is_drift() -> None:
    """`python3` that is another on one node is what the audit is for."""
    nodes = [
        fingerprint(node, python={"asked": "python3", "executable": f"/{where}/bin/python3"})
        for node, where in (("a", "opt"), ("b", "usr"))
    ]
    assert [("python/executable", "changed")] == [(drift.path, drift.kind) for drift in compare(nodes)]


def test_compare_flags_that_a_locale_sets_differ_within_one_launch_only() -> None:
    """A login shell with a locale and a scheduler's step without one start the same Python otherwise."""

    def node(name: str, launch: str, utf8_mode: int) -> Fingerprint:
        return training_node(
            name, launch=launch, python={"version": "3.11.7", "flags": {"utf8_mode": utf8_mode}}
        )

    alike = compare([node("a", "ssh", 0), node("b", "ssh", 1)])
    assert [("python/flags/utf8_mode", "changed")] == [(drift.path, drift.kind) for drift in alike]
    other = compare([node("a", "ssh", 0), node("b", "slurm", 1)])
    assert [("python/flags", "unknown")] == [(drift.path, drift.kind) for drift in other]
