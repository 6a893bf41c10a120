"""Laws of the model: what holds for every node set, fact, snapshot and set of findings."""

from __future__ import annotations

import json
import random
from typing import Any, Dict, List, Set

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from envaudit.errors import InputError
from envaudit.model import (
    Finding,
    Fingerprint,
    Missing,
    Section,
    Snapshot,
    Verdict,
    canonical_json,
    digest_of,
    join_path,
    split_path,
)
from envaudit.model.canonical import MAX_INTEGER, check_fact
from envaudit.model.codec import decode_head, decode_snapshot, encode_snapshot, parse_json
from envaudit.model.finding import SEVERITIES, THRESHOLDS
from envaudit.model.fingerprint import MISSING_KINDS, SOURCES
from envaudit.model.nodeset import expand, fold
from envaudit.model.section import STATUSES

CAPTURED_AT = "2026-11-30T10:00:00Z"

# Whole snapshots take their time to draw, the more so beside other work on the machine.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=60)

# What a file name that is not UTF-8 becomes when Python reads it: lone surrogates.
ESCAPED_BYTES = st.sampled_from([chr(0xDC00 + byte) for byte in range(0x80, 0x100)])
TEXTS = st.text(st.one_of(st.characters(blacklist_categories=["Cs"]), ESCAPED_BYTES), max_size=20)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-MAX_INTEGER, MAX_INTEGER), TEXTS)
FACTS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)
MAPS = st.dictionaries(TEXTS, FACTS, max_size=3)

NODE_NAMES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,20}", fullmatch=True)
# Names as clusters have them: a stem, one or two numbers with or without padding, perhaps a domain.
CLUSTER_NAMES = st.builds(
    lambda stem, rack, number, width, domain: f"{stem}{rack}{number:0{width}d}{domain}",
    st.sampled_from(["node", "gpu-", "n", "dgx_a100-", "r"]),
    st.sampled_from(["", "1-", "02n", "3."]),
    st.integers(0, 120),
    st.integers(1, 4),
    st.sampled_from(["", "", "", "-ib", ".cluster.local", ".eth0"]),
)
NODE_SETS = st.sets(st.one_of(CLUSTER_NAMES, CLUSTER_NAMES, NODE_NAMES), max_size=40)


@st.composite
def sections(draw: Any) -> Section:
    """A section of a name that no schema table knows, so that every schema is readable."""
    return Section(
        name=draw(st.from_regex(r"x_[a-z0-9_]{0,8}", fullmatch=True)),
        schema=draw(st.integers(1, 99)),
        status=draw(st.sampled_from(STATUSES)),
        facts=draw(MAPS),
        notes=draw(MAPS),
        errors=tuple(draw(st.lists(TEXTS, max_size=3))),
    )


@st.composite
def snapshots(draw: Any) -> Snapshot:
    """A snapshot whose nodes share some sections, and in which some nodes are missing."""
    pool: List[Section] = draw(st.lists(sections(), min_size=1, max_size=3))
    names = sorted(draw(st.sets(NODE_NAMES, max_size=4)))
    answered = draw(st.integers(0, len(names)))
    fingerprints = []
    for node in names[:answered]:
        chosen = draw(st.lists(st.sampled_from(pool), max_size=4))
        fingerprints.append(
            Fingerprint(
                node=node,
                source=draw(st.sampled_from(SOURCES)),
                captured_at=CAPTURED_AT,
                tool=draw(TEXTS),
                sections={section.name: section for section in chosen},
            )
        )
    missing = {node: Missing(draw(st.sampled_from(MISSING_KINDS)), draw(TEXTS)) for node in names[answered:]}
    return Snapshot(tuple(fingerprints), missing)


@given(NODE_SETS)
@example({"node9", "node10", "node09", "node099", "node100"})
@example({"0", "00", "000", "1", "01"})
def test_nodeset_folded_and_expanded_is_the_same_set(names: Set[str]) -> None:
    """expand(fold(x)) == x."""
    assert names == set(expand(fold(names)))


@given(NODE_SETS)
def test_nodeset_in_any_order_folds_to_the_same_text(names: Set[str]) -> None:
    """The text depends on the set alone."""
    shuffled = list(names) * 2
    random.Random(7).shuffle(shuffled)
    assert fold(sorted(names)) == fold(shuffled)


@given(NODE_SETS)
@example({"node8", "node9", "node10", "node010", "node100"})
def test_nodeset_folded_text_means_the_same_to_clustershell(names: Set[str]) -> None:
    """What a report prints can be given back to ClusterShell's tools, and to --nodes."""
    nodeset = pytest.importorskip("ClusterShell.NodeSet", reason="ClusterShell is not installed here")
    read = nodeset.NodeSet(fold(names), resolver=nodeset.RESOLVER_NOGROUP) if names else nodeset.NodeSet()
    assert names == set(read)


@UNHURRIED
@given(snapshots())
def test_snapshot_encoded_and_decoded_is_equal(snapshot: Snapshot) -> None:
    """The codec loses nothing: facts, notes, errors, sources, missing nodes."""
    text = encode_snapshot(snapshot, captured_at=CAPTURED_AT, tool="1")
    assert snapshot == decode_snapshot(text, "here")


@UNHURRIED
@given(snapshots())
def test_snapshot_head_alone_names_nodes_and_digests(snapshot: Snapshot) -> None:
    """The first line is enough to list nodes, digests and missing nodes."""
    text = encode_snapshot(snapshot, captured_at=CAPTURED_AT, tool="1")
    head = decode_head(text.split("\n", 1)[0] + "\n", "here")
    digests = {node: claim["digest"] for node, claim in head["nodes"].items()}
    assert {one.node: one.digest for one in snapshot.fingerprints} == digests
    assert set(snapshot.missing) == set(head["missing"])


@UNHURRIED
@given(snapshots())
def test_snapshot_reformatted_by_a_json_tool_is_still_read(snapshot: Snapshot) -> None:
    """Another key order and white space change neither content nor digests."""
    text = encode_snapshot(snapshot, captured_at=CAPTURED_AT, tool="1")
    assert snapshot == decode_snapshot(json.dumps(json.loads(text), indent=2), "here")


@UNHURRIED
@given(snapshots(), st.randoms(), st.one_of(FACTS, st.floats()))
def test_snapshot_with_any_value_replaced_is_read_or_refused(
    snapshot: Snapshot, chance: random.Random, value: Any
) -> None:
    """A hostile document raises no other error than the one that names it."""
    document = json.loads(encode_snapshot(snapshot, captured_at=CAPTURED_AT, tool="1"))
    place = document
    while True:
        key = chance.choice(sorted(place) if isinstance(place, dict) else range(len(place)))
        if not isinstance(place[key], (dict, list)) or not place[key] or chance.random() < 0.2:
            break
        place = place[key]
    place[key] = value
    where = "here"
    try:
        decode_snapshot(json.dumps(document), "here")
    except InputError as error:
        where = error.where
    assert where.startswith("here")


@given(MAPS, st.randoms())
def test_digest_with_another_key_order_is_the_same(facts: Dict[str, Any], chance: random.Random) -> None:
    """A digest does not depend on the order in which a probe found things."""
    assert digest_of(facts) == digest_of(_reordered(facts, chance))


@UNHURRIED
@given(sections(), MAPS, st.lists(TEXTS, max_size=3))
def test_section_digest_ignores_notes_and_errors(
    section: Section, notes: Dict[str, Any], errors: List[str]
) -> None:
    """Serial numbers, temperatures and error texts are never drift."""
    other = Section(section.name, section.schema, section.status, section.facts, notes, tuple(errors))
    assert section.digest == other.digest == section.with_details(notes, tuple(errors)).digest
    assert other == section.with_details(notes, tuple(errors))


@given(FACTS)
def test_fact_survives_canonical_json(fact: Any) -> None:
    """What is accepted as a fact is written and read as the same value and type."""
    check_fact(fact, "fact")
    assert canonical_json(fact) == canonical_json(parse_json(canonical_json(fact), "here"))
    assert fact == parse_json(canonical_json(fact), "here")


@given(st.lists(TEXTS, min_size=1, max_size=5))
@example(["~1", "/", "a~0b"])
def test_path_joined_and_split_is_the_same(segments: List[str]) -> None:
    """split_path(join_path(x)) == x, whatever characters a package name has."""
    assert tuple(segments) == split_path(join_path(*segments))


@given(st.lists(st.sampled_from(SEVERITIES), max_size=6), st.sampled_from(sorted(THRESHOLDS)))
def test_verdict_with_missing_evidence_is_never_pass(severities: List[str], fail_on: str) -> None:
    """Missing evidence is no good evidence, at any threshold; and it never hides a failure."""
    findings = [Finding("EA901", severity, "") for severity in severities]
    verdict = Verdict.of(findings, fail_on)
    clean = [finding for finding in findings if finding.severity != "incomplete"]
    assert ("incomplete" in severities) == verdict.incomplete
    assert not (verdict.incomplete and verdict.name == "PASS")
    assert Verdict.of(clean, fail_on).failed == verdict.failed
    assert (verdict.exit_code == 0) == (verdict.name == "PASS")


def _reordered(value: Any, chance: random.Random) -> Any:
    if isinstance(value, dict):
        items = [(key, _reordered(item, chance)) for key, item in value.items()]
        chance.shuffle(items)
        return dict(items)
    if isinstance(value, list):
        return [_reordered(item, chance) for item in value]
    return value
