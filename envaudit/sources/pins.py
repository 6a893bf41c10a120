"""Lines of a requirements file that pin: `torch==2.5.1`, `name @ URL`, `-e ...`, options, hashes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from envaudit.sources.tables import is_name, is_version, normalised

_PIN = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*===?\s*(?P<version>[^\s;,]+)\s*\Z")
_DIRECT = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*@\s*(?P<url>\S+)\s*\Z")
_EGG = re.compile(r"#(?:[^#\s]*&)?egg=(?P<name>[A-Za-z0-9][\w.-]*)")
_COMMIT = re.compile(r"@(?P<commit>[0-9a-f]{40})(?:#|\Z)")
_WHEEL = re.compile(r"/(?P<name>[A-Za-z0-9][\w.]*)-(?P<version>[^-/]+)-[^/]+\.whl\Z")
_HASH = re.compile(r"\s--hash[=\s]\s*(?P<kind>\w+):(?P<digest>[0-9a-fA-F]+)")
_COMMENT = re.compile(r"(?:^|\s)#.*$")
# Of a line without its hashes: the patterns below look back over spaces.
_MAX_CHARACTERS = 2048
# pip freeze writes it above an editable line that has only a path: `# Editable install with no version
# control (name==1.0)`, `# Editable Git install with no remote (...)`, and for a remote that is wrong.
_EDITABLE_COMMENT = re.compile(
    r"# Editable (?:\w+ )?install\b[^(]{0,80}\((?P<name>[A-Za-z0-9][\w.-]*)={2,3}[^)]*\)"
)


@dataclass(frozen=True)
class Pin:
    """One line.

    Attributes:
        name: normalised; empty where the line does not say.
        version: None where the line does not say it.
        marker: PEP 508's, empty for none.
        url: of a direct reference.
        editable: whether it is `-e`.
        hashes: `sha256:...`.
    """

    name: str
    version: str | None
    marker: str = ""
    url: str = ""
    editable: bool = False
    hashes: tuple[str, ...] = ()

    @property
    def commit(self) -> str:
        """The commit of a repository, where the URL names one."""
        match = _COMMIT.search(self.url)
        return match["commit"] if match and "+" in self.url.partition(":")[0] else ""


@dataclass(frozen=True)
class Options:
    """A line that is an option, `--index-url` or `-r other.txt`."""

    text: str

    @property
    def included(self) -> str:
        """The file that says more, as `-r other.txt`, `-rother.txt` or `--requirement=other.txt` names it."""
        match = re.match(r"(?:-[rc]|--(?:requirement|constraint)\b)[=\s]*(?P<file>.*)", self.text)
        return (match["file"] or "nothing") if match else ""


@dataclass(frozen=True)
class Other:
    """A line that pins nothing: a range, a path, or no requirement at all."""

    text: str


def lines_of(text: str) -> Iterator[tuple[int, str]]:
    """Logical lines with their numbers: continued ones joined, comments and empty ones left out."""
    parts: list[str] = []
    first = 0
    named = ""
    for number, line in enumerate(text.split("\n"), start=1):
        first = first if parts else number
        comment = _EDITABLE_COMMENT.match(line)
        if comment:
            named = comment["name"]
        elif named and not line.startswith("#"):
            line = f"{line.rstrip()}#egg={named}" if line.startswith("-e ") else line
            named = ""
        bare = _COMMENT.sub("", line).rstrip()
        if bare.endswith("\\"):
            parts.append(bare[:-1])
            continue
        whole = " ".join([*parts, bare]).strip()
        parts = []
        if whole:
            yield first, whole
    if parts and " ".join(parts).strip():
        yield first, " ".join(parts).strip()


def pin_of(line: str) -> Pin | Options | Other:
    """What a logical line is."""
    hashes = tuple(f"{match['kind']}:{match['digest'].lower()}" for match in _HASH.finditer(line))
    body = _HASH.sub("", line).strip()
    if len(body) > _MAX_CHARACTERS:
        return Other(body[:_MAX_CHARACTERS])
    editable = re.match(r"(?:-e|--editable)[\s=]+(?P<rest>.*)", body)
    if editable:
        return _editable(editable["rest"].strip())
    if body.startswith("-"):
        return Options(body)
    body = re.split(r"\s--(?:config-settings|global-option)\b", body, maxsplit=1)[0]
    requirement, marker = _split_marker(body)
    pinned = _PIN.match(requirement)
    if pinned and is_version(pinned["version"]) and "*" not in pinned["version"]:
        return _named(Pin(normalised(pinned["name"]), pinned["version"], marker, hashes=hashes), line)
    direct = _DIRECT.match(requirement)
    if direct:
        wheel = _WHEEL.search(direct["url"].partition("#")[0])
        version = wheel["version"].replace("%2B", "+").replace("%2b", "+") if wheel else None
        version = version if version and is_version(version) else None
        return _named(Pin(normalised(direct["name"]), version, marker, direct["url"], hashes=hashes), line)
    return Other(line)


def _named(pin: Pin, line: str) -> Pin | Other:
    return pin if is_name(pin.name) else Other(line)


def _editable(rest: str) -> Pin:
    egg = _EGG.search(rest)
    name = normalised(egg["name"]) if egg else ""
    return Pin(name if is_name(name) else "", None, url=rest if "://" in rest else "", editable=True)


def _split_marker(body: str) -> tuple[str, str]:
    """A requirement and its marker; behind a URL the semicolon follows a space."""
    separator = " ;" if "://" in body else ";"
    requirement, _, marker = body.partition(separator)
    return requirement.strip(), marker.strip()
