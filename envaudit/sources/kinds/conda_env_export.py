"""`conda env export`: every package with its build, and what pip put beside them.

Taken: name and place of the environment, version and build of each package, the channel where a
line names it, the pip part. A file that asks (`numpy=1.26`, `python>=3.10`) is an environment file
to be locked, not a report of what was there; `--no-builds` is told from it by its `prefix`.
"""

from __future__ import annotations

import re
from typing import Any

from envaudit.errors import InputError
from envaudit.model.section import Section
from envaudit.sources.documents import rows_at, shown, text_at, yaml_of
from envaudit.sources.kinds.pip_freeze import facts_of
from envaudit.sources.pins import Options, Pin, pin_of
from envaudit.sources.setting import Setting
from envaudit.sources.tables import (
    TOOLING,
    conda_package,
    conda_section,
    is_name,
    lock_section,
    packages_section,
)

KIND = "conda env export"
IS_LOCK = True

_LINE = r"^[ \t]*-[ \t]+['\"]?(?:[\w.:/+-]+::)?[\w.-]+=[\w.!+-]+=[\w.+-]+['\"]?[ \t]*(?:#.*)?$"
_PACKAGE = re.compile(
    r"(?:(?P<channel>\S+)::)?(?P<name>[\w.-]+)==?(?P<version>[\w.!+~-]+)(?:=(?P<build>[\w.+-]+))?\Z"
)


def matches(text: str) -> bool:
    """Whether it has `dependencies:`, and lines with a build, or the place of an environment."""
    if re.search(r"^dependencies[ \t]*:", text, re.MULTILINE) is None:
        return False
    builds = re.search(_LINE, text, re.MULTILINE) is not None
    return builds or re.search(r"^prefix[ \t]*:", text, re.MULTILINE) is not None


def read(text: str, where: str, setting: Setting) -> list[Section]:
    """Sections `conda` and `packages`.

    Raises:
        InputError: a dependency that is not exact, so that the file asks rather than tells.
    """
    document = yaml_of(text, where)
    conda: dict[str, Any] = {}
    pip: dict[str, Any] = {}
    errors: list[str] = []
    for index, row in enumerate(rows_at(document, "dependencies")):
        place = f"dependencies[{index}]"
        if isinstance(row, dict) and list(row) == ["pip"]:
            pip.update(_of_pip(rows_at(row, "pip"), setting, errors))
            continue
        match = _PACKAGE.match(row.strip()) if isinstance(row, str) else None
        if match is None or not is_name(match["name"]):
            raise InputError(
                f"{place} is not exact, so the file asks for an environment and tells of none",
                where=where,
                why=shown(row),
                next_step="Lock it with 'envaudit lock', or export without --from-history.",
            )
        channel = setting.channel_name(match["channel"]) if match["channel"] else ""
        conda[match["name"]] = conda_package(match["version"], match["build"] or "", channel)
    facts = {key: text_at(document, key)[:1024] for key in ("name", "prefix") if text_at(document, key)}
    channels = [setting.clean(each) for each in rows_at(document, "channels") if isinstance(each, str)]
    sections = [conda_section(conda, whole=True, facts=facts, notes={"channels": channels[:64]})]
    if pip or errors:
        sections.append(packages_section(pip, whole=False, errors=errors))
    return [*sections, lock_section(setting.platform, None, unlisted=TOOLING)]


def _of_pip(rows: list[Any], setting: Setting, errors: list[str]) -> dict[str, Any]:
    found = {}
    for row in rows:
        pin = pin_of(row.strip()) if isinstance(row, str) else None
        if isinstance(pin, Pin) and pin.name:
            found[pin.name] = facts_of(pin, setting)
        elif not isinstance(pin, (Pin, Options)):
            errors.append(f"pip: {shown(row)!r} pins nothing")
    return found
