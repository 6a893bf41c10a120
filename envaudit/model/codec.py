"""Snapshots as text and back, with every claim of the text checked.

A document is one JSON object whose first line holds the head alone, so that a store can list
nodes and digests without reading the rest. Sections, and notes with errors, that are equal on
several nodes are written once and referred to by digest.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Mapping, NoReturn, Tuple

from envaudit.errors import InputError
from envaudit.model.canonical import MAX_DEPTH, canonical_json, check_fact, digest_of
from envaudit.model.fingerprint import MISSING_KINDS, SOURCES, Fingerprint, Missing, Snapshot
from envaudit.model.section import STATUSES, Section

FORMAT = "envaudit.snapshot"
SCHEMA = 1

# Highest schema of each section that this version reads. A section that is not listed is read at
# any schema: it came from a newer probe, and comparing it exactly is all that can be done with it.
SECTION_SCHEMAS: Mapping[str, int] = {
    "checks": 1,
    "clock": 1,
    "collectives": 1,
    "conda": 1,
    "cuda": 1,
    "deep": 1,
    "env": 1,
    "git": 1,
    "gpu": 1,
    "host": 1,
    "integrity": 1,
    "libraries": 1,
    "limits": 3,
    "network": 1,
    "packages": 1,
    "python": 1,
    "storage": 1,
    "topology": 1,
    "torch": 1,
}

# A node's name before any transport or path sees it: ssh would take `-oProxyCommand=...` for an
# option, a store `../../etc/x` for a path.
NODE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,252}\Z")
_SECTION_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}\Z")
UTC_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z\Z", re.ASCII)
_MAX_DIGITS = 20
_MAX_ERRORS = 256


def encode_snapshot(snapshot: Snapshot, *, captured_at: str, tool: str) -> str:
    """A snapshot as a document; the head stands alone on the first line."""
    sections: Dict[str, object] = {}
    details: Dict[str, object] = {}
    nodes: Dict[str, object] = {}
    fingerprints: Dict[str, Dict[str, Tuple[str, str]]] = {}
    for fingerprint in snapshot.fingerprints:
        rows = {}
        for name, section in fingerprint.sections.items():
            row: Dict[str, object] = {
                "name": name,
                "schema": section.schema,
                "status": section.status,
                "facts": section.facts,
            }
            if section.whole:
                row["whole"] = list(section.whole)
            sections[section.digest] = row
            detail = {"notes": section.notes, "errors": list(section.errors)}
            detail_digest = digest_of(detail)
            details[detail_digest] = detail
            rows[name] = (section.digest, detail_digest)
        fingerprints[fingerprint.node] = rows
        nodes[fingerprint.node] = {
            "digest": fingerprint.digest,
            "source": fingerprint.source,
            "captured_at": fingerprint.captured_at,
            "tool": fingerprint.tool,
        }
    missing = {
        node: {"kind": gone.kind, "why": gone.why, "next_step": gone.next_step}
        for node, gone in snapshot.missing.items()
    }
    head = {
        "format": FORMAT,
        "schema": SCHEMA,
        "tool": tool,
        "captured_at": captured_at,
        "nodes": nodes,
        "missing": missing,
    }
    body = {"sections": sections, "details": details, "fingerprints": fingerprints}
    return f'{{"head":{canonical_json(head)},\n{canonical_json(body)[1:]}\n'


def decode_head(first_line: str, where: str) -> Dict[str, Any]:
    """The head of a document from its first line alone; node digests are claims, not checked."""
    prefix = '{"head":'
    if not first_line.startswith(prefix) or not first_line.rstrip().endswith(","):
        raise InputError(
            "not an envaudit snapshot",
            where=where,
            next_step="Give a file written by 'envaudit snapshot'.",
        )
    head = parse_json(first_line.rstrip()[len(prefix) : -1], where)
    _check_head(head, where)
    return head  # type: ignore[no-any-return]


def decode_snapshot(text: str, where: str) -> Snapshot:
    """A document back as a snapshot; section and fingerprint digests are recomputed.

    Raises:
        InputError: no JSON, not a snapshot, an unknown schema, or a digest that differs.
    """
    document = parse_json(text, where)
    expect(document, dict, where)
    if "head" not in document:
        raise InputError(
            "not an envaudit snapshot", where=where, next_step="Give a file written by 'envaudit snapshot'."
        )
    head = document["head"]
    _check_head(head, where)
    sections = _decode_sections(document.get("sections"), f"{where}: sections")
    details = _decode_details(document.get("details"), f"{where}: details")
    rows = document.get("fingerprints")
    expect(rows, dict, f"{where}: fingerprints")
    if sorted(rows) != sorted(head["nodes"]):
        raise InputError("head and fingerprints name different nodes", where=where)
    built: List[Fingerprint] = []
    cache: Dict[Tuple[str, str], Section] = {}
    for node, row in rows.items():
        claim = head["nodes"][node]
        fingerprint = Fingerprint(
            node=node,
            source=claim["source"],
            captured_at=claim["captured_at"],
            tool=claim["tool"],
            sections=_join_sections(row, sections, details, cache, f"{where}: fingerprints.{node}"),
        )
        if fingerprint.digest != claim["digest"]:
            raise InputError(
                "digest differs from the content", where=f"{where}: fingerprints.{node}", why="corrupt"
            )
        built.append(fingerprint)
    missing = {
        node: Missing(gone["kind"], gone["why"], gone["next_step"]) for node, gone in head["missing"].items()
    }
    return Snapshot(fingerprints=tuple(built), missing=missing)


def fingerprint_of_answer(answer: object, *, node: str, source: str, where: str) -> Fingerprint:
    """A fingerprint from what a probe said; the node's name is the caller's, never the answer's.

    Raises:
        InputError: the answer has another shape, with the key path of the first fault.
    """
    expect(answer, dict, where)
    assert isinstance(answer, dict)
    for key in ("captured_at", "tool"):
        expect(answer.get(key), str, f"{where}.{key}")
    _check_time(answer["captured_at"], f"{where}.captured_at")
    rows = answer.get("sections")
    expect(rows, list, f"{where}.sections")
    assert isinstance(rows, list)
    sections = {}
    for index, row in enumerate(rows):
        section = section_of_mapping(row, f"{where}.sections[{index}]")
        sections[section.name] = section
    return Fingerprint(
        node=node,
        source=source,
        captured_at=answer["captured_at"],
        tool=answer["tool"][:64],
        sections=sections,
    )


def section_of_mapping(row: object, where: str) -> Section:
    """One section from a JSON object with name, schema, status, facts, notes and errors."""
    expect(row, dict, where)
    assert isinstance(row, dict)
    name = row.get("name")
    expect(name, str, f"{where}.name")
    assert isinstance(name, str)
    if not _SECTION_NAME.match(name):
        raise InputError("not a section name", where=f"{where}.name")
    schema = row.get("schema")
    expect(schema, int, f"{where}.schema")
    assert isinstance(schema, int)
    known = SECTION_SCHEMAS.get(name, schema)
    if schema < 1 or schema > known:
        raise InputError(
            f"schema {schema} of section {name} is unknown",
            where=where,
            why=f"this envaudit reads up to {known}",
            next_step="Upgrade envaudit on this machine.",
        )
    if row.get("status") not in STATUSES:
        raise InputError(f"expected one of {', '.join(STATUSES)}", where=f"{where}.status")
    for key in ("facts", "notes"):
        expect(row.get(key, {}), dict, f"{where}.{key}")
        check_fact(row.get(key, {}), f"{where}.{key}")
    return Section(
        name=name,
        schema=schema,
        status=row["status"],
        facts=row.get("facts", {}),
        notes=row.get("notes", {}),
        errors=_texts(row.get("errors", []), f"{where}.errors"),
        whole=_texts(row.get("whole", []), f"{where}.whole"),
    )


def parse_json(text: str, where: str) -> Any:
    """JSON without floats, NaN, huge integers, duplicate keys or bottomless nesting.

    Raises:
        InputError: saying which, with line and column where the parser knows them.
    """

    def refuse_float(token: str) -> NoReturn:
        raise InputError(f"floats are not facts: {token[:40]}", where=where)

    def read_integer(token: str) -> int:
        if len(token.lstrip("-")) > _MAX_DIGITS:
            raise InputError(f"integer of {len(token)} digits", where=where)
        return int(token)

    def unique(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
        mapping = dict(pairs)
        if len(mapping) != len(pairs):
            raise InputError("a key occurs twice in one object", where=where)
        return mapping

    try:
        return json.loads(
            text,
            parse_float=refuse_float,
            parse_constant=refuse_float,
            parse_int=read_integer,
            object_pairs_hook=unique,
        )
    except json.JSONDecodeError as error:
        raise InputError(
            f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}", where=where
        ) from None
    except RecursionError:
        raise InputError(f"nested deeper than {MAX_DEPTH}", where=where) from None


def expect(value: object, kind: type, where: str) -> None:
    """Refuse a value of another JSON type: `where: expected int, got str`."""
    wrong_bool = kind is int and isinstance(value, bool)
    if wrong_bool or not isinstance(value, kind):
        got = "nothing" if value is None else type(value).__name__
        raise InputError(f"expected {kind.__name__}, got {got}", where=where)


def _check_head(head: Any, where: str) -> None:
    expect(head, dict, f"{where}: head")
    if head.get("format") != FORMAT:
        raise InputError(
            "not an envaudit snapshot", where=where, next_step="Give a file written by 'envaudit snapshot'."
        )
    expect(head.get("schema"), int, f"{where}: head.schema")
    if not 1 <= head["schema"] <= SCHEMA:
        raise InputError(
            f"schema {head['schema']} is unknown",
            where=where,
            why=f"this envaudit reads up to {SCHEMA}",
            next_step="Upgrade envaudit.",
        )
    expect(head.get("tool"), str, f"{where}: head.tool")
    expect(head.get("captured_at"), str, f"{where}: head.captured_at")
    _check_time(head["captured_at"], f"{where}: head.captured_at")
    expect(head.get("nodes"), dict, f"{where}: head.nodes")
    for node, claim in head["nodes"].items():
        here = f"{where}: head.nodes.{node}"
        _check_node(node, here)
        expect(claim, dict, here)
        for key in ("digest", "source", "captured_at", "tool"):
            expect(claim.get(key), str, f"{here}.{key}")
        _check_time(claim["captured_at"], f"{here}.captured_at")
        if claim["source"] not in SOURCES:
            raise InputError(f"expected one of {', '.join(SOURCES)}", where=f"{here}.source")
    expect(head.get("missing"), dict, f"{where}: head.missing")
    for node, gone in head["missing"].items():
        here = f"{where}: head.missing.{node}"
        _check_node(node, here)
        if node in head["nodes"]:
            raise InputError("the node is there and missing", where=here, why="corrupt")
        expect(gone, dict, here)
        for key in ("kind", "why", "next_step"):
            expect(gone.get(key), str, f"{here}.{key}")
        if gone["kind"] not in MISSING_KINDS:
            raise InputError(f"expected one of {', '.join(MISSING_KINDS)}", where=f"{here}.kind")


def _check_node(node: str, where: str) -> None:
    if not NODE_NAME.match(node):
        raise InputError("not a node name", where=where)


def _check_time(text: str, where: str) -> None:
    if not UTC_TIME.match(text):
        raise InputError("expected a UTC time such as 2026-11-30T10:00:00Z", where=where)


def _decode_sections(table: Any, where: str) -> Dict[str, Section]:
    expect(table, dict, where)
    sections = {}
    for digest, row in table.items():
        section = section_of_mapping(row, f"{where}.{digest[:8]}")
        if section.digest != digest:
            raise InputError("digest differs from the content", where=f"{where}.{digest[:8]}", why="corrupt")
        sections[digest] = section
    return sections


def _decode_details(table: Any, where: str) -> Dict[str, Tuple[Dict[str, Any], Tuple[str, ...]]]:
    expect(table, dict, where)
    details = {}
    for digest, row in table.items():
        here = f"{where}.{digest[:8]}"
        expect(row, dict, here)
        expect(row.get("notes"), dict, f"{here}.notes")
        check_fact(row["notes"], f"{here}.notes")
        errors = _texts(row.get("errors"), f"{here}.errors")
        if digest_of({"notes": row["notes"], "errors": list(errors)}) != digest:
            raise InputError("digest differs from the content", where=here, why="corrupt")
        details[digest] = (row["notes"], errors)
    return details


def _join_sections(
    row: Any,
    sections: Mapping[str, Section],
    details: Mapping[str, Tuple[Dict[str, Any], Tuple[str, ...]]],
    cache: Dict[Tuple[str, str], Section],
    where: str,
) -> Dict[str, Section]:
    expect(row, dict, where)
    joined = {}
    for name, pair in row.items():
        expect(pair, list, f"{where}.{name}")
        for digest in pair:
            expect(digest, str, f"{where}.{name}")
        if len(pair) != 2 or pair[0] not in sections or pair[1] not in details:
            raise InputError("refers to a section that the file does not hold", where=f"{where}.{name}")
        key = (pair[0], pair[1])
        if key not in cache:
            cache[key] = sections[pair[0]].with_details(*details[pair[1]])
        if cache[key].name != name:
            raise InputError("refers to a section of another name", where=f"{where}.{name}")
        joined[name] = cache[key]
    return joined


def _texts(value: Any, where: str) -> Tuple[str, ...]:
    expect(value, list, where)
    if len(value) > _MAX_ERRORS:
        raise InputError(f"{len(value)} entries, at most {_MAX_ERRORS} are taken", where=where)
    for index, item in enumerate(value):
        expect(item, str, f"{where}[{index}]")
        check_fact(item, f"{where}[{index}]")
    return tuple(value)
