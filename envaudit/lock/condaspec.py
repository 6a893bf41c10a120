"""One line of conda's `dependencies`: `pytorch::pytorch >=2.1, <3 cuda12*` to its parts.

The grammar is conda's MatchSpec as people write it: name, then version, then build, parted by
spaces or `=`, with a channel before `::` and keys in brackets behind.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# Longer ones are no spec, and some expressions below take the square of the length.
_MAX_CHARACTERS = 1000
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*|\*")
# A `*` stands alone or at the end; a regular expression stands between `^` and `$`.
_VERSION_ATOM = re.compile(
    r"(?:==|>=|<=|!=|~=|=|>|<)?[A-Za-z0-9_][A-Za-z0-9_.!+-]*\*?\Z|={0,2}\*\Z|\^[^\s^]+\$\Z"
)
_BUILD = re.compile(r"[A-Za-z0-9_.+*^$()|-]+\Z")
_KEY = re.compile(r"""\s*([a-z_0-9]+)\s*=\s*("[^"]*"|'[^']*'|[^,'"]*)\s*(?:,|\Z)""")
# Spaces that mean nothing: around a comma or a bar, and behind an operator.
_IDLE_SPACE = re.compile(r"\s*([,|])\s*|(?<=[=<>~!])\s+")
# `>=2.7=cuda12*`: a version, then a build; the `=` follows no operator.
_EQUALS_BUILD = re.compile(r"(?P<version>.*[^=<>~!|,])=(?P<build>[^=<>~!|,]+)\Z")
_PACKAGE_URL = re.compile(r"(?P<name>.+)-(?P<version>[^-/]+)-(?P<build>[^-/]+)(?:\.conda|\.tar\.bz2)\Z")


class BadSpec(ValueError):
    """A spec that conda would not take; the message is one clause."""


class CondaSpec(NamedTuple):
    """The parts of a spec; empty where it leaves one open.

    `version` has its operator: `=1.0` (starts with), `==1.0`, `>=1,<2`, or none as in `3.11.*`.
    `ignored` is what stands in brackets and is no key of conda's, which conda drops silently.
    """

    name: str
    version: str = ""
    build: str = ""
    channel: str = ""
    url: str = ""
    ignored: str = ""


def parse_spec(text: str) -> CondaSpec:
    """The parts of one spec.

    Raises:
        BadSpec: it is none; the message says what is wrong with it.
    """
    if len(text) > _MAX_CHARACTERS:
        raise BadSpec(f"it has more than {_MAX_CHARACTERS} characters")
    if "://" in text.partition("::")[0] and text.split("#")[0].endswith((".conda", ".tar.bz2")):
        return _of_url(text)
    channel, separator, bare = text.rpartition("::")
    if separator and not channel:
        raise BadSpec("no channel before '::'")
    body, keys, ignored = _without_brackets(bare)
    # Before it is cut up: a part of an address, told in a complaint, may be a password.
    if "://" in body:
        raise BadSpec("an address that is neither a channel's nor a package's")
    match = _NAME.match(body)
    if match is None:
        raise BadSpec("a package's name begins with a letter, a digit or '_'")
    rest = body[match.end() :]
    if rest and match[0] != "*" and rest[0] not in " \t=<>!~":
        raise BadSpec(f"'{rest[0]}' is in no package's name")
    version, build = _version_and_build(rest)
    version, build = keys.get("version", version), keys.get("build", build)
    _check(version, build)
    return CondaSpec(match[0], version, build, channel.strip() or keys.get("channel", ""), "", ignored)


def _of_url(text: str) -> CondaSpec:
    match = _PACKAGE_URL.match(text.split("#")[0].rpartition("/")[2])
    if match is None:
        raise BadSpec("the file of a package's URL is called name-version-build.conda")
    return CondaSpec(match["name"], f"=={match['version']}", match["build"], url=text)


def _without_brackets(text: str) -> tuple[str, dict[str, str], str]:
    """The text without `[key=value]`, these keys, and what is in brackets but no key."""
    keys: dict[str, str] = {}
    ignored = []
    # One pair behind the name, one at the end.
    for match in re.finditer(r"\[([^\[\]]*)\]", text):
        found = _KEY.findall(match[1])
        keys.update({key: value.strip("'\"") for key, value in found})
        if not found:
            ignored.append(match[0])
    body = re.sub(r"\[[^\[\]]*\]", "", text)
    if "[" in body or "]" in body:
        raise BadSpec("a bracket has no partner")
    return body.strip(), keys, ",".join(ignored)


def _version_and_build(text: str) -> tuple[str, str]:
    rest = _IDLE_SPACE.sub(lambda match: match[1] or "", text.strip())
    parts = rest.split()
    if len(parts) > 2:
        raise BadSpec(f"more than a version and a build: '{rest}'")
    if len(parts) == 2:
        return parts[0], parts[1]
    match = _EQUALS_BUILD.match(rest)
    return (match["version"], match["build"]) if match else (rest, "")


def _check(version: str, build: str) -> None:
    # 'pip install foo': a single word without an operator is no version of pip.
    if re.fullmatch(r"[A-Za-z_]+", version):
        raise BadSpec(f"'{version}' is no version")
    for atom in re.split(r"[,|]", version.replace("(", "").replace(")", "")) if version else ():
        if _VERSION_ATOM.match(atom) is None:
            raise BadSpec(f"'{atom}' is no version" if atom else f"a version is missing in '{version}'")
    if build and _BUILD.match(build) is None:
        raise BadSpec(f"'{build}' is no build")
