"""Laws of the diff: what holds for every fleet of nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, FrozenSet, List, Sequence, Tuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envaudit.diff import compare, compare_to_reference
from envaudit.model import Drift, Fingerprint, Section, canonical_json, split_path
from envaudit.model.nodeset import natural_key
from envaudit.model.section import STATUSES

CAPTURED_AT = "2026-11-30T10:00:00Z"

# A busy machine is no fault of a law.
LAWS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

# Few keys and values, so that nodes agree in part.
KEYS = st.sampled_from(["a", "b", "a/b", "~", "version", "build", "md5"])
SCALARS = st.sampled_from([None, True, False, 0, 1, "1", "", "1+cu118", "1+cu121", "2+cu118"])
FACTS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=6,
)
MAPS = st.dictionaries(KEYS, FACTS, max_size=3)
PACKAGES = st.dictionaries(
    st.sampled_from(["numpy", "torch"]),
    st.fixed_dictionaries(
        {"version": SCALARS, "build": SCALARS}, optional={"md5": SCALARS, "channel": FACTS}
    ),
)
FACTS_OF = {
    "x": MAPS,
    "env": MAPS,
    "gpu": st.fixed_dictionaries({}, optional={"visible": MAPS, "driver": SCALARS}),
    "conda": st.fixed_dictionaries({"packages": PACKAGES}, optional={"a": FACTS}),
}


@st.composite
def healthy_sections(draw: Any, launch: str = "ssh") -> Dict[str, Section]:
    """The same sections on every node, all of them whole and of one schema."""
    sections = {name: Section(name, 1, "ok", draw(facts)) for name, facts in FACTS_OF.items()}
    sections["host"] = Section("host", 1, "ok", {"launch": launch})
    return sections


@st.composite
def any_sections(draw: Any) -> Dict[str, Section]:
    """Sections of any status and of two schemas, or not there at all."""
    sections = draw(healthy_sections(launch=draw(st.sampled_from(["ssh", "slurm"]))))
    for name in list(FACTS_OF):
        status = draw(st.sampled_from(["not there", "ok", *STATUSES]))
        if status == "not there":
            del sections[name]
        else:
            facts = sections[name].facts if status in ("ok", "partial") else {}
            sections[name] = Section(name, draw(st.integers(1, 2)), status, facts)
    return sections


def nodes_of(variants: Sequence[Dict[str, Section]], picks: Sequence[int]) -> List[Fingerprint]:
    """One node for each pick among a few variants."""
    return [
        Fingerprint(f"node{number}", "probe", CAPTURED_AT, "0.1.0", variants[pick % len(variants)])
        for number, pick in enumerate(picks)
    ]


PICKS = st.lists(st.integers(0, 3), min_size=1, max_size=7)
HEALTHY = st.builds(nodes_of, st.lists(healthy_sections(), min_size=1, max_size=4), PICKS)
FLEETS = st.builds(nodes_of, st.lists(any_sections(), min_size=1, max_size=4), PICKS)

Unordered = Tuple[str, str, str, FrozenSet[str], FrozenSet[object]]


def unordered(drifts: Sequence[Drift]) -> FrozenSet[Unordered]:
    """Drifts without any order of nodes and groups."""
    return frozenset(
        (
            drift.path,
            drift.kind,
            drift.basis,
            frozenset(drift.reference),
            frozenset(
                (group.state, canonical_json(group.value), group.why, frozenset(group.nodes))
                for group in drift.groups
            ),
        )
        for drift in drifts
    )


@LAWS
@given(FLEETS, st.integers(2, 5))
def test_copies_of_one_node_never_drift(fleet: List[Fingerprint], copies: int) -> None:
    """diff(a, a) is empty, whatever a is."""
    assert () == compare([replace(fleet[0], node=f"copy{number}") for number in range(copies)])


@LAWS
@given(FLEETS)
def test_reference_equal_to_itself_never_drifts(fleet: List[Fingerprint]) -> None:
    """Nothing changed, nothing is said."""
    by_node = {one.node: one for one in fleet}
    assert () == compare_to_reference(by_node, by_node, basis="baseline", suffix="@good")


@LAWS
@given(FLEETS, st.randoms(use_true_random=False))
def test_order_of_nodes_does_not_matter(fleet: List[Fingerprint], random: Any) -> None:
    """The same drifts, in the same order."""
    shuffled = random.sample(fleet, len(fleet))
    assert compare(fleet) == compare(shuffled)


@LAWS
@given(FLEETS, st.randoms(use_true_random=False))
def test_relabelling_nodes_relabels_drifts(fleet: List[Fingerprint], random: Any) -> None:
    """A name says nothing about a node."""
    names = [one.node for one in fleet]
    label = dict(zip(names, random.sample([f"gpu{number}" for number in range(20)], len(names))))
    relabelled = [
        replace(
            drift,
            reference=tuple(label[node] for node in drift.reference),
            groups=tuple(
                replace(group, nodes=tuple(label[node] for node in group.nodes)) for group in drift.groups
            ),
        )
        for drift in compare(fleet)
    ]
    assert unordered(relabelled) == unordered(compare([replace(one, node=label[one.node]) for one in fleet]))


@LAWS
@given(FLEETS)
def test_groups_hold_every_node_once(fleet: List[Fingerprint]) -> None:
    """Groups are disjoint; who is in none of them lacks a map above, and a drift there says so."""
    names = {one.node for one in fleet}
    drifts = compare(fleet)
    for drift in drifts:
        members = [node for group in drift.groups for node in group.nodes]
        assert sorted(set(members)) == sorted(members)
        above = {
            node
            for other in drifts
            if drift.path.startswith(f"{other.path}/")
            for group in other.groups
            if group.state == "absent"
            for node in group.nodes
        }
        assert names - set(members) <= above


@LAWS
@given(FLEETS)
def test_groups_are_sorted_and_differ(fleet: List[Fingerprint]) -> None:
    """Reference first, then larger before smaller; nodes in natural order; no two groups alike."""
    for drift in compare(fleet):
        said = [(group.state, canonical_json(group.value), group.why) for group in drift.groups]
        assert len(set(said)) == len(said) >= 2
        for group in drift.groups:
            assert tuple(sorted(group.nodes, key=natural_key)) == group.nodes
        known = [group for group in drift.groups if group.state != "unknown"]
        assert list(drift.groups[: len(known)]) == known
        sizes = [len(group.nodes) for group in known if group.nodes != drift.reference]
        assert sorted(sizes, reverse=True) == sizes


@LAWS
@given(FLEETS)
def test_reference_is_a_strict_majority_or_nobody(fleet: List[Fingerprint]) -> None:
    """The basis `majority k/n` counts nodes with evidence, and 2k > n."""
    for drift in compare(fleet):
        known = [len(group.nodes) for group in drift.groups if group.state != "unknown"]
        if drift.reference:
            assert drift.groups[0].nodes == drift.reference
            assert f"majority {known[0]}/{sum(known)}" == drift.basis
            assert 2 * known[0] > sum(known)
        elif drift.kind != "unknown":
            assert "none" == drift.basis
            assert 2 * max(known) <= sum(known)


@LAWS
@given(FLEETS)
def test_values_are_those_of_the_nodes(fleet: List[Fingerprint]) -> None:
    """What a group is said to hold is what each of its nodes holds."""
    by_node = {one.node: one for one in fleet}
    for drift in compare(fleet):
        section, *keys = split_path(drift.path)
        if keys and keys[-1] == "local":
            continue
        for group in drift.groups:
            for node in group.nodes if group.state == "present" and group.value is not None else ():
                fact: Any = by_node[node].sections[section].facts
                for key in keys:
                    fact = fact[key]
                assert canonical_json(group.value) == canonical_json(fact)


@LAWS
@given(FLEETS, MAPS, st.lists(st.text(max_size=5), max_size=2))
def test_notes_and_errors_never_make_drift(
    fleet: List[Fingerprint], notes: Dict[str, Any], errors: List[str]
) -> None:
    """They belong to a node by nature."""
    noisy = replace(
        fleet[0],
        sections={
            name: replace(section, notes=notes, errors=tuple(errors))
            for name, section in fleet[0].sections.items()
        },
    )
    assert compare(fleet) == compare([noisy, *fleet[1:]])


@LAWS
@given(HEALTHY)
def test_drift_exists_exactly_where_facts_differ(fleet: List[Fingerprint]) -> None:
    """For whole sections of one schema and one launch: no drift overlooked, none made up."""
    differing = sorted(
        name
        for name in fleet[0].sections
        if len({canonical_json(one.sections[name].facts) for one in fleet}) > 1
    )
    drifts = compare(fleet)
    assert differing == sorted({drift.section for drift in drifts})
    assert "unknown" not in {drift.kind for drift in drifts}


@LAWS
@given(st.lists(any_sections(), min_size=2, max_size=2))
def test_reference_and_pair_find_the_same_paths(pair: List[Dict[str, Section]]) -> None:
    """A node against its reference differs where two nodes would."""
    before, now = (Fingerprint("a", "probe", CAPTURED_AT, "0.1.0", sections) for sections in pair)
    against = compare_to_reference({"a": before}, {"a": now}, basis="baseline", suffix="@good")
    side_by_side = compare([replace(before, node="a@good"), now])
    assert [drift.path for drift in side_by_side] == [drift.path for drift in against]
