"""What uv answers: a pylock.toml (PEP 751) for the files, annotated pins for who asks for whom."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envaudit.errors import NeededError
from envaudit.lock.names import normalised
from envaudit.lock.wheels import best_wheel

_PIN = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?\s*(?:==\s*(?P<version>[^\s;]+)|@)")
_VIA = re.compile(r"\s+#\s+(?:via\s*)?(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)?(?:\s+\(.*\))?\s*$")


@dataclass(frozen=True)
class PipPackage:
    """One resolved distribution.

    Attributes:
        name: normalised.
        url: the file that is installed, or `git+URL@COMMIT`.
        sha256: of that file; None for a repository.
        dependencies: names of the distributions that it asks for, those from conda too.
        is_direct: whether it comes from a URL or a repository, not from an index.
        has_wheel: whether nothing needs to be built.
    """

    name: str
    version: str
    url: str
    sha256: str | None
    dependencies: tuple[str, ...] = ()
    is_direct: bool = False
    has_wheel: bool = True


def read_pins(text: str) -> list[str]:
    """The `name==version` lines of annotated pins; what comes from a URL has none."""
    found = []
    for line in text.splitlines():
        match = _PIN.match(line)
        if match and match["version"]:
            found.append(f"{match['name']}=={match['version']}")
    return found


def read_edges(text: str) -> dict[str, tuple[str, ...]]:
    """Distribution to what it asks for, from the `# via` notes below each pin."""
    asked: dict[str, set[str]] = {}
    current = ""
    for line in text.splitlines():
        pin = _PIN.match(line)
        if pin:
            current = normalised(pin["name"])
            continue
        via = _VIA.match(line)
        if via and via["name"] and current:
            asked.setdefault(normalised(via["name"]), set()).add(current)
    return {name: tuple(sorted(names)) for name, names in asked.items()}


def read_pylock(
    text: str,
    *,
    edges: Mapping[str, Sequence[str]],
    python: str,
    tags: Sequence[str],
    without: frozenset[str],
) -> tuple[PipPackage, ...]:
    """The packages of a pylock.toml, each with the one file that fits the target.

    Args:
        text: the file's content.
        edges: as `read_edges` gives them.
        python: the target interpreter's full version.
        tags: the target's wheel platforms, best first.
        without: distributions that are left out, since conda provides them.

    Raises:
        NeededError: uv wrote something that is no such file, or nothing that fits the target.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        packages = tomllib.loads(text).get("packages", [])
        return tuple(
            _package(package, edges, python, tags)
            for package in sorted(packages, key=lambda each: str(each["name"]))
            if normalised(package["name"]) not in without
        )
    except (tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError) as error:
        raise NeededError(
            "uv's answer cannot be read", why=f"{type(error).__name__}: {error}", next_step="Update uv."
        ) from None


def _package(
    package: Mapping[str, Any], edges: Mapping[str, Sequence[str]], python: str, tags: Sequence[str]
) -> PipPackage:
    name = normalised(package["name"])
    url, sha256, is_direct, has_wheel = _file(package, python, tags)
    return PipPackage(
        name=name,
        # A repository whose version its build computes has none here.
        version=str(package.get("version", "0")),
        url=url,
        sha256=sha256,
        dependencies=tuple(edges.get(name, ())),
        is_direct=is_direct,
        has_wheel=has_wheel,
    )


def _file(package: Mapping[str, Any], python: str, tags: Sequence[str]) -> tuple[str, str | None, bool, bool]:
    """URL, sha256, whether it is a direct reference, whether it is a wheel."""
    if "vcs" in package:
        vcs = package["vcs"]
        folder = f"#subdirectory={vcs['subdirectory']}" if vcs.get("subdirectory") else ""
        return f"{vcs['type']}+{vcs['url']}@{vcs['commit-id']}{folder}", None, True, False
    if "archive" in package:
        archive = package["archive"]
        url = archive.get("url") or f"file://{archive['path']}"
        return url, archive["hashes"].get("sha256"), True, url.split("#")[0].endswith(".whl")
    hashes = {wheel["url"]: wheel["hashes"].get("sha256") for wheel in _wheels(package)}
    best = best_wheel(sorted(hashes), python, tags)
    if best is not None:
        return best, hashes[best], False, True
    if "sdist" in package:
        return package["sdist"]["url"], package["sdist"]["hashes"].get("sha256"), False, False
    raise NeededError(
        f"no file of {package['name']} {package.get('version', '')} fits Python {python} on the target",
        next_step="Choose another version of it, or say what the target is with --virtual-packages.",
    )


def _wheels(package: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for wheel in package.get("wheels", ()):
        yield wheel if "url" in wheel else {**wheel, "url": f"file://{wheel['path']}"}
