"""What is said of clocks: what is certain, with its bound, and of the outliers only."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envaudit.diff import compare
from envaudit.model import Fingerprint, Section
from envaudit.model.clockoffset import NOTE, Offset, against_median, in_words
from envaudit.model.finding import Finding, Verdict
from envaudit.rules import Evidence, judge
from tests.diff.nodes import fingerprint

MS = 1_000_000
RUN = "0123456789abcdef"


def node(
    name: str,
    offset_ns: Optional[int] = None,
    bound_ns: int = 50_000,
    *,
    run: str = RUN,
    why: str = "",
    status: str = "ok",
    **facts: Any,
) -> Fingerprint:
    """A node whose clock was measured, or why it was not; without either nobody tried."""
    notes: Dict[str, Any] = {}
    if offset_ns is not None:
        notes[NOTE] = {"run": run, "offset_ns": offset_ns, "bound_ns": bound_ns}
    elif why:
        notes = {NOTE: {"run": run}, "not_examined": {NOTE: why}}
    said = {"service": "chrony", "synchronised": True, "leap": "normal", **facts}
    return fingerprint(name, clock=Section("clock", 1, status, said, notes))


def found(*nodes: Fingerprint, asked: bool = False, comparing: bool = False) -> List[Finding]:
    """What the rules of clocks say."""
    evidence = Evidence(
        nodes,
        drifts=compare(list(nodes)) if comparing else (),
        sections=("clock",),
        comparing=comparing,
        clocks_asked=asked,
    )
    return [finding for finding in judge(evidence) if finding.rule.startswith("EA15")]


def named(*nodes: Fingerprint, **more: bool) -> List[Tuple[str, Tuple[str, ...]]]:
    """Rules and nodes."""
    return [(finding.rule, finding.nodes) for finding in found(*nodes, **more)]


def fleet(*more: Fingerprint) -> Tuple[Fingerprint, ...]:
    """Five clocks in step, each a little off, and some more."""
    return (*(node(f"node{number:02d}", number * 10_000) for number in range(1, 6)), *more)


@pytest.mark.parametrize(
    ("offset_ns", "bound_ns", "rule"),
    [
        (99 * MS, 50_000, None),
        (101 * MS, 50_000, "EA152"),
        (-101 * MS, 50_000, "EA152"),
        (999 * MS, 50_000, "EA152"),
        (1_001 * MS, 50_000, "EA150"),
        (-3_200 * MS, 64_000, "EA150"),
        (1_100 * MS, 200 * MS, "EA152"),
        (86_400_000 * MS, 50_000, "EA150"),
    ],
)
def test_clock_off_is_judged_by_what_is_certain(offset_ns: int, bound_ns: int, rule: Optional[str]) -> None:
    """The offset less its bound, against a tenth of a second and a second."""
    expected = [(rule, ("node09",))] if rule else []
    assert expected == named(*fleet(node("node09", offset_ns, bound_ns)))


def test_clock_off_and_not_synchronised_is_an_error() -> None:
    """It drifts on, and one finding says it all."""
    (finding,) = found(*fleet(node("node09", 300 * MS, synchronised=False, leap="not synchronised")))
    assert ("EA151", "error", ("node09",)) == (finding.rule, finding.severity, finding.nodes)
    (line,) = finding.evidence
    assert "node09: +299.965 ms ± " in line
    assert "chrony, not synchronised" in line


def test_clocks_off_are_one_finding_with_a_line_each() -> None:
    """The many that are in step are not named."""
    (finding,) = found(*fleet(node("node10", 3_200 * MS), node("node09", -2_000 * MS)))
    assert ("node09", "node10") == finding.nodes
    assert 2 == len(finding.evidence)
    assert any(line.startswith("node10: +3.200 s ± ") for line in finding.evidence)


def test_two_clocks_apart_are_both_named_with_their_difference() -> None:
    """A median of two is the middle between them, and neither of them is it."""
    (finding,) = found(node("node01", 3_000 * MS), node("node02", 1_500 * MS))
    assert ("EA150", ("node01", "node02")) == (finding.rule, finding.nodes)
    assert "clocks are more than 1 s apart" == finding.message
    (line,) = finding.evidence
    assert line.startswith("node01 is +1.500 s ± 0.100 ms ahead of node02")
    assert "cannot tell" in line


def test_two_clocks_in_step_are_fine_however_far_the_controllers_is_off() -> None:
    """What the controller's own clock says does not matter."""
    assert [] == named(node("node01", 86_400_000 * MS), node("node02", 86_400_000 * MS + 20))


def test_half_of_the_clocks_against_the_other_half_are_all_named() -> None:
    """The middle lies between them, and no side has a majority."""
    nodes = [node(f"node{number}", 3_200 * MS * (number % 2)) for number in range(4)]
    assert [("EA150", ("node0", "node1", "node2", "node3"))] == named(*nodes)


def test_offsets_of_two_runs_are_not_held_against_each_other() -> None:
    """Another run had another controller, or the same one before somebody set its clock."""
    before = [node(f"node{number}@good", 0, run="earlier") for number in range(3)]
    now = [node(f"node{number}", 9_000 * MS) for number in range(3)]
    assert [] == named(*before, *now)


@pytest.mark.parametrize(("asked", "rule", "name"), [(True, "EA156", "INCOMPLETE"), (False, "EA157", "PASS")])
def test_clock_that_was_not_measured_is_not_known(asked: bool, rule: str, name: str) -> None:
    """Where that was the question the run is incomplete; in a comparison it is told."""
    findings = found(*fleet(node("node09", why="no answer to a ping")), asked=asked)
    assert [(rule, ("node09",))] == [(each.rule, each.nodes) for each in findings]
    assert "no answer to a ping" in findings[0].message
    assert name == Verdict.of(findings).name


def test_clocks_that_nobody_tried_to_measure_are_no_finding() -> None:
    """A stored snapshot of an earlier version, a node that read itself."""
    assert [] == named(node("node01"), node("node02"))
    assert [] == named(node("node01"), node("node02"), asked=True)


def test_single_clock_that_was_not_measured_is_no_finding() -> None:
    """There is nothing to compare it with."""
    assert [] == named(node("node01", why="no answer to a ping"), asked=True)


def test_one_measured_clock_among_others_is_not_known_either() -> None:
    """There is no other one to hold it against."""
    findings = found(node("node01", 5), node("node02", why="no answer to a ping"), asked=True)
    assert {("node01",), ("node02",)} == {each.nodes for each in findings}
    assert {"EA156"} == {each.rule for each in findings}


@pytest.mark.parametrize("others", [1, 4])
def test_clock_measured_too_coarsely_is_neither_off_nor_fine(others: int) -> None:
    """40 ms within 200 ms may be in step, and may be off by a quarter of a second."""
    nodes = [node(f"node{number:02d}", 0) for number in range(others)]
    findings = found(*nodes, node("node09", 40 * MS, 200 * MS), asked=True)
    assert {"EA156"} == {each.rule for each in findings}
    assert "node09" in findings[0].nodes
    assert "100 ms" in findings[0].message
    assert any("± 200" in line for line in findings[0].evidence)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, []),
        ({"synchronised": False}, ["EA153"]),
        ({"synchronised": None}, []),
        ({"service": "none", "synchronised": False}, ["EA154"]),
        ({"service": "none", "synchronised": True}, []),
        ({"service": None, "synchronised": None}, ["EA155"]),
        ({"service": None, "synchronised": True}, []),
    ],
)
def test_what_keeps_a_clock_is_judged_on_each_node(facts: Dict[str, Any], expected: List[str]) -> None:
    """A kernel that is synchronised proves that somebody keeps the clock, seen or not."""
    severities = {"EA153": "warning", "EA154": "warning", "EA155": "info"}
    assert [(rule, severities[rule]) for rule in expected] == [
        (each.rule, each.severity) for each in found(node("node01", **facts), asked=True)
    ]


def test_clock_of_which_nobody_says_anything_is_not_called_unsynchronised() -> None:
    """A container without a time service may not ask the kernel."""
    (told,) = found(node("node01", service="none", synchronised=None))
    assert ("EA154", "no time service, and nobody says whether the clock is synchronised") == (
        told.rule,
        told.message,
    )


def test_containers_of_a_comparison_are_not_blamed_for_their_hosts() -> None:
    """What keeps the clock outside is told where it was the question."""
    assert [] == named(*(node(f"pod{number}", service=None, synchronised=None) for number in range(3)))


@pytest.mark.parametrize(("service", "rule"), [("chrony", "EA153"), ("none", "EA154")])
def test_clock_without_synchronisation_is_one_finding_in_a_comparison(service: str, rule: str) -> None:
    """Not also one for each fact that differs: service, synchronised, leap second."""
    odd = node("node09", 0, service=service, synchronised=False, leap="not synchronised")
    nodes = fleet(odd)
    told = judge(Evidence(nodes, drifts=compare(nodes), sections=("clock",)))
    assert [("warning", rule, ("node09",))] == [(each.severity, each.rule, each.nodes) for each in told]


@pytest.mark.parametrize(("service", "synchronised"), [("none", True), (None, True), (None, None)])
def test_service_that_only_one_node_lacks_is_told(
    service: Optional[str], synchronised: Optional[bool]
) -> None:
    """The kernel calls a clock synchronised for a while after its service stopped."""
    odd = node("node09", 0, service=service, synchronised=synchronised)
    assert [("EA154", ("node09",))] == named(*fleet(odd), comparing=True)
    assert [] == named(*fleet(odd))


def test_all_nodes_without_a_service_are_one_finding() -> None:
    """No drift tells it, for all are alike."""
    nodes = [node(f"node{number}", 0, service="none", synchronised=False) for number in range(3)]
    assert [("EA154", ("node0", "node1", "node2"))] == named(*nodes, comparing=True)


def test_section_that_is_not_covered_says_nothing() -> None:
    """`--section env` is no question about clocks."""
    evidence = Evidence(fleet(node("node09", 3_200 * MS)), sections=("env",))
    assert not [each for each in judge(evidence) if each.rule.startswith("EA15")]


def test_section_that_could_not_be_read_has_an_offset_all_the_same() -> None:
    """The pings do not need it."""
    assert [("EA150", ("node09",))] == named(*fleet(node("node09", 3_200 * MS, status="partial")))


CLOCKS = st.dictionaries(
    st.text("abc", min_size=1, max_size=4),
    st.tuples(st.integers(-(10**12), 10**12), st.integers(0, 10**9), st.floats(-1, 1)),
    min_size=1,
    max_size=9,
)


@given(CLOCKS)
def test_distance_from_the_median_holds_the_truth(clocks: Dict[str, Tuple[int, int, float]]) -> None:
    """Wherever inside its bound each clock really is."""
    measured = {name: Offset(offset, bound) for name, (offset, bound, _) in clocks.items()}
    truth = {name: offset + int(bound * share) for name, (offset, bound, share) in clocks.items()}
    ordered = sorted(truth.values())
    half = len(ordered) // 2
    middle = ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
    for name, distance in against_median(measured).items():
        assert abs(truth[name] - middle - distance.offset_ns) <= distance.bound_ns + 1


@pytest.mark.parametrize(
    ("nanoseconds", "expected"),
    [
        (0, "0 µs"),
        (1, "1 µs"),
        (-64_000, "-64 µs"),
        (100_000, "0.100 ms"),
        (3_199_993_000, "3.200 s"),
        (-2_500_000, "-2.500 ms"),
    ],
)
def test_span_is_told_in_the_unit_that_suits_it(nanoseconds: int, expected: str) -> None:
    """Three places, and a bound is never rounded to nothing."""
    assert expected == in_words(nanoseconds)
