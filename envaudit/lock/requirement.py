"""One line of a requirements file, as pip reads it, to an Entry.

The `pip:` section of an environment.yml is such a file: conda writes its lines to one and hands
it to `pip install -r`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple
from urllib.parse import unquote

from envaudit.lock.complaints import shown
from envaudit.lock.entries import Entry, Located
from envaudit.lock.names import normalised

# pip's options for a requirements file ("Requirements File Format" in its documentation), long
# name to whether it takes a value. As optparse does, pip takes any unique beginning of them.
_OPTIONS = {
    "--index-url": True,
    "--pypi-url": True,
    "--extra-index-url": True,
    "--no-index": False,
    "--find-links": True,
    "--constraint": True,
    "--requirement": True,
    "--editable": True,
    "--no-binary": True,
    "--only-binary": True,
    "--prefer-binary": False,
    "--require-hashes": False,
    "--pre": False,
    "--trusted-host": True,
    "--use-feature": True,
}
_SHORT = {"-i": "--index-url", "-f": "--find-links", "-c": "--constraint", "-r": "--requirement",
          "-e": "--editable"}  # fmt: skip
_KIND_OF_OPTION = {"--requirement": "pip_include", "--constraint": "pip_constraint"}

# Hashes apart: longer ones are no requirement, and some expressions below take the square of the length.
_MAX_CHARACTERS = 2000
_COMMENT = re.compile(r"(?:^|\s)#.*$")
_PER_REQUIREMENT = re.compile(r"\s--(hash|config-settings?|global-option|install-option)[= ](\S+)")
_VCS = re.compile(r"(?P<vcs>git|hg|svn|bzr)\+(?P<url>\S+)\Z")
_DIRECT = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[(?P<extras>[^\]]*)\])?\s*@\s*(?P<url>\S.*)\Z"
)
_NAMED = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[(?P<extras>[^\]]*)\])?\s*(?P<version>[^;@\[\]]*)"
    r"(?:;(?P<marker>.*))?\Z"
)
_ARCHIVE = re.compile(r"\.(?:whl|zip|tar\.gz|tgz|tar\.bz2|tar\.xz|tar)\Z", re.IGNORECASE)
_WINDOWS_PATH = re.compile(r"[A-Za-z]:[\\/]")
_PATH_EXTRAS = re.compile(r"\[([A-Za-z0-9_,. -]+)\]\Z")
_WHEEL = re.compile(r"(?P<name>[^-/]+)-(?P<version>[^-/]+)(?:-[^/]+)?\.whl\Z")
# What most lines are, so that `packaging` (25 ms of imports) is asked about the others alone: a
# version of PEP 440 in its normal form behind each operator.
_RELEASE = r"\d+(?:\.\d+)*(?:(?:a|b|rc)\d+)?(?:\.post\d+)?(?:\.dev\d+)?"
_PLAIN_CLAUSE = (
    rf"(?:(?:<=|>=|<|>)\s*{_RELEASE}|~=\s*\d+\.{_RELEASE}|(?:==|!=)\s*{_RELEASE}(?:\+[a-z0-9]+(?:\.[a-z0-9]+)*)?"
    r"|(?:==|!=)\s*\d+(?:\.\d+)*\.\*)"
)
_PLAIN = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*"
    r"(?:\[\s*(?P<extras>[A-Za-z0-9_-]+(?:\s*,\s*[A-Za-z0-9_-]+)*)\s*\])?\s*"
    rf"(?P<version>{_PLAIN_CLAUSE}(?:\s*,\s*{_PLAIN_CLAUSE})*)?\Z"
)
_SINGLE_EQUALS = re.compile(r"[^=<>~!]=[^=]")


_LINE_ADVICE = "A line is a requirement (name==version), an option of pip, a path or a URL."


class BadRequirement(ValueError):
    """A line that pip would not take; `next_step` is a whole sentence."""

    def __init__(self, message: str, next_step: str = _LINE_ADVICE) -> None:
        super().__init__(message)
        self.next_step = next_step


class _Fragment(NamedTuple):
    url: str
    egg: str
    subdirectory: str
    hashes: tuple[str, ...]


def parse_line(written: Located, block: int = -1) -> tuple[Entry, ...]:
    """The entries of one line: none for a blank one or a comment, several for several options.

    Raises:
        BadRequirement: pip would not take the line.
    """
    text = _COMMENT.sub("", written.text).strip()
    base = Entry(text, written.line, written.column, written.path, "pip", block=block)
    if not text:
        return ()
    if "\0" in text:
        raise BadRequirement("a NUL character, which no name, path or address has")
    if text.startswith("-"):
        return tuple(_options(base))
    return (_requirement(base, text),)


def _options(base: Entry) -> Iterator[Entry]:
    try:
        words = shlex.split(base.text)
    except ValueError:
        raise BadRequirement("a quote has no partner") from None
    while words:
        option, value = _option(words.pop(0))
        if _OPTIONS[option] and value is None:
            if not words:
                raise BadRequirement(f"{option} lacks its value")
            value = words.pop(0)
        if option == "--editable":
            # An editable project takes the rest of the line, and may have extras.
            yield replace(_requirement(base, " ".join([value or "", *words])), editable=True)
            return
        yield replace(base, kind=_KIND_OF_OPTION.get(option, "pip_option"), option=option, value=value or "")


def _option(word: str) -> tuple[str, str | None]:
    """A word's long option, and its value where the word has it."""
    if not word.startswith("--"):
        if word[:2] in _SHORT:
            return _SHORT[word[:2]], word[2:].lstrip("=") or None
        raise BadRequirement(f"'{shown(word)}' is no option of a requirements file")
    name, equals, value = word.partition("=")
    names = [name] if name in _OPTIONS else [each for each in _OPTIONS if each.startswith(name)]
    if len(names) != 1:
        raise BadRequirement(f"'{shown(name)}' is no option of a requirements file")
    if equals and not _OPTIONS[names[0]]:
        raise BadRequirement(f"{names[0]} takes no value")
    return names[0], value if equals else None


def _requirement(base: Entry, text: str) -> Entry:
    hashes = tuple(match[2] for match in _PER_REQUIREMENT.finditer(text) if match[1] == "hash")
    text = _PER_REQUIREMENT.sub("", text).strip()
    if len(text) > _MAX_CHARACTERS:
        raise BadRequirement(f"a line of more than {_MAX_CHARACTERS} characters")
    direct = _DIRECT.match(text)
    if direct:
        name, extras = direct["name"], _extras(direct["extras"])
        found = replace(_located(base, direct["url"]), name=name, key=normalised(name), extras=extras)
    elif _VCS.match(text) or "://" in text or _is_path(text):
        found = _located(base, text)
    else:
        found = _named(base, text)
    return replace(found, hashes=(*found.hashes, *hashes))


def _is_path(text: str) -> bool:
    name = text.partition(";")[0].strip()
    return (
        name.startswith((".", "/", "~"))
        or "/" in name
        or "\\" in name
        or bool(_WINDOWS_PATH.match(name))
        or bool(_ARCHIVE.search(name))
    )


def _located(base: Entry, url: str) -> Entry:
    """An entry that says where its code is: a repository, an archive or a folder."""
    url, _, marker = url.partition(" ;")
    base, url = replace(base, marker=marker.strip()), url.strip()
    vcs = _VCS.match(url)
    if vcs:
        part = _fragment(vcs["url"])
        place, ref = _without_ref(part.url)
        return replace(base, kind="pip_git", name=part.egg, key=normalised(part.egg), url=place, ref=ref,
                       subdirectory=part.subdirectory)  # fmt: skip
    part = _fragment(url)
    if "://" not in url or url.startswith("file:"):
        path = unquote(part.url.partition("://")[2]) if url.startswith("file:") else part.url
        extras = _PATH_EXTRAS.search(path)
        if extras:
            base, path = replace(base, extras=_extras(extras[1])), path[: extras.start()]
        return replace(base, kind="pip_path", name=part.egg, key=normalised(part.egg), value=path,
                       hashes=part.hashes)  # fmt: skip
    wheel = _WHEEL.match(unquote(part.url.rpartition("/")[2]))
    name = part.egg or (wheel["name"] if wheel else "")
    version = f"=={wheel['version']}" if wheel else ""
    return replace(base, kind="pip_url", name=name, key=normalised(name), version=version, url=part.url,
                   subdirectory=part.subdirectory, hashes=part.hashes)  # fmt: skip


def _fragment(url: str) -> _Fragment:
    """A URL apart from its `#egg=`, `#subdirectory=` and `#sha256=`."""
    place, _, fragment = url.partition("#")
    values: dict[str, str] = {}
    hashes = []
    for pair in fragment.split("&") if fragment else ():
        key, _, value = pair.partition("=")
        if key in ("md5", "sha1", "sha224", "sha256", "sha384", "sha512"):
            hashes.append(f"{key}:{value.lower()}")
        else:
            values[key] = unquote(value)
    egg = values.get("egg", "").partition("[")[0]
    return _Fragment(place.strip(), egg, values.get("subdirectory", ""), tuple(hashes))


def _without_ref(url: str) -> tuple[str, str]:
    """`https://host/repo.git@v1` to the repository and `v1`; the @ of user info is none."""
    scheme, separator, rest = url.partition("://")
    host, slash, path = rest.partition("/") if separator else ("", "", url)
    before, at, ref = path.rpartition("@")
    if not at:
        return url, ""
    return f"{scheme}{separator}{host}{slash}{before}" if separator else before, ref


def _named(base: Entry, text: str) -> Entry:
    plain = _PLAIN.match(text)
    if plain:
        return replace(
            base,
            name=plain["name"],
            key=normalised(plain["name"]),
            version=re.sub(r"\s+", "", plain["version"] or ""),
            extras=_extras(plain["extras"]),
        )
    match = _NAMED.match(text)
    version = (match["version"] if match else text).strip()
    if match and _SINGLE_EQUALS.search(f" {version} "):
        raise BadRequirement(f"'{shown(text)}' is no requirement", "pip pins with '==', conda with '='.")
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        why = str(error).splitlines()[0]
        raise BadRequirement(f"'{shown(text)}' is no requirement ({shown(why)})") from None
    return replace(
        base,
        name=requirement.name,
        key=normalised(requirement.name),
        version=re.sub(r"\s+", "", version.strip("()")),
        extras=tuple(sorted(requirement.extras)),
        marker=str(requirement.marker) if requirement.marker else "",
    )


def _extras(text: str | None) -> tuple[str, ...]:
    return tuple(sorted(part.strip() for part in (text or "").split(",") if part.strip()))
