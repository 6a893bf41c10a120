"""Reports that nobody would write, for laws: any values, any texts, anywhere a node has a say."""

from __future__ import annotations

from typing import Any, List, Tuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from envaudit.model import Drift, Finding, Fingerprint, Group, Missing, Section, Verdict, canonical_json
from envaudit.model.checked import STATUSES as CASE_STATUSES
from envaudit.model.checked import CheckedCase, CheckedDevice
from envaudit.model.finding import SEVERITIES
from envaudit.model.fingerprint import MISSING_KINDS, SOURCES
from envaudit.model.section import STATUSES
from envaudit.report import Clock, Moment, Report, Stage
from tests.report.ranks import RUNS

# Building a report takes long beside judging it, and longer on a busy machine.
LAWS = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])

# What acts on a terminal, on rich, or on a CI log, beside whatever hypothesis comes upon.
WICKED = st.one_of(
    st.sampled_from(["\x1b[2J", "\x9b31m", "\r", "\n", "\x07", "\x00", "\x7f", "\u0085", "\xa0"]),
    st.sampled_from(["\u202e", "\u2066", "\u200f", "\u061c", "\u200b", "\u2028", "\u2029", "\ufeff"]),
    # And on who reads XML, Markdown, the lines of a CI log, or labels.
    st.sampled_from(["]]>", "<b>", "&amp;", "|", "`", "](x)", "\\", '"', "'", "%0A", ",", "##[error]"]),
    st.sampled_from(["\udcff", "\ud800", "\U000e0041", "[red]", "[/]", ":boom:", "::error::"]),
)
TEXTS = st.one_of(
    st.text(max_size=12),
    st.lists(st.one_of(WICKED, st.text(max_size=4)), max_size=5).map("".join),
    st.integers(60, 90).map(lambda length: "/opt" * length),
)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-(2**64), 2**64), TEXTS)
FACTS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=8,
)
TABLES = st.lists(st.dictionaries(st.sampled_from(["vbios", "ecc"]), SCALARS), min_size=1, max_size=3)
MAPS = st.dictionaries(TEXTS, FACTS, max_size=3)
NODES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,8}(@[a-z]{1,4})?", fullmatch=True)
PATHS = st.lists(TEXTS, min_size=1, max_size=3).map(
    lambda segments: "/".join(["gpu", *(one.replace("~", "~0").replace("/", "~1") for one in segments)])
)
TIMES = st.just("2026-11-30T10:00:00Z")
MISSING = st.builds(Missing, st.sampled_from(MISSING_KINDS), TEXTS, TEXTS)


@st.composite
def drifts(draw: Any) -> Drift:
    """A drift as the diff builds them: groups that differ, of nodes that are in one each."""
    names = draw(st.lists(NODES, min_size=2, max_size=6, unique=True))
    values: List[Any] = draw(
        st.one_of(
            st.lists(FACTS, min_size=2, max_size=3, unique_by=canonical_json),
            st.lists(TABLES, min_size=2, max_size=2, unique_by=canonical_json),
        )
    )[: len(names)]
    groups = [Group(value, (name,)) for value, name in zip(values, names)]
    if draw(st.booleans()):
        groups[-1] = Group(None, groups[-1].nodes, "absent")
    reference: Tuple[str, ...] = ()
    if draw(st.booleans()):
        rest = names[len(groups) :]
        groups[0] = Group(groups[0].value, (groups[0].nodes[0], *rest), groups[0].state)
        reference = groups[0].nodes
    basis = draw(st.sampled_from(["majority 7/8", "baseline", "lock"])) if reference else "none"
    kind = draw(st.sampled_from(["changed", "missing", "extra"]))
    if draw(st.booleans()):
        groups.append(Group(None, ("unread",), "unknown", draw(TEXTS)))
        if draw(st.booleans()):
            return Drift(draw(PATHS), "unknown", tuple(groups[-2:]), (), "none")
    return Drift(draw(PATHS), kind, tuple(groups), reference, basis)


@st.composite
def findings(draw: Any) -> Finding:
    """A finding of any severity, with any number of drifts."""
    of = tuple(draw(st.lists(drifts(), max_size=3, unique_by=repr)))
    nodes = (
        of[0].outliers
        if of and draw(st.booleans())
        else tuple(draw(st.lists(NODES, max_size=3, unique=True)))
    )
    path = draw(st.one_of(st.just(""), st.just(of[0].path if of else "gpu"), PATHS))
    return Finding(
        rule=draw(st.sampled_from(["EA299", "EA901", "EA331"])),
        severity=draw(st.sampled_from(SEVERITIES)),
        message=draw(TEXTS),
        nodes=nodes,
        path=path,
        evidence=tuple(draw(st.lists(TEXTS, max_size=2))),
        hint=draw(TEXTS),
        drifts=of,
    )


SECTIONS = st.builds(
    Section,
    name=st.sampled_from(["gpu", "env"]),
    schema=st.integers(1, 3),
    status=st.sampled_from(STATUSES),
    facts=MAPS,
    notes=MAPS,
    errors=st.lists(TEXTS, max_size=2).map(tuple),
)
FINGERPRINTS = st.builds(
    Fingerprint,
    node=NODES,
    source=st.sampled_from(SOURCES),
    captured_at=TIMES,
    tool=TEXTS,
    sections=st.lists(SECTIONS, max_size=2).map(lambda found: {section.name: section for section in found}),
)
MOMENTS = st.builds(
    Moment,
    node=NODES,
    captured_at=TIMES,
    tags=st.lists(NODES, max_size=2).map(tuple),
    drifts=st.lists(drifts(), max_size=2).map(tuple),
    first=st.booleans(),
    missing=st.one_of(st.none(), MISSING),
    run=st.sampled_from(["", "exit 1, job 81231, torchrun train.py"]),
    last_good=st.sampled_from(["", "2026-11-29T02:10:00Z exit 0, torchrun train.py"]),
)

CLOCKS = st.builds(
    Clock,
    node=NODES,
    service=st.one_of(st.sampled_from(["", "none", "chrony"]), TEXTS),
    synchronised=st.one_of(st.none(), st.booleans()),
    leap=st.one_of(st.sampled_from(["", "normal", "insert second"]), TEXTS),
    offset_ns=st.one_of(st.none(), st.integers(-(2**62), 2**62)),
    bound_ns=st.integers(0, 2**62),
    apart=st.booleans(),
)


FIGURES = st.one_of(st.none(), st.integers(0, 2**62))
CASES = st.builds(
    CheckedCase,
    name=TEXTS,
    status=st.sampled_from(CASE_STATUSES),
    exact=st.booleans(),
    digest=TEXTS,
    reason=TEXTS,
    repeats=st.integers(0, 2**31),
    wrong_repeats=st.integers(0, 2**31),
    mismatch=st.one_of(st.just({}), st.just({"wrong": 1, "flipped_bits": [3]})),
    median_ns=FIGURES,
    milli_tflops=FIGURES,
    milli_gbps=FIGURES,
)
READINGS = st.sampled_from(
    [
        {},
        {"sm_clock_mhz": {"median": 2, "least": 1, "most": 3}, "throttle": ["sw_power_cap"]},
        {"throttle": 7},
    ]
)
DEVICES = st.builds(
    CheckedDevice,
    node=NODES,
    ordinal=st.sampled_from(["0", "1"]),
    kind=st.sampled_from(["cuda", "cpu", ""]),
    card=st.dictionaries(st.sampled_from(["model", "torch"]), TEXTS),
    uuid=TEXTS,
    cases=st.lists(CASES, max_size=3).map(lambda cases: {case.name: case for case in cases}),
    readings=READINGS,
)


@st.composite
def reports(draw: Any) -> Report:
    """A report of anything."""
    found = tuple(sorted(draw(st.lists(findings(), max_size=4)), key=lambda finding: finding.rank))
    return Report(
        command=draw(st.sampled_from(["diff", "show", "log"])),
        tool="0.1.0",
        verdict=Verdict.of(found, draw(st.sampled_from(["error", "warning", "info"]))),
        findings=found,
        drifts=tuple(drift for finding in found for drift in finding.drifts),
        missing=draw(st.dictionaries(NODES, MISSING, max_size=2)),
        nodes=tuple(draw(st.lists(NODES, max_size=4, unique=True))),
        sections=draw(st.sampled_from([(), ("gpu",), ("env", "gpu")])),
        comparing=draw(st.booleans()),
        reference=draw(st.sampled_from(["", "node[01-02]@good"])),
        outcome=draw(st.one_of(st.just(""), TEXTS)),
        elapsed_s=draw(st.floats(0, 100)),
        verbose=draw(st.booleans()),
        facts=tuple(draw(st.lists(FINGERPRINTS, max_size=2, unique_by=lambda one: one.node))),
        timeline=tuple(draw(st.lists(MOMENTS, max_size=2))),
        clocks=tuple(draw(st.lists(CLOCKS, max_size=3, unique_by=lambda one: one.node))),
        clock_basis=draw(st.sampled_from(["median", "pair", "here", "alone"])),
        checks=tuple(draw(st.lists(DEVICES, max_size=3))),
        collectives=tuple(draw(st.lists(RUNS, max_size=2))),
        stages=tuple(Stage("step", text, 0.5) for text in draw(st.lists(TEXTS, max_size=1))),
    )
