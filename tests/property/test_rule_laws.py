"""Laws of the rules: what holds for every fleet, and for every node whatever it says."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, FrozenSet, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from envaudit.diff import compare, compare_to_reference
from envaudit.model import Finding, Fingerprint, Section, Snapshot
from envaudit.model.codec import decode_snapshot, encode_snapshot, fingerprint_of_answer
from envaudit.probe.runner import probe
from envaudit.rules import Evidence, judge
from tests.conftest import PROJECT
from tests.property.healthy_fleets import CAPTURED_AT, Fleet, fleets, renamed

# A busy machine is no fault of a law.
LAWS = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], max_examples=40
)
MANY = settings(LAWS, max_examples=150)

# Fake nodes that together have every section and nearly every fact.
LIVING = (
    "healthy-h100",
    "roce-h100",
    "a100-mig",
    "conda-static-nccl",
    "ngc-cuda-compat",
    "pod-a",
    "rocm-mi300",
)

WORDS = st.one_of(
    st.text(max_size=6),
    st.sampled_from(
        ["", "0", "-1", "1.2.3", "12.x", "2.4.1+cu121", "\udcff", "a/b~c", "as driver", "enabled"]
    ),
    # What `isdigit` takes and `int` does not.
    st.sampled_from(["9" * 5000, "²"]),
    st.sampled_from(
        ["unlimited", "/", "{site}/x", "sm_90a", "sm_", "x16 32 GT/s", "10.0.0.300/99", "::1/128"]
    ),
)
NUMBERS = st.one_of(st.integers(-3, 3), st.integers(-(2**64), 2**64), st.sampled_from([2**63, -(2**64)]))
GARBAGE = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, WORDS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(WORDS, inner, max_size=3)),
    max_leaves=6,
)


def judged(nodes: Sequence[Fingerprint], **more: Any) -> List[Finding]:
    """What all rules say of nodes that are compared with each other."""
    return list(judge(Evidence(tuple(nodes), drifts=compare(nodes), **more)))


@LAWS
@given(fleets(at_least=2))
def test_alike_healthy_nodes_yield_no_finding(fleet: Fleet) -> None:
    """Not one, not even an information: whatever the nodes are, there is nothing to say."""
    assert [] == judged(fleet.nodes)


@LAWS
@given(fleets())
def test_healthy_nodes_against_their_own_baseline_yield_no_finding(fleet: Fleet) -> None:
    """Nor where each is held against what it was."""
    nodes = fleet.nodes
    before = {node.node: node for node in nodes}
    drifts = compare_to_reference(before, before, basis="baseline", suffix="@good")
    held = tuple(renamed(node, f"{node.node}@good") for node in nodes)
    assert () == judge(Evidence(tuple(nodes), drifts=drifts, references=held))


@functools.lru_cache(maxsize=None)
def living(name: str) -> Fingerprint:
    """A fake node of fixtures/nodes as the probe reads it."""
    answer = probe({"root": str(PROJECT / "fixtures" / "nodes" / name), "tool": "0.1.0"})
    answer["captured_at"] = CAPTURED_AT
    return fingerprint_of_answer(answer, node=name, source="probe", where="answer")


Place = Tuple[Any, ...]


def places_of(value: object, place: Place = ()) -> Iterator[Place]:
    """The place of every value, by keys and indexes; the whole itself as well."""
    yield place
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, inner in items:
        yield from places_of(inner, (*place, key))


def with_value(value: Any, place: Place, new: object) -> Any:
    """A copy with another value at one place."""
    if not place:
        return new
    key, *rest = place
    inner = with_value(value[key], tuple(rest), new)
    if isinstance(value, list):
        return [inner if index == key else item for index, item in enumerate(value)]
    return {**value, key: inner}


class Change(NamedTuple):
    """Another value at one place of a section's facts or notes."""

    section: str
    part: str
    place: Place
    value: Any


class Odd(NamedTuple):
    """A fake node of which some things are otherwise."""

    of: str
    changes: Tuple[Change, ...]

    @property
    def node(self) -> Fingerprint:
        """Its fingerprint; a place that an earlier change took away stays away."""
        node = replace(living(self.of), node="odd")
        for change in self.changes:
            node = with_change(node, change)
        return node


def with_change(node: Fingerprint, change: Change) -> Fingerprint:
    """The node with one thing otherwise."""
    section = node.sections[change.section]
    whole = getattr(section, change.part)
    try:
        changed = replace(section, **{change.part: with_value(whole, change.place, change.value)})
    except (KeyError, IndexError, TypeError):
        return node
    return replace(node, sections={**node.sections, change.section: changed})


def changes_of(node: Fingerprint, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Change]:
    """Another value at any place of any section."""
    places = [
        (name, part, place)
        for name, section in sorted(node.sections.items())
        for part in ("facts", "notes")
        for place in places_of(getattr(section, part))
        if place
    ]
    return st.builds(lambda at, value: Change(at[0], at[1], at[2], value), st.sampled_from(places), values)


def odd_nodes(values: st.SearchStrategy[Any], at_most: int) -> st.SearchStrategy[Odd]:
    """Fake nodes with one to so many changes."""
    return st.sampled_from(LIVING).flatmap(
        lambda name: st.builds(
            Odd,
            st.just(name),
            st.lists(changes_of(living(name), values), min_size=1, max_size=at_most).map(tuple),
        )
    )


def arrived(nodes: Sequence[Fingerprint]) -> Tuple[Fingerprint, ...]:
    """The nodes as they are once they came over the wire or out of a store."""
    text = encode_snapshot(Snapshot(tuple(nodes)), captured_at=CAPTURED_AT, tool="0.1.0")
    return decode_snapshot(text, "wire").fingerprints


@MANY
@given(odd_nodes(GARBAGE, at_most=6))
def test_rules_bear_whatever_a_node_says(odd: Odd) -> None:
    """Any value at any place: a malicious node must not take the judgement of the others with it."""
    nodes = arrived([*(renamed(living("healthy-h100"), f"n{n}") for n in range(2)), odd.node])
    for evidence in (
        Evidence(nodes, drifts=compare(nodes)),
        Evidence(nodes[2:], comparing=False, clocks_asked=True),
    ):
        for finding in judge(evidence):
            assert isinstance(finding.message, str)
            assert set(finding.nodes) <= {"n0", "n1", "odd"}


FREE = st.dictionaries(
    st.sampled_from(
        sorted(
            {
                "clock",
                "cuda",
                "deep",
                "env",
                "gpu",
                "host",
                "integrity",
                "libraries",
                "limits",
                "network",
                "packages",
                "python",
                "storage",
                "topology",
                "torch",
            }
        )
    ),
    st.tuples(st.dictionaries(WORDS, GARBAGE, max_size=3), st.dictionaries(WORDS, GARBAGE, max_size=2)),
)


@MANY
@given(FREE, FREE)
def test_rules_bear_sections_of_nonsense(one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    """Sections that have nothing of what they should have."""
    nodes = arrived(
        [
            Fingerprint(
                name,
                "probe",
                CAPTURED_AT,
                "0.1.0",
                {each: Section(each, 1, "ok", facts, notes) for each, (facts, notes) in said.items()},
            )
            for name, said in (("a", one), ("b", other))
        ]
    )
    assert {node for finding in judged(nodes) for node in finding.nodes} <= {"a", "b"}


Told = FrozenSet[Tuple[str, str, str, Tuple[str, ...], str, Tuple[str, ...]]]


def told(findings: Sequence[Finding]) -> Told:
    """What is said, without any order."""
    return frozenset(
        (
            each.rule,
            each.severity,
            each.message,
            tuple(sorted(each.nodes)),
            each.path,
            tuple(sorted(each.evidence)),
        )
        for each in findings
    )


ODD_VALUES: st.SearchStrategy[Any] = st.sampled_from([None, True, False, 0, 7, "other", "1.0", [], {}])
ODD = odd_nodes(ODD_VALUES, at_most=2)


@LAWS
@given(fleets(at_least=3), ODD, st.randoms(use_true_random=False))
def test_order_of_nodes_changes_no_finding(fleet: Fleet, odd: Odd, random: Any) -> None:
    """Who answered first is no evidence."""
    nodes = [*fleet.nodes, odd.node]
    assert told(judged(nodes)) == told(judged(random.sample(nodes, len(nodes))))


@LAWS
@given(fleets(at_least=3), ODD)
def test_other_names_are_other_names_in_the_findings(fleet: Fleet, odd: Odd) -> None:
    """Nothing is judged by a node's name."""
    nodes = [*fleet.nodes, odd.node]
    names = {node.node: f"x{number:02d}" for number, node in enumerate(nodes)}
    before = [(f.rule, f.severity, f.path, tuple(names[node] for node in f.nodes)) for f in judged(nodes)]
    after = [
        (f.rule, f.severity, f.path, f.nodes)
        for f in judged([renamed(node, names[node.node]) for node in nodes])
    ]
    assert sorted(before) == sorted(after)


@st.composite
def one_changed_fact(draw: Any) -> Tuple[Fleet, int, Change]:
    """A healthy fleet, which of its nodes has one fact otherwise, and that fact."""
    fleet = draw(fleets(at_least=3))
    at = draw(st.integers(0, fleet.size - 1))
    change = draw(changes_of(fleet.nodes[at], ODD_VALUES))
    # Between two launches nothing of the launch is compared, and that concerns both sides.
    assume(change.part == "facts" and change[:3] != ("host", "facts", ("launch",)))
    return fleet, at, change


@MANY
@given(one_changed_fact())
def test_one_changed_fact_names_its_node_alone(case: Tuple[Fleet, int, Change]) -> None:
    """The outlier is named, and none of those that are well."""
    fleet, at, change = case
    nodes = fleet.nodes
    nodes[at] = with_change(nodes[at], change)
    assert {node for finding in judged(nodes) for node in finding.nodes} <= {nodes[at].node}
