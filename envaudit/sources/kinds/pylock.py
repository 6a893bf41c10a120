"""`pylock.toml` (PEP 751): a lock of distributions for several machines.

A package whose `marker` or `requires-python` does not hold on the target is not expected. Extras
are not asked for, of dependency groups the file's `default-groups` are; what only others would
bring may be there, in the version that is locked. A directory is the project itself: it is no
package of the lock.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from envaudit.errors import InputError
from envaudit.model.section import Section
from envaudit.sources.documents import rows_at, tables_at, text_at, toml_of
from envaudit.sources.setting import Setting
from envaudit.sources.tables import (
    TOOLING,
    is_name,
    is_version,
    lock_section,
    normalised,
    packages_section,
)

KIND = "pylock.toml"
IS_LOCK = True


def matches(text: str) -> bool:
    """Whether it has a `lock-version` and tables of packages."""
    return (
        re.search(r"^lock-version\s*=", text, re.MULTILINE) is not None
        and re.search(r"^\[\[packages\]\]|^packages\s*=", text, re.MULTILINE) is not None
    )


def read(text: str, where: str, setting: Setting) -> list[Section]:
    """Sections `packages` and `lock`.

    Raises:
        InputError: no TOML, another major version of the format, a target that the lock does not
            serve, or a package without a name.
    """
    document = toml_of(text, where)
    if text_at(document, "lock-version").partition(".")[0] != "1":
        raise InputError(f"lock-version {text_at(document, 'lock-version')!r:.20} is not known", where=where)
    _check_target(document, where, setting)
    groups = frozenset(each for each in rows_at(document, "default-groups") if isinstance(each, str))
    others = frozenset(each for each in rows_at(document, "dependency-groups") if isinstance(each, str))
    extras = frozenset(each for each in rows_at(document, "extras") if isinstance(each, str))
    expected: dict[str, Any] = {}
    optional: dict[str, Any] = {}
    projects: set[str] = set()
    errors: list[str] = []
    for index, package in enumerate(tables_at(document, "packages")):
        name = text_at(package, "name")
        if not is_name(name):
            raise InputError(f"packages[{index}].name: expected a name", where=where)
        name = normalised(name)
        if "directory" in package:
            projects.add(name)
            continue
        marker = text_at(package, "marker")
        wanted = setting.holds(marker, extras=frozenset(), dependency_groups=groups)
        served = setting.serves(text_at(package, "requires-python"))
        facts = _facts(package, setting)
        if wanted is None or (wanted and served is None):
            errors.append(f"whether {name} is needed here is unknown ({marker[:80]})")
            expected.setdefault(name, None)
        elif wanted and served:
            _put(expected, name, facts, where)
        elif setting.holds(marker, extras=extras, dependency_groups=groups | others) is True:
            optional[name] = facts
    return [
        packages_section(expected, whole=True, left_out=TOOLING, errors=errors),
        lock_section(
            setting.platform,
            None,
            optional={name: facts for name, facts in optional.items() if name not in expected},
            unlisted={*TOOLING, *projects},
        ),
    ]


def _check_target(document: Mapping[str, Any], where: str, setting: Setting) -> None:
    """PEP 751: `requires-python` and one of `environments` must hold, where the lock has them."""
    wanted = text_at(document, "requires-python")
    if setting.python and setting.serves(wanted) is False:
        raise InputError(f"the lock is for Python {wanted[:40]}, not {setting.python}", where=where)
    markers = [each for each in rows_at(document, "environments") if isinstance(each, str)]
    if markers and all(setting.holds(marker) is False for marker in markers):
        raise InputError(
            f"the lock has nothing for {setting.platform}", where=where, why=f"it is for {markers[0][:80]}"
        )


def _put(expected: dict[str, Any], name: str, facts: dict[str, Any], where: str) -> None:
    known = expected.get(name)
    if known is not None and known.get("version") != facts.get("version"):
        raise InputError(
            f"{name} is expected in two versions on one machine",
            where=where,
            why=f"{known.get('version')} and {facts.get('version')}",
        )
    expected[name] = facts


def _facts(package: Mapping[str, Any], setting: Setting) -> dict[str, Any]:
    version = text_at(package, "version")
    facts: dict[str, Any] = {"version": version} if is_version(version) else {}
    if "vcs" in package:
        origin = {
            "url": setting.clean(text_at(package, "vcs", "url")),
            "commit": text_at(package, "vcs", "commit-id"),
        }
        facts["direct_url"] = {key: value for key, value in origin.items() if value}
    elif "archive" in package:
        facts["direct_url"] = {"url": setting.clean(text_at(package, "archive", "url")) or "local"}
    return facts
