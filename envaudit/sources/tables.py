"""Packages as the probe's sections have them, from what a report says of each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from envaudit.model.section import Section

# What an installer itself consists of: many lists leave it out, and an environment has it all the same.
TOOLING = ("distribute", "pip", "setuptools", "wheel")

_SEPARATORS = re.compile(r"[-_.]+")
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._+-]{0,198}[A-Za-z0-9_+])?\Z")
_VERSION = re.compile(r"[A-Za-z0-9_.+!*~-]{1,200}\Z")
_BUILD = re.compile(r"[A-Za-z0-9_.+-]{1,200}\Z")
_HASHES = {"md5": re.compile(r"[0-9a-f]{32}\Z"), "sha256": re.compile(r"[0-9a-f]{64}\Z")}
_FILE = re.compile(r"(?P<name>.+)-(?P<version>[^-]+)-(?P<build>[^-]+?)(?:\.conda|\.tar\.bz2)\Z")
_PLATFORM = re.compile(r"(?:linux|osx|win|noarch)(?:-[a-z0-9_]+)?\Z")


def normalised(name: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    return _SEPARATORS.sub("-", name).lower()


def is_name(text: str) -> bool:
    """Whether a text may be the name of a package."""
    return _NAME.match(text) is not None


def is_version(text: str) -> bool:
    """Whether a text may be a version."""
    return _VERSION.match(text) is not None


def is_build(text: str) -> bool:
    """Whether a text may be a conda build string."""
    return _BUILD.match(text) is not None


def conda_package(
    version: str, build: str = "", channel: str = "", hashes: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Those of the probe's facts of a conda package that are said; the channel is canonical already."""
    facts = {"version": version, "build": build, "channel": channel}
    found = {key: value for key, value in facts.items() if value}
    for key, form in _HASHES.items():
        digest = (hashes or {}).get(key, "")
        if isinstance(digest, str) and form.match(digest.lower()):
            found[key] = digest.lower()
    return found


def of_url(url: str) -> tuple[str, str, str, str, str] | None:
    """Name, version, build, the channel's address and the platform of a conda package's URL."""
    place = url.partition("#")[0].partition("?")[0]
    channel, _, rest = place.rpartition("/")
    channel, _, platform = channel.rpartition("/")
    match = _FILE.match(unquote(rest))
    if match is None or not _PLATFORM.match(platform):
        return None
    name, version, build = match["name"], match["version"], match["build"]
    if not (is_name(name) and is_version(version) and is_build(build)):
        return None
    return name, version, build, channel, platform


def conda_section(
    packages: Mapping[str, Mapping[str, Any]],
    *,
    whole: bool,
    facts: Mapping[str, Any] | None = None,
    notes: Mapping[str, Any] | None = None,
    errors: Iterable[str] = (),
) -> Section:
    """A `conda` section; `whole` says that the list has every package."""
    held = {**(facts or {}), "packages": dict(packages)}
    said = {key: value for key, value in (notes or {}).items() if value}
    return Section("conda", 1, "partial", held, said, _few(errors), ("packages",) if whole else ())


def packages_section(
    distributions: Mapping[str, Any],
    *,
    whole: bool,
    left_out: Iterable[str] = (),
    notes: Mapping[str, Any] | None = None,
    errors: Iterable[str] = (),
) -> Section:
    """A `packages` section.

    Args:
        distributions: by normalised name.
        whole: whether the list has every distribution.
        left_out: those of which it says nothing all the same.
        notes: beside the facts.
        errors: what could not be read.
    """
    # Null is no answer: neither there nor absent.
    held = {**dict.fromkeys(left_out), **distributions}
    said = {key: value for key, value in (notes or {}).items() if value}
    names = ("distributions",) if whole else ()
    return Section("packages", 1, "partial", {"distributions": held}, said, _few(errors), names)


def lock_section(
    setting_platform: str,
    platforms: Iterable[str] | None,
    *,
    optional: Mapping[str, Any] | None = None,
    unlisted: Iterable[str] = (),
    virtual_packages: Mapping[str, str] | None = None,
) -> Section:
    """What a lock is for.

    Args:
        setting_platform: that of the node.
        platforms: those that it serves; None where it does not say.
        optional: distributions that may be missing, of this version where they are there.
        unlisted: distributions that are nothing beyond the lock.
        virtual_packages: `__cuda` and the like to versions that a node must have at least.
    """
    facts: dict[str, Any] = {
        "platform": setting_platform,
        "platforms": None if platforms is None else sorted(platforms),
        "virtual_packages": dict(virtual_packages or {}),
        "optional": dict(optional or {}),
        "unlisted": sorted(unlisted),
    }
    return Section("lock", 1, "ok", facts)


def _few(errors: Iterable[str]) -> tuple[str, ...]:
    """The first errors, and how many more there are."""
    told = [error[:400] for error in errors]
    return tuple(told) if len(told) <= 20 else (*told[:20], f"and {len(told) - 20} more")
