"""`pixi.lock`, versions 4 to 6: conda packages and distributions for several platforms.

Expected is what the environment `default` has for the target's platform. Package names come from
the addresses where the file has no others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from envaudit.errors import InputError
from envaudit.model.section import Section
from envaudit.sources.documents import rows_at, table_at, tables_at, text_at, yaml_of
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
    of_url,
    packages_section,
)

KIND = "pixi.lock"
IS_LOCK = True

_VERSIONS = ("4", "5", "6")
_ENVIRONMENT = "default"
_LOWER_BOUND = re.compile(r">=?\s*([0-9]{1,9}(?:\.[0-9]{1,9})*)")


def matches(text: str) -> bool:
    """Whether it has a version, environments and packages, and is no conda-lock.yml."""
    keys = ("version", "environments", "packages")
    return all(re.search(rf"^{key}[ \t]*:", text, re.MULTILINE) for key in keys)


def read(text: str, where: str, setting: Setting) -> list[Section]:
    """Sections `conda`, `packages` and `lock`.

    Raises:
        InputError: no YAML, another version of the format, no such environment, or an entry that
            names no package.
    """
    document = yaml_of(text, where)
    if text_at(document, "version") not in _VERSIONS:
        raise InputError(
            f"version {text_at(document, 'version')[:20]!r} of pixi's lock is not known",
            where=where,
            why=f"{', '.join(_VERSIONS)} are",
        )
    environments = table_at(document, "environments")
    if _ENVIRONMENT not in environments:
        raise InputError(f"there is no environment '{_ENVIRONMENT}'", where=where)
    platforms = table_at(environments, _ENVIRONMENT, "packages")
    rows = {address: row for row in tables_at(document, "packages") for address in _addresses(row)}
    conda: dict[str, Any] = {}
    pip: dict[str, Any] = {}
    projects = set()
    depends: list[str] = []
    for index, entry in enumerate(tables_at(platforms, setting.platform)):
        place = f"environments.{_ENVIRONMENT}.packages.{setting.platform}[{index}]"
        (address,) = list(_addresses(entry)) or [""]
        row = rows.get(address, {})
        if "conda" in entry:
            name, facts = _conda(address, row, setting)
            conda[name] = facts
            depends += [each for each in rows_at(row, "depends") if isinstance(each, str)]
        else:
            name, version = text_at(row, "name"), text_at(row, "version")
            if address.startswith(".") or "://" not in address:
                projects.add(normalised(name))
                continue
            pip[normalised(name)] = {"version": version} if is_version(version) else {}
        if not is_name(name):
            raise InputError(f"{place}: names no package", where=where, why=address[:80])
    return [
        conda_section(conda, whole=True),
        packages_section(pip, whole=False),
        lock_section(
            setting.platform,
            platforms,
            unlisted={*TOOLING, *projects},
            virtual_packages=_needed(depends),
        ),
    ]


def _addresses(row: Mapping[str, Any]) -> Iterable[str]:
    """The address that names an entry: under its manager's key, or as `url` in older versions."""
    for key in ("conda", "pypi", "url", "path"):
        if isinstance(row.get(key), str):
            return (row[key],)
    return ()


def _conda(address: str, row: Mapping[str, Any], setting: Setting) -> tuple[str, dict[str, Any]]:
    parts = of_url(address)
    hashes = {key: text_at(row, key) for key in ("md5", "sha256")}
    if parts is None:
        # Built from a source folder.
        name, version, build = text_at(row, "name"), text_at(row, "version"), text_at(row, "build")
        said = conda_package(version if is_version(version) else "", build if is_build(build) else "")
        return name, said
    name, version, build, channel, _ = parts
    return name, conda_package(version, build, setting.channel_name(channel), hashes)


def _needed(depends: Iterable[str]) -> dict[str, str]:
    """`__cuda` and `__glibc` to the highest lower bound that a package asks for."""
    bounds: dict[str, list[str]] = {}
    for spec in depends:
        name = spec.partition(" ")[0]
        if name in ("__cuda", "__glibc"):
            bounds.setdefault(name, []).extend(_LOWER_BOUND.findall(spec))
    return {
        name: max(found, key=lambda version: tuple(int(part) for part in version.split(".")))
        for name, found in bounds.items()
        if found
    }
