"""Source files as the Section `envfile`, which `envaudit.rules` judges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from envaudit.lock.credentials import cleaned, credential_in, is_secret_variable
from envaudit.lock.entries import Entry, Fault, Located
from envaudit.lock.names import conda_names_of
from envaudit.lock.sourcefile import SourceFile
from envaudit.model.canonical import Fact
from envaudit.model.section import Section

NAME = "envfile"
SCHEMA = 1


def section_of(sources: Sequence[SourceFile]) -> Section:
    """The facts of source files, in their order; no secret of theirs is among them.

    Each fact that stands in a file has `path`, `line` and `column`. `credential` says what kind
    of secret was left out of its text. A pip entry has `conda_name`, the conda package that holds
    the same distribution.
    """
    return Section(NAME, SCHEMA, "ok", {"sources": [_source(source) for source in sources]})


def _source(source: SourceFile) -> dict[str, Fact]:
    return {
        "path": source.path,
        "encoding": source.encoding,
        "has_mark": source.has_mark,
        "channels": [_located(each) for each in source.channels],
        "platforms": [_located(each) for each in source.platforms],
        "pip_sections": [_located(each) for each in source.pip_sections],
        "pip_repositories": [_located(each) for each in source.pip_repositories],
        "variables": [_variable(name, value) for name, value in source.variables],
        "prefix": None if source.prefix is None else _located(source.prefix),
        "name": None if source.name is None else _located(source.name),
        "entries": [_entry(each) for each in source.entries()],
        "faults": [_fault(each) for each in source.faults],
    }


def _located(one: Located) -> dict[str, Fact]:
    fact: dict[str, Fact] = {"text": cleaned(one.text), "line": one.line, "column": one.column}
    return {**fact, "path": one.path, **_credential(one.text)}


def _variable(name: str, value: Located) -> dict[str, Fact]:
    secret = is_secret_variable(name, value.text)
    fact: dict[str, Fact] = {"text": name, "line": value.line, "column": value.column, "path": value.path}
    return {**fact, "credential": "the value of a secret"} if secret else fact


def _fault(fault: Fault) -> dict[str, Fact]:
    return {field.name: _cleaned(getattr(fault, field.name)) for field in fields(fault)}


def _entry(entry: Entry) -> dict[str, Fact]:
    """What the entry says; what it leaves open is left out, but for the name and version."""
    fact: dict[str, Fact] = {
        field.name: _cleaned(getattr(entry, field.name))
        for field in fields(entry)
        if getattr(entry, field.name) not in ("", (), None, False)
    }
    fact.setdefault("name", "")
    fact.setdefault("key", "")
    fact.setdefault("version", "")
    if entry.kind != "conda" and entry.key:
        fact["conda_name"] = conda_names_of(entry.key)[0]
    return {**fact, **_credential(entry.text)}


def _cleaned(value: object) -> Fact:
    if isinstance(value, tuple):
        return [cleaned(item) for item in value]
    if isinstance(value, str):
        return cleaned(value)
    assert value is None or isinstance(value, (int, bool)), value
    return value


def _credential(text: str) -> dict[str, Fact]:
    kind = credential_in(text)
    return {"credential": kind} if kind else {}
