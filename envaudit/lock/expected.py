"""A lock as what a node must have, and a node as far as a lock speaks of it.

Both sides go through the ordinary comparison, cut down to what a lock speaks of (`model.locked`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

from envaudit.lock.inputs import Inputs
from envaudit.lock.lockfile import Lock, LockedPackage
from envaudit.lock.names import distributions_of, normalised
from envaudit.model import locked
from envaudit.model.fingerprint import Fingerprint
from envaudit.model.section import Section

_LOWER_BOUND = re.compile(r">=?\s*([0-9]{1,9}(?:\.[0-9]{1,9})*)")


def expected_fingerprint(
    lock: Lock,
    platform: str,
    node: str,
    *,
    channel_name: Callable[[str], str],
    tool: str,
    captured_at: str,
    categories: Collection[str] = ("main",),
) -> Fingerprint:
    """What a node of one platform must have.

    Args:
        lock: read from its file.
        platform: of the node; the lock may lack it, then there are no packages.
        node: the label to give it.
        channel_name: from a channel's URL to its one name, as the probe has it.
        tool: the version to state.
        captured_at: UTC, `2026-11-30T10:00:00Z`.
        categories: whose packages are expected.

    Returns:
        Sections `conda` (packages), `packages` (distributions of the pip part) and `lock`
        (platform, platforms, the virtual packages that are needed).
    """
    conda = {
        package.name: _conda_facts(package, channel_name)
        for package in lock.of(platform, categories, "conda")
    }
    pip = {
        normalised(package.name): {"version": package.version}
        for package in lock.of(platform, categories, "pip")
    }
    about: dict[str, Any] = {
        "platform": platform,
        "platforms": sorted(lock.platforms),
        "virtual_packages": needed_virtual_packages(lock, platform, categories),
    }
    sections = {
        "conda": Section("conda", 1, "ok", {"packages": conda}),
        "packages": Section("packages", 1, "ok", {"distributions": pip}),
        "lock": Section("lock", 1, "ok", about),
    }
    return Fingerprint(node, "lock", captured_at, tool, sections)


def needed_virtual_packages(lock: Lock, platform: str, categories: Collection[str]) -> dict[str, str]:
    """What a node must have at least, `__cuda` and `__glibc` to versions.

    What the packages themselves ask for counts. Where one asks for `__cuda` of any version, or the
    user named a version for the solve, it is the version that was solved for.
    """
    recorded = Inputs.from_custom(lock.custom)
    solved: dict[str, str] = {}
    for text in recorded.virtual.get(platform, ()) if recorded is not None else ():
        name, _, rest = text.partition("=")
        solved[name] = rest.partition("=")[0]
    needed: dict[str, str] = {}
    for name in ("__cuda", "__glibc"):
        specs = [
            package.dependencies[name]
            for package in lock.of(platform, categories, "conda")
            if name in package.dependencies
        ]
        bounds = [bound for spec in specs for bound in _LOWER_BOUND.findall(spec)]
        chosen = name == "__cuda" and recorded is not None and recorded.cuda not in (None, "none")
        if bounds and not chosen:
            needed[name] = max(bounds, key=_numbers)
        elif (specs or chosen) and name in solved:
            needed[name] = solved[name]
    return needed


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def held_against(expected: Fingerprint, found: Fingerprint) -> tuple[Fingerprint, Fingerprint]:
    """Both sides cut down to what can be compared; see `model.locked`."""
    return locked.held_against(expected, found, distributions_of)


def _conda_facts(package: LockedPackage, channel_name: Callable[[str], str]) -> dict[str, Any]:
    return {
        "version": package.version,
        "build": package.build,
        "channel": channel_name(package.channel),
        "md5": package.md5,
        "sha256": package.sha256,
    }
