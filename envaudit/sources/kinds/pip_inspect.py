"""`pip inspect`: every distribution with installer and origin, and the interpreter's own words.

Taken: version, installer, direct URL and editable of each distribution; of the interpreter its
version and implementation, of the host its architecture and kernel. Which folder each lies in and
the commit of an editable checkout are not taken: paths are those of the other machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from envaudit.errors import InputError
from envaudit.model.section import Section
from envaudit.sources.documents import json_of, table_at, tables_at, text_at
from envaudit.sources.setting import Setting
from envaudit.sources.tables import is_name, is_version, lock_section, normalised, packages_section

KIND = "pip inspect"
IS_LOCK = True


def matches(text: str) -> bool:
    """Whether it is one JSON object with pip's version and what is installed."""
    return (
        text.lstrip().startswith("{")
        and re.search(r'"pip_version"\s*:', text) is not None
        and re.search(r'"installed"\s*:', text) is not None
    )


def read(text: str, where: str, setting: Setting) -> list[Section]:
    """Sections `packages`, `python` and `host`.

    Raises:
        InputError: no JSON, or a report of another version.
    """
    report = json_of(text, where)
    if not isinstance(report, dict) or text_at(report, "version") != "1":
        raise InputError(
            f"version {text_at(report, 'version')[:20]!r} of pip's report is not known", where=where
        )
    distributions: dict[str, Any] = {}
    twice: dict[str, list[str]] = {}
    errors: list[str] = []
    for index, row in enumerate(tables_at(report, "installed")):
        name, version = text_at(row, "metadata", "name"), text_at(row, "metadata", "version")
        if not is_name(name) or not is_version(version):
            errors.append(f"installed[{index}]: no name and version")
            continue
        key = normalised(name)
        if key in distributions:
            twice.setdefault(key, [distributions[key]["version"]]).append(version)
            continue
        distributions[key] = _facts(row, version, setting)
    notes = {"pip": text_at(report, "pip_version")[:40]}
    section = packages_section(distributions, whole=not errors, notes=notes, errors=errors)
    section.facts["duplicates"] = twice
    return [section, *_of_environment(table_at(report, "environment")), lock_section(setting.platform, None)]


def _facts(row: Mapping[str, Any], version: str, setting: Setting) -> dict[str, Any]:
    facts: dict[str, Any] = {"version": version, "installer": text_at(row, "installer").lower()[:64] or None}
    origin = table_at(row, "direct_url")
    if not origin or facts["installer"] == "conda":
        return facts
    if table_at(origin, "dir_info").get("editable") is True:
        return {**facts, "editable": True}
    url = text_at(origin, "url")
    hashes = sorted(f"{kind}={digest}" for kind, digest in table_at(origin, "archive_info", "hashes").items())
    found = {
        "url": "local" if url.startswith("file:") else setting.clean(url),
        "commit": text_at(origin, "vcs_info", "commit_id"),
        "revision": text_at(origin, "vcs_info", "requested_revision"),
        "hash": hashes[0] if hashes else text_at(origin, "archive_info", "hash"),
    }
    facts["direct_url"] = {key: value for key, value in found.items() if value}
    return facts


def _of_environment(said: Mapping[str, Any]) -> list[Section]:
    """What PEP 508's variables say of interpreter and host."""
    python = {
        "version": text_at(said, "python_full_version"),
        "implementation": text_at(said, "implementation_name"),
    }
    host = {"architecture": text_at(said, "platform_machine"), "kernel": text_at(said, "platform_release")}
    return [
        Section(name, 1, "partial", {key: value for key, value in facts.items() if value})
        for name, facts in (("python", python), ("host", host))
        if any(facts.values())
    ]
