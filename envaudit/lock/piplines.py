"""The pip section of a source as uv reads it: requirements, and the options that it may see."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from envaudit.lock.entries import Entry

# Options that decide what is resolved. The others (--trusted-host, --require-hashes, ...) speak of
# the installation or of the connection, which the user's own configuration of uv has.
_OF_INDEXES = ("--index-url", "--extra-index-url", "--no-index")
_FORMATS = ("--no-binary", "--only-binary")


class PipLines(NamedTuple):
    """What is given to the resolver.

    Attributes:
        requirements: PEP 508 texts; local paths are not among them, since no lock can hold them.
        options: lines of a requirements file.
        prerelease: whether `--pre` stands in the section.
    """

    requirements: tuple[str, ...]
    options: tuple[str, ...]
    prerelease: bool


def pip_lines(
    entries: Iterable[Entry], repositories: Iterable[str] = (), *, default_index: bool = True
) -> PipLines:
    """The lines of one platform.

    Args:
        entries: of the pip section; includes are expanded already.
        repositories: conda-lock's `pip-repositories`.
        default_index: whether the user's default index counts beside them.
    """
    requirements: dict[str, None] = {}
    options = dict.fromkeys(_indexes(list(repositories), default_index))
    prerelease = False
    for entry in entries:
        if entry.kind in ("pip", "pip_url"):
            requirements[entry.text] = None
        elif entry.kind == "pip_git":
            requirements[_repository(entry)] = None
        elif entry.kind == "pip_constraint":
            options[f"-c {_beside(entry)}"] = None
        elif entry.option == "--pre":
            prerelease = True
        elif entry.option == "--find-links":
            options[f"--find-links {entry.value if '://' in entry.value else _beside(entry)}"] = None
        elif entry.option in _OF_INDEXES + _FORMATS:
            options[f"{entry.option} {entry.value}".rstrip()] = None
    return PipLines(tuple(requirements), tuple(options), prerelease)


def _indexes(repositories: Sequence[str], default_index: bool) -> Iterator[str]:
    if not default_index:
        yield f"--index-url {repositories[0]}" if repositories else "--no-index"
        repositories = repositories[1:]
    yield from (f"--extra-index-url {url}" for url in repositories)


def _repository(entry: Entry) -> str:
    """Without `-e`: the lock pins a commit, which an editable checkout would not stay at."""
    scheme = entry.text.removeprefix("-e").removeprefix("--editable").lstrip(" =").partition(" @ ")
    vcs = (scheme[2] or scheme[0]).partition("+")[0]
    extras = f"[{','.join(entry.extras)}]" if entry.extras else ""
    name = f"{entry.name}{extras} @ " if entry.name else ""
    ref = f"@{entry.ref}" if entry.ref else ""
    folder = f"#subdirectory={entry.subdirectory}" if entry.subdirectory else ""
    marker = f" ; {entry.marker}" if entry.marker else ""
    return f"{name}{vcs}+{entry.url}{ref}{folder}{marker}"


def _beside(entry: Entry) -> str:
    """A path that counts from the file that has the line."""
    folder = os.path.dirname(os.path.abspath(entry.path))
    return os.path.normpath(os.path.join(folder, entry.value))
