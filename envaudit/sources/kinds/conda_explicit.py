"""`conda list --explicit` with or without hashes, and the explicit files of conda-lock: a lock.

Taken: name, version and build from each address, its channel and its hash. What pip put there, the
environment's name and place are unknown.
"""

from __future__ import annotations

import re
from typing import Any

from envaudit.errors import InputError
from envaudit.model.section import Section
from envaudit.sources.setting import Setting
from envaudit.sources.tables import conda_package, conda_section, lock_section, of_url

KIND = "conda list --explicit"
IS_LOCK = True

_DIGEST = re.compile(r"(?:(?P<kind>md5|sha256)[:=])?(?P<digest>[0-9a-fA-F]{32}(?:[0-9a-fA-F]{32})?)\Z")


def matches(text: str) -> bool:
    """Whether a line says `@EXPLICIT`."""
    return re.search(r"^[ \t]*@EXPLICIT[ \t]*$", text, re.MULTILINE) is not None


def read(text: str, where: str, setting: Setting) -> list[Section]:
    """Sections `conda` and `lock`.

    Raises:
        InputError: a line that is no address of a conda package, or one package twice.
    """
    packages: dict[str, Any] = {}
    platforms = set()
    urls = {}
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.strip()
        if not line or line == "@EXPLICIT" or line.startswith("#"):
            continue
        url, _, fragment = line.partition("#")
        parts = of_url(url)
        if parts is None:
            raise InputError(f"line {number} is no address of a conda package", where=where, why=line[:80])
        name, version, build, channel, platform = parts
        if name in packages:
            raise InputError(f"line {number}: {name} is there twice", where=where)
        packages[name] = conda_package(version, build, setting.channel_name(channel), _hashes(fragment))
        urls[name] = setting.clean(url)
        platforms.add(platform)
    return [
        conda_section(packages, whole=True, notes={"urls": urls}),
        lock_section(setting.platform, platforms - {"noarch"} or None),
    ]


def _hashes(fragment: str) -> dict[str, str]:
    match = _DIGEST.match(fragment.strip())
    if match is None:
        return {}
    return {"md5" if len(match["digest"]) == 32 else "sha256": match["digest"]}
