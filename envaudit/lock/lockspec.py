"""conda-lock's own view of the source files: the input of its content hash.

The solver is given every spec of a file (`spec.specs_of`); conda-lock keeps the last of each name,
and a lock must carry the hash that conda-lock computes for the same file, or conda-lock would call
it stale. So its own parser reads the files; where it would stumble over one (another encoding, an
option line or a local path in the pip section) it is given the same content in a form it can read.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from envaudit.errors import InputError, UsageError
from envaudit.lock.credentials import cleaned
from envaudit.lock.entries import Entry
from envaudit.lock.sourcefile import SourceFile

# What conda-lock's requirement parser takes; the other kinds raise in it.
_READABLE = ("conda", "pip", "pip_url", "pip_git")

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_MAX_WORDS = 500


def conda_lock_spec(sources: Sequence[SourceFile], platforms: Sequence[str], *, mapping_url: str) -> Any:
    """conda-lock's `LockSpecification` of the files; imports conda-lock (0.6 to 1.0 s).

    Args:
        sources: that `SourceFile.check` has passed.
        platforms: `linux-64` and so on, instead of the files' own.
        mapping_url: conda-lock's name mapping, as a `file://` URL.

    Raises:
        UsageError: channel lists of two files that do not go together.
        InputError: what conda-lock cannot read, in its own words.
    """
    from conda_lock.errors import ChannelAggregationError
    from conda_lock.src_parser import make_lock_spec

    with _readable(sources) as paths, _silence():
        try:
            spec = make_lock_spec(
                src_files=[Path(path) for path in paths],
                platform_overrides=list(platforms),
                mapping_url=mapping_url,
            )
        except ChannelAggregationError:
            named = (
                f"{source.path}: {', '.join(cleaned(each.text) for each in source.channels)}"
                for source in sources
            )
            raise UsageError(
                "the files do not agree on their channels",
                why="; ".join(named),
                next_step="Give them the same list, or lists that are the end of the longest one.",
            ) from None
        except Exception as error:
            # It has no error class for its parsers: RuntimeError, InvalidRequirement, KeyError, ...
            raise InputError(
                "conda-lock cannot read the source",
                where=", ".join(source.path for source in sources),
                why=f"{type(error).__name__}: {' '.join(str(error).split())}"[:_MAX_WORDS],
                next_step="'envaudit lint' names the line if it knows of a fault.",
            ) from None
    return spec.model_copy(update={"sources": [Path(source.path) for source in sources]})


@contextlib.contextmanager
def _readable(sources: Sequence[SourceFile]) -> Iterator[list[str]]:
    """Paths that conda-lock's parser can read, in the order of the sources."""
    with tempfile.TemporaryDirectory(prefix="envaudit-") as folder:
        paths = []
        for place, source in enumerate(sources):
            if _is_plain(source):
                paths.append(source.path)
                continue
            path = os.path.join(folder, str(place), "environment.yml")
            os.mkdir(os.path.dirname(path))
            with open(path, "w") as file:
                file.write(_plain_text(source))
            paths.append(path)
        yield paths


def _is_plain(source: SourceFile) -> bool:
    return (
        # A pipe has been read.
        os.path.isfile(source.path)
        and source.encoding == "utf-8"
        and not source.has_mark
        # `channels:` with nothing below is None to it, and no list.
        and bool(source.channels)
        and bool(source.conda or source.pip)
        and all(
            _is_readable(entry) and entry.path == source.path and _text(entry) == entry.text
            for entry in source.entries()
        )
    )


def _is_readable(entry: Entry) -> bool:
    return entry.kind in _READABLE and (entry.kind != "pip_url" or bool(entry.name))


def _text(entry: Entry) -> str:
    """An entry as conda-lock takes it: it knows no address without a name."""
    if entry.kind == "pip_url" and entry.name and _ADDRESS.match(entry.text):
        return f"{entry.name} @ {entry.text}"
    # Of a repository's it takes `#subdirectory=` for a part.
    if entry.kind != "pip_git" or entry.marker or not entry.subdirectory or " @ " in entry.text:
        return entry.text
    name = entry.name or entry.url.rstrip("/").rpartition("/")[2].removesuffix(".git")
    ref = f"@{entry.ref}" if entry.ref else ""
    return f"{name} @ git+{entry.url}{ref}#subdirectory={entry.subdirectory}"


def _plain_text(source: SourceFile) -> str:
    """The same content: included lines in place of their include, what has no name left out."""
    lines = ["channels:"] + [f"  - {_quoted(channel.text)}" for channel in source.channels]
    if not source.channels:
        lines = ["channels: []"]
    lines.append(f"category: {_quoted(source.category)}")
    if source.pip_repositories:
        lines += ["pip-repositories:", *(f"  - {_quoted(item.text)}" for item in source.pip_repositories)]
    if not source.allow_pypi_requests:
        lines.append("allow-pypi-requests: false")
    conda = [f"  - {_quoted(entry.text)}{_selector(entry.selector)}" for entry in source.conda]
    readable = [entry for entry in source.pip if _is_readable(entry)]
    pip = [f"    - {_quoted(_text(entry))}{_selector(entry.selector)}" for entry in readable]
    if source.pip_sections:
        pip.insert(0, "  - pip:" if pip else "  - pip: []")
    lines += ["dependencies:", *conda, *pip] if conda or pip else ["dependencies: []"]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _selector(selector: str | None) -> str:
    return f"  # [{selector}]" if selector is not None else ""


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Without conda-lock's own remarks: the findings of `lint` say the same with a place."""
    logger = logging.getLogger("conda_lock")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logger.setLevel(level)
