"""A lock as what a node must have, and a node as far as a lock speaks of it.

Both sides go through the ordinary comparison. A lock says nothing of where an environment lies or
what else a node is, so the node's fingerprint is cut down to what the lock can be held against.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from envaudit.lock.inputs import Inputs
from envaudit.lock.lockfile import Lock, LockedPackage
from envaudit.lock.names import distributions_of, normalised
from envaudit.model.fingerprint import Fingerprint
from envaudit.model.section import Section

# What a lock and a conda-meta record both say of a package. A hash that one of them lacks is no
# difference, and a file of the same hash is the same file whatever channel it came through.
_HASHES = ("sha256", "md5")

# Machine to conda platform, of Linux: `uname -m` as `host` has it.
PLATFORMS = {
    "x86_64": "linux-64",
    "aarch64": "linux-aarch64",
    "ppc64le": "linux-ppc64le",
    "s390x": "linux-s390x",
}

_LOWER_BOUND = re.compile(r">=?\s*([0-9]+(?:\.[0-9]+)*)")


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


def platform_of(fingerprint: Fingerprint, default: str) -> str:
    """The conda platform of a node, by its machine; `default` where its host was not read."""
    host = fingerprint.sections.get("host")
    machine = host.facts.get("architecture") if host is not None else None
    return PLATFORMS.get(str(machine), default)


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
    """Both sides cut down to what can be compared, the lock's and the node's.

    A lock may be of any kind: one that has no section `conda` or `packages` says nothing of it.
    Its section `lock` may name distributions that are `optional`, which count where they are
    there, and `unlisted` ones, which are nothing beyond the lock. A null distribution is one of
    which the lock does not say whether this node needs it.
    """
    want_conda, want_pip = (
        _table(expected, "conda", "packages"),
        _table(expected, "packages", "distributions"),
    )
    have_conda, have_pip = _table(found, "conda", "packages"), _table(found, "packages", "distributions")
    conda = {
        name: _comparable(facts, have_conda[name]) if name in have_conda else (facts, None)
        for name, facts in want_conda.items()
    }
    own, theirs = _distributions(expected, want_conda, want_pip, have_pip)
    left: dict[str, dict[str, Any]] = {"packages": {"distributions": own}}
    right: dict[str, dict[str, Any]] = {"packages": {"distributions": theirs}}
    if "conda" in expected.sections:
        left["conda"] = {"packages": {name: pair[0] for name, pair in conda.items()}}
        right["conda"] = {
            "packages": {
                name: conda[name][1] if name in conda else _kept(facts) for name, facts in have_conda.items()
            }
        }
    return _with(expected, left, found), _with(found, right, found)


def _distributions(
    expected: Fingerprint,
    want_conda: Mapping[str, Any],
    want_pip: Mapping[str, Any],
    have_pip: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The distributions of both sides; of a version that two texts tell, the lock's text."""
    optional = _table(expected, "lock", "optional")
    own = {
        **{name: facts for name, facts in want_pip.items() if facts is not None},
        **{name: facts for name, facts in optional.items() if name in have_pip},
        **_over_conda(want_conda, want_pip, have_pip),
    }
    about = expected.sections.get("lock")
    unlisted = about.facts.get("unlisted") if about is not None else None
    passed = {
        *(name for name, facts in want_pip.items() if facts is None),
        *(unlisted if isinstance(unlisted, list) else ()),
    }
    theirs: dict[str, Any] = {}
    for name, facts in have_pip.items():
        if name in own:
            have = _version_alone(facts if isinstance(facts, dict) else {})
            want = _version_alone(own[name])
            same = not want or _is_one_version(want["version"], have.get("version"))
            theirs[name] = want if same else have
        elif "packages" in expected.sections and name not in passed and is_of_pip(facts):
            theirs[name] = {"version": facts.get("version")}
    return {name: _version_alone(facts) for name, facts in own.items()}, theirs


def _version_alone(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {"version": facts["version"]} if facts.get("version") is not None else {}


def _is_one_version(want: object, have: object) -> bool:
    """Whether two texts are one version to PEP 440: `2022.07` is `2022.7`, but a local tag counts."""
    if want == have:
        return True
    from packaging.version import InvalidVersion, Version

    try:
        return Version(str(want)) == Version(str(have))
    except InvalidVersion:
        return False


def _conda_facts(package: LockedPackage, channel_name: Callable[[str], str]) -> dict[str, Any]:
    return {
        "version": package.version,
        "build": package.build,
        "channel": channel_name(package.channel),
        "md5": package.md5,
        "sha256": package.sha256,
    }


def _comparable(want: Mapping[str, Any], have: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """One package's fields that both sides state."""
    have = have if isinstance(have, dict) else {}
    fields = [key for key in want if want[key] is not None and have.get(key) is not None]
    hashes = [key for key in _HASHES if key in fields]
    if any(want[key] == have[key] for key in hashes) and "channel" in fields:
        fields.remove("channel")
    # One hash is enough to tell.
    for key in hashes[1:]:
        fields.remove(key)
    return {key: want[key] for key in fields}, {key: have[key] for key in fields}


def _kept(facts: Any) -> dict[str, Any]:
    """What is told of a package beyond the lock."""
    return {key: facts[key] for key in ("version", "build", "channel") if key in facts}


def _over_conda(
    want_conda: Mapping[str, Any], want_pip: Mapping[str, Any], have_pip: Mapping[str, Any]
) -> dict[str, Any]:
    """Distributions that pip put over a locked conda package: the conda version is what is expected."""
    over = {}
    for conda_name, facts in want_conda.items():
        for name in distributions_of(conda_name):
            if name not in want_pip and is_of_pip(have_pip.get(name)):
                over[name] = {"version": facts["version"]}
    return over


def is_of_pip(facts: Any) -> bool:
    """Whether a distribution was put there by pip or its like, and is no checkout of the user's own.

    Of a development install the git section and a comparison between nodes speak; a lock cannot.
    """
    if not isinstance(facts, dict) or facts.get("editable"):
        return False
    return facts.get("installer") not in (None, "conda")


def _table(fingerprint: Fingerprint, section: str, key: str) -> Mapping[str, Any]:
    held = fingerprint.sections.get(section)
    table = held.facts.get(key) if held is not None else None
    return table if isinstance(table, dict) else {}


def _with(side: Fingerprint, facts: Mapping[str, dict[str, Any]], node: Fingerprint) -> Fingerprint:
    """A side with these facts; the layout's number is the node's, and what it could not read stays so."""
    sections = {}
    for name, of_section in facts.items():
        read = node.sections.get(name)
        if read is None:
            continue
        status = read.status if side is node else "ok"
        sections[name] = Section(
            name, read.schema, status, of_section if status in ("ok", "partial") else {}, {}, read.errors
        )
    return Fingerprint(side.node, side.source, side.captured_at, side.tool, sections)
