"""No identity survives redaction, wherever it stands; what was alike stays alike."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Set

from hypothesis import given, settings
from hypothesis import strategies as st

from envaudit.model import Fingerprint, Section, Snapshot
from envaudit.model.codec import SECTION_SCHEMAS, decode_snapshot, encode_snapshot
from envaudit.model.fingerprint import Missing
from envaudit.model.redaction import redact

USERS = ("zebulon", "quux77", "Marigold")
HOSTS = ("wolf013", "fox-a2", "wolf014.den.example")
# Each is looked for in the redacted document; the user of a home and the short name of a host too.
IDENTITIES = (
    "10.77.1.9",
    "192.168.250.13",
    "fe80::a2:b3ff:fe04:5d06",
    "2001:db8:77::1f",
    "0c:42:a1:7e:99:01",
    "00:00:10:49:fe:80:00:00:00:00:00:00:b8:ce:f6:03:00:57:ab:cd",
    "b8ce:f603:0057:abce",
    "0xb8cef6030057abcf",
    "GPU-5d1c7b4a-0f6e-4c4a-9b43-2f1d1a3c7e55",
    "6a2e0d0e-9d43-4f41-8c9b-7e5f1f0a2b3c",
    "4f1c2b7a9d8e4c3f9a6b5d0e1f2a3b4c",
    "zoe.person@mail.example",
    "git@code.secretlab.example:team/moonshot.git",
    "https://wiki.secretlab.example/moonshot/notes",
    "vault.secretlab.internal",
    *(f"/home/{user}/x" for user in USERS),
    *HOSTS,
)
TRACES = (
    *(one for one in IDENTITIES if not one.startswith("/home")),
    *USERS,
    *("secretlab", "moonshot", "wolf013", "wolf014", "den.example"),
)

words = st.sampled_from(["", "failed: ", "read from ", "(", "x=", "'", "a, "])
ends = st.sampled_from(["", " again", ")", "'", ", b", ": no such file", "/24"])


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A text with an identity in it, or two."""
    parts = draw(st.lists(st.tuples(words, st.sampled_from(IDENTITIES), ends), min_size=1, max_size=2))
    return " ".join(f"{before}{identity}{after}" for before, identity, after in parts)


keys = st.sampled_from(["value", "devices", "path", "hostname", "uuid", "serial", "mode", "last words"])
leaves = st.one_of(texts(), st.integers(0, 9), st.booleans(), st.none(), st.just("2.21.5"))
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(keys, texts()), inner, max_size=3)
    ),
    max_leaves=8,
)
SECTIONS = ("env", "gpu", "host", "network", "git", "clock", "unheard_of")


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """Nodes whose sections are full of identities."""
    prints: List[Fingerprint] = []
    nodes = draw(st.lists(st.sampled_from([*HOSTS, "10.77.1.9"]), min_size=1, max_size=3, unique=True))
    for node in nodes:
        sections = {
            name: Section(
                name,
                1,
                "partial",
                draw(st.dictionaries(keys, values, max_size=3)),
                draw(st.dictionaries(st.one_of(keys, texts()), values, max_size=3)),
                tuple(draw(st.lists(texts(), max_size=2))),
            )
            for name in draw(st.lists(st.sampled_from(SECTIONS), max_size=3, unique=True))
        }
        # Names of hosts and users are known by where they stand, once in a snapshot.
        sections["host"] = Section(
            "host",
            1,
            "ok",
            {},
            {"hostname": node, "users": [f"/home/{user}" for user in USERS], "host": list(HOSTS)},
        )
        prints.append(Fingerprint(node, "probe", "2026-11-30T10:00:00Z", "0", sections))
    missing = {"wolf099": Missing("timeout", draw(texts()), draw(texts()))}
    return Snapshot(tuple(prints), missing)


@given(snapshots())
@settings(max_examples=100, deadline=None)
def test_no_identity_is_left_anywhere(snapshot: Snapshot) -> None:
    """Not in facts, notes, errors, keys, node names or reasons, in letters of either case."""
    text = encode_snapshot(redact(snapshot), captured_at="2026-11-30T10:00:00Z", tool="0").lower()
    assert [] == [trace for trace in (*TRACES, "wolf099") if trace.lower() in text]


@given(snapshots())
@settings(max_examples=60, deadline=None)
def test_redacted_document_is_read_back(snapshot: Snapshot) -> None:
    """Digests, nodes and shapes are whole: diff and show take it like any other."""
    redacted = redact(snapshot)
    text = encode_snapshot(redacted, captured_at="2026-11-30T10:00:00Z", tool="0")
    again = decode_snapshot(text, "redacted")
    assert (redacted.by_node, redacted.missing) == (again.by_node, again.missing)
    assert len(snapshot.fingerprints) == len({each.node for each in redacted.fingerprints})


@given(snapshots())
@settings(max_examples=60, deadline=None)
def test_alike_sections_stay_alike_and_others_stay_different(snapshot: Snapshot) -> None:
    """A pseudonym stands for one identity: no drift appears, and none is lost."""
    redacted = redact(snapshot)
    became: Dict[str, Set[str]] = {}
    pairs = [
        (old.sections[name].digest, new.sections[name].digest)
        for old, new in zip(snapshot.fingerprints, redacted.fingerprints)
        for name in old.sections
    ]
    for old_digest, new_digest in pairs:
        became.setdefault(old_digest, set()).add(new_digest)
    assert {1} == {len(new) for new in became.values()}
    assert len(became) == len({new for news in became.values() for new in news})


@given(st.text(max_size=300))
@settings(max_examples=200, deadline=None)
def test_any_text_is_redacted_without_an_error(text: str) -> None:
    """Whatever a node writes."""
    section = Section("host", 1, "ok", {"any": text, text: 1}, {text: text}, (text,))
    node = Fingerprint("n1", "probe", "2026-11-30T10:00:00Z", "0", {"host": section})
    redacted: Any = redact(Snapshot((node,))).fingerprints[0]
    assert ("node-1", "ok") == (redacted.node, redacted.sections["host"].status)


@given(
    st.from_regex(re.compile(r"\d{1,3}(\.\d{1,4}){1,3}(\+cu\d{3}|rc\d|\.post\d)?", re.ASCII), fullmatch=True)
)
def test_versions_survive(version: str) -> None:
    """Also those that look like an address."""
    facts: Dict[str, Any] = {"distributions": {"torch": {"version": version, "installer": "pip"}}}
    node = Fingerprint(
        "n1", "probe", "2026-11-30T10:00:00Z", "0", {"packages": Section("packages", 1, "ok", facts)}
    )
    assert facts == redact(Snapshot((node,))).fingerprints[0].sections["packages"].facts


def test_every_section_of_this_version_is_known() -> None:
    """The unheard-of one of these tests is not."""
    assert "unheard_of" not in SECTION_SCHEMAS
    assert set(SECTIONS) - {"unheard_of"} <= set(SECTION_SCHEMAS)
