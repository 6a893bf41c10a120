"""`conda list --json`, also mamba's and micromamba's: every package of the environment.

Taken: version, build, channel and the hashes that are there. Rows of channel `pypi` are what pip
put there: they are distributions, whose list is not taken for whole, for a conda package is a
distribution too. Name and place of the environment are unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from envaudit.errors import InputError
from envaudit.model.section import Section
from envaudit.sources.documents import json_of, tables_at, text_at
from envaudit.sources.setting import Setting
from envaudit.sources.tables import (
    TOOLING,
    conda_package,
    conda_section,
    is_build,
    is_name,
    is_version,
    lock_section,
    normalised,
    packages_section,
)

KIND = "conda list --json"
IS_LOCK = True


def matches(text: str) -> bool:
    """Whether it is a JSON list of objects with build strings."""
    start = text.lstrip()[:4096]
    return re.match(r"\[\s*\{", start) is not None and re.search(r'"build_string"\s*:', text) is not None


def read(text: str, where: str, setting: Setting) -> list[Section]:
    """Sections `conda` and `packages`.

    Raises:
        InputError: no JSON.
    """
    rows = json_of(text, where)
    if not isinstance(rows, list):
        raise InputError("expected a list of packages", where=where)
    conda: dict[str, Any] = {}
    pip: dict[str, Any] = {}
    errors = [] if all(isinstance(row, dict) for row in rows) else ["a row that is no object"]
    platforms = set()
    for index, row in enumerate(tables_at({"rows": rows}, "rows")):
        name, version = text_at(row, "name"), text_at(row, "version")
        build, channel = text_at(row, "build_string"), text_at(row, "channel")
        if not (is_name(name) and is_version(version) and (is_build(build) or not build)):
            errors.append(f"[{index}]: no name, version and build")
        elif channel == "pypi":
            pip[normalised(name)] = {"version": version}
        else:
            conda[name] = conda_package(version, build, _channel(row, setting), row)
            platforms.add(text_at(row, "platform"))
    sections = [conda_section(conda, whole=not errors, errors=errors)]
    if pip:
        sections.append(packages_section(pip, whole=False))
    of_machine = {platform for platform in platforms if platform not in ("", "noarch")}
    return [*sections, lock_section(setting.platform, of_machine or None, unlisted=TOOLING)]


def _channel(row: Mapping[str, Any], setting: Setting) -> str:
    """The channel's own address where the row has it: the name alone does not tell a mirror's."""
    base, channel = text_at(row, "base_url"), text_at(row, "channel")
    named = f"{base.rstrip('/')}/{channel}" if base and not base.rstrip("/").endswith(channel) else base
    return setting.channel_name(named or channel)
