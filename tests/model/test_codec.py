"""Snapshots as text: shared once, every claim checked, every fault named with its key path."""

from __future__ import annotations

import json
from typing import Any, Callable, Dict

import pytest

from envaudit.errors import InputError
from envaudit.model import Fingerprint, Missing, Section, Snapshot
from envaudit.model.codec import (
    NODE_NAME,
    SECTION_SCHEMAS,
    decode_head,
    decode_snapshot,
    encode_snapshot,
    fingerprint_of_answer,
    parse_json,
)

TIME = "2026-11-30T10:00:00Z"
# Digits to `int` and to an unwary expression, and in no file name or tag of a store.
ARABIC_TIME = "٢٠٢٦-11-30T10:00:00Z"


def _fingerprint(node: str, driver: str = "550.54.15", serial: str = "") -> Fingerprint:
    sections = {
        "gpu": Section("gpu", 1, "ok", {"driver": driver}, {"serial": serial or node}),
        "host": Section("host", 1, "partial", {"cpus": 8}, {}, ("dmi: permission denied",)),
    }
    return Fingerprint(node, "probe", TIME, "1.0", sections)


SNAPSHOT = Snapshot(
    (_fingerprint("node01"), _fingerprint("node02"), _fingerprint("node03", "550.54.14")),
    {"node04": Missing("unreachable", "no route to host (ssh)", "Check that 'ssh node04 true' works.")},
)


def _text(snapshot: Snapshot = SNAPSHOT) -> str:
    return encode_snapshot(snapshot, captured_at=TIME, tool="1.0")


def _changed(change: Callable[[Dict[str, Any]], Any]) -> str:
    document = json.loads(_text())
    change(document)
    return json.dumps(document)


def test_encode_equal_sections_are_written_once() -> None:
    """Three nodes with two GPU states and one host state are three sections, not six."""
    document = json.loads(_text())
    assert 3 == len(document["sections"])
    # The serial numbers differ on each node; the host's notes and errors do not.
    assert 4 == len(document["details"])


def test_encode_twice_is_the_same_text() -> None:
    """The text depends on the snapshot alone, also on the order in which nodes answered."""
    turned = Snapshot(SNAPSHOT.fingerprints[::-1], SNAPSHOT.missing)
    assert _text() == _text(turned)


def test_decode_equal_sections_are_one_object() -> None:
    """A thousand equal nodes cost the memory of one."""
    one, two, three = decode_snapshot(_text(), "here").fingerprints
    assert one.sections["host"] is two.sections["host"] is three.sections["host"]
    assert one.sections["gpu"].facts is two.sections["gpu"].facts
    assert {"serial": "node02"} == two.sections["gpu"].notes


def test_decode_missing_nodes_keep_cause_and_next_step() -> None:
    """What was known about a node that did not answer is still known later."""
    assert SNAPSHOT.missing == decode_snapshot(_text(), "here").missing


def test_head_of_a_snapshot_is_its_first_line() -> None:
    """Nodes, digests and missing nodes come from the first line alone."""
    head = decode_head(_text().split("\n", 1)[0], "here")
    assert SNAPSHOT.fingerprints[0].digest == head["nodes"]["node01"]["digest"]
    assert ["node04"] == list(head["missing"])


def test_node_that_is_there_and_missing_is_refused() -> None:
    """No writer leaves that, and a reader could believe the one or the other."""
    document = json.loads(_text())
    document["head"]["missing"]["node01"] = document["head"]["missing"]["node04"]
    with pytest.raises(InputError, match=r"^here: head.missing.node01: the node is there and missing"):
        decode_snapshot(json.dumps(document), "here")


@pytest.mark.parametrize(
    "line", ["", "\n", "{}", '{"nodes": {}}', '{"head":{}', "[1,", "\x00\x01", '{"head":[],']
)
def test_head_of_something_else_is_refused(line: str) -> None:
    """Another JSON file is no snapshot, and an empty one neither."""
    with pytest.raises(InputError, match=r"^here: "):
        decode_head(line, "here")


def _digest_of(document: Dict[str, Any], name: str) -> str:
    return next(str(key) for key, row in document["sections"].items() if row["name"] == name)


def _set(*keys: str, value: Any) -> Callable[[Dict[str, Any]], None]:
    def change(document: Dict[str, Any]) -> None:
        place = document
        for key in keys[:-1]:
            place = place[_digest_of(document, "host")] if key == "HOST" else place[key]
        place[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_set("head", "format", value="x"), "here: not an envaudit snapshot"),
        (_set("head", "schema", value=0), "here: schema 0 is unknown"),
        (_set("head", "schema", value=True), "here: head.schema: expected int, got bool"),
        (_set("head", "captured_at", value="yesterday"), "here: head.captured_at: expected a UTC time"),
        (_set("head", "captured_at", value=ARABIC_TIME), "here: head.captured_at: expected a UTC time"),
        (_set("head", "nodes", value=[]), "here: head.nodes: expected dict, got list"),
        (_set("head", "nodes", "node01", "digest", value=None), "node01.digest: expected str, got nothing"),
        (_set("head", "nodes", "node01", "source", value="guess"), "node01.source: expected one of probe"),
        (_set("head", "nodes", "node01", "digest", value="0" * 64), "digest differs from the content"),
        (_set("head", "nodes", "../../etc/x", value={}), "not a node name"),
        (_set("head", "nodes", "-oProxyCommand=x", value={}), "not a node name"),
        (_set("head", "missing", "../x", value={}), "not a node name"),
        (_set("head", "missing", "node04", "kind", value="lost"), "node04.kind: expected one of unreach"),
        (_set("sections", "HOST", "facts", value={"cpus": 9}), "digest differs from the content"),
        (_set("sections", "HOST", "facts", value={"cpus": 9.0}), "floats are not facts: 9.0"),
        (_set("sections", "HOST", "facts", value=None), "facts: expected dict, got nothing"),
        (_set("sections", "HOST", "status", value="fine"), "status: expected one of ok, partial"),
        (_set("sections", "HOST", "name", value="../x"), "not a section name"),
        (_set("sections", value={}), "refers to a section that the file does not hold"),
        (_set("details", value={}), "refers to a section that the file does not hold"),
        (_set("fingerprints", value={}), "head and fingerprints name different nodes"),
        (_set("fingerprints", "node01", "host", value=["x"]), "refers to a section that the file does not"),
        (_set("fingerprints", "node01", "host", value=[[], {}]), "node01.host: expected str, got list"),
        (lambda document: document.pop("head"), "here: not an envaudit snapshot"),
        (lambda document: document.pop("details"), "here: details: expected dict, got nothing"),
    ],
)
def test_decode_of_a_changed_document_names_the_fault(change: Any, expected: str) -> None:
    """No claim of the text is believed: shape, names, digests, references."""
    with pytest.raises(InputError) as caught:
        decode_snapshot(_changed(change), "here")
    assert expected in str(caught.value)


def test_decode_section_under_another_name_is_refused() -> None:
    """A GPU section cannot stand in as the host section."""

    def swap(document: Dict[str, Any]) -> None:
        row = document["fingerprints"]["node01"]
        row["gpu"], row["host"] = row["host"], row["gpu"]

    with pytest.raises(InputError, match="refers to a section of another name"):
        decode_snapshot(_changed(swap), "here")


def test_decode_changed_notes_are_refused() -> None:
    """Notes are not compared between nodes, but they are still protected against corruption."""

    def change(document: Dict[str, Any]) -> None:
        for detail in document["details"].values():
            detail["notes"] = {"serial": "other"}

    with pytest.raises(InputError, match=r"details.*digest differs"):
        decode_snapshot(_changed(change), "here")


def test_decode_newer_format_asks_for_an_upgrade() -> None:
    """A snapshot from a later envaudit is refused with what to do, exit code 4."""
    with pytest.raises(InputError, match=r"reads up to 1\)\. Upgrade envaudit\.") as caught:
        decode_snapshot(_changed(_set("head", "schema", value=2)), "here")
    assert 4 == caught.value.exit_code


@pytest.mark.parametrize("name", sorted(SECTION_SCHEMAS))
def test_decode_newer_section_schema_is_refused(name: str) -> None:
    """Facts whose meaning is not known are not compared as if it were."""
    newer = Section(name, SECTION_SCHEMAS[name] + 1, "ok", {"a": 1})
    text = _text(Snapshot((Fingerprint("node01", "probe", TIME, "9", {name: newer}),)))
    with pytest.raises(InputError, match=f"of section {name} is unknown"):
        decode_snapshot(text, "here")


def test_decode_older_section_schema_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an older envaudit wrote stays readable, with its schema number kept."""
    text = _text()
    monkeypatch.setitem(SECTION_SCHEMAS, "gpu", 3)
    assert 1 == decode_snapshot(text, "here").by_node["node01"].sections["gpu"].schema


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "not JSON: Expecting value at line 1, column 1"),
        ('{"a": 1', "not JSON"),
        ('{"a": 1, "a": 2}', "a key occurs twice"),
        ("1e3", "floats are not facts"),
        ("NaN", "floats are not facts"),
        ("-Infinity", "floats are not facts"),
        ("9" * 5000, "integer of 5000 digits"),
        ("[" * 100_000, "nested deeper than 32"),
    ],
    ids=["empty", "cut", "twice", "float", "nan", "infinity", "digits", "deep"],
)
def test_parse_json_of_hostile_text_is_refused(text: str, expected: str) -> None:
    """What could surprise later readers never gets in."""
    with pytest.raises(InputError, match=expected):
        parse_json(text, "here")


def test_parse_json_of_the_smallest_fact_is_read() -> None:
    """The sign is no digit: every integer that a fact may be is read back."""
    assert -(2**64) == parse_json(str(-(2**64)), "here")


@pytest.mark.parametrize(
    "name", ["node01", "10.0.0.1", "fe80::1", "a", "_x", "n" * 253, "GPU-1.cluster.local"]
)
def test_node_name_of_a_host_is_taken(name: str) -> None:
    """Host names and addresses of both families."""
    assert NODE_NAME.match(name)


@pytest.mark.parametrize(
    "name", ["", "-x", ".", "..", "../x", "a/b", "a b", "a\n", "a\x00", "ä", "@gpu", "a,b", "a[1]", "n" * 254]
)
def test_node_name_of_something_else_is_refused(name: str) -> None:
    """Nothing that ssh, a path or a node set would take for something else."""
    assert not NODE_NAME.match(name)


def _answer(**changes: Any) -> Dict[str, Any]:
    row = {"name": "host", "schema": 1, "status": "ok", "facts": {"cpus": 8}}
    answer: Dict[str, Any] = {"captured_at": TIME, "tool": "1.0", "sections": [row]}
    answer.update({key: value for key, value in changes.items() if key in answer})
    row.update({key: value for key, value in changes.items() if key in (*row, "notes", "errors")})
    return answer


def test_answer_of_a_probe_gets_the_callers_node_name() -> None:
    """A node cannot answer in the name of another one."""
    answer = dict(_answer(), node="node02")
    fingerprint = fingerprint_of_answer(answer, node="node01", source="probe", where="node01")
    assert ("node01", {"cpus": 8}) == (fingerprint.node, fingerprint.sections["host"].facts)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"captured_at": 5}, "node01.captured_at: expected str, got int."),
        ({"captured_at": "now"}, "node01.captured_at: expected a UTC time such as 2026-11-30T10:00:00Z."),
        ({"sections": {}}, "node01.sections: expected list, got dict."),
        ({"sections": [1]}, "node01.sections[0]: expected dict, got int."),
        ({"facts": {"a": {"b": 0.5}}}, "node01.sections[0].facts.a.b: expected str, int, bool, null, list"),
        ({"notes": []}, "node01.sections[0].notes: expected dict, got list."),
        ({"errors": "x"}, "node01.sections[0].errors: expected list, got str."),
        ({"errors": ["x"] * 300}, "node01.sections[0].errors: 300 entries, at most 256 are taken."),
        ({"schema": 0}, "node01.sections[0]: schema 0 of section host is unknown"),
        ({"schema": "1"}, "node01.sections[0].schema: expected int, got str."),
        ({"name": "Host"}, "node01.sections[0].name: not a section name."),
    ],
)
def test_answer_of_another_shape_names_the_key_path(changes: Dict[str, Any], expected: str) -> None:
    """An answer is untrusted, and the message says where it is wrong."""
    with pytest.raises(InputError) as caught:
        fingerprint_of_answer(_answer(**changes), node="node01", source="probe", where="node01")
    assert str(caught.value).startswith(expected)
