"""The distributions of a folder on sys.path, by the names of their metadata folders.

Reading the names alone costs microseconds where importlib.metadata costs a millisecond each; the
metadata itself is opened where a name is odd.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from typing import List, NamedTuple, Optional, Sequence, Tuple

from envaudit.probe.context import Context

_SEPARATORS = re.compile(r"[-_.]+")
# `torch-2.1.0+cu121`, `zope.interface-5.5.2`, `foo-1.0-py3.11`, `foo-1.0-py3.11-linux-x86_64`: what a
# version looks like in such a name; anything else is looked up in the metadata.
_NAMED = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[\w.]*[A-Za-z0-9])?)"
    r"-(?P<version>\d+!?[A-Za-z0-9.+]*)"
    r"(?:-py\d(?:\.\d+)?(?:-[\w.-]+)?)?\Z"
)
_METADATA_HEAD_BYTES = 64 * 1024


class Distribution(NamedTuple):
    """One distribution as its metadata names it.

    Attributes:
        name: normalised as PEP 503 has it.
        version: with its local tag; None where the metadata names none.
        folder: the entry of sys.path that holds it.
        metadata: its .dist-info or .egg-info, a folder or a file.
        project: for a development install by .egg-link, the project's folder.
    """

    name: str
    version: Optional[str]
    folder: str
    metadata: str
    project: Optional[str] = None


def normalise(name: str) -> str:
    """A name as PEP 503 compares it: `Foo.Bar_baz` is `foo-bar-baz`."""
    return _SEPARATORS.sub("-", name).lower()


def find_in(context: Context, folder: str, names: Sequence[str], errors: List[str]) -> List[Distribution]:
    """All distributions that a folder with these entries holds; unreadable ones go to `errors`."""
    found = []
    for entry in names:
        stem, dot, kind = entry.rpartition(".")
        if not dot or kind not in ("dist-info", "egg-info", "egg-link", "egg"):
            continue
        if stem.startswith("~"):
            continue  # what pip could not remove of an older one; it ignores it as well
        path = os.path.join(folder, entry)
        if kind == "egg-link":
            one = _linked(context, folder, stem, path, errors)
        elif kind == "egg":
            one = _named(context, folder, stem, os.path.join(path, "EGG-INFO"), errors)
        else:
            one = _named(context, folder, stem, path, errors)
        if one is not None:
            found.append(one)
    counts = Counter(one.name for one in found)
    return [one for one in found if counts[one.name] == 1 or _is_whole(context, one)]


def _is_whole(context: Context, one: Distribution) -> bool:
    """Whether a record is one, and not what was left of an older version's when that was removed."""
    if one.project is not None or not one.metadata.endswith(".dist-info"):
        return True
    return _has_metadata(context, one.metadata)


def _named(context: Context, folder: str, stem: str, path: str, errors: List[str]) -> Optional[Distribution]:
    match = _NAMED.match(stem)
    if match:
        return Distribution(normalise(match["name"]), match["version"], folder, path)
    name, version = _described(context, path, errors)
    if name is None and version is None and path.endswith(".dist-info") and not _has_metadata(context, path):
        return None  # what a killed install left
    return Distribution(normalise(name or stem.partition("-")[0]), version, folder, path)


def _linked(context: Context, folder: str, stem: str, path: str, errors: List[str]) -> Optional[Distribution]:
    """What `setup.py develop` installed: a .egg-link whose first line is the project's folder."""
    try:
        lines = context.read_text(path, 1 << 16).splitlines()
    except OSError as error:
        errors.append(f"{path}: {error.strerror}")
        return None
    if not lines:
        errors.append(f"{path}: names no folder")
        return None
    project = lines[0].strip()
    metadata = os.path.join(project, stem.replace("-", "_") + ".egg-info")
    name, version = _described(context, metadata, errors)
    return Distribution(normalise(name or stem), version, folder, metadata, project)


def _has_metadata(context: Context, path: str) -> bool:
    return context.exists(os.path.join(path, "METADATA"))


def _described(context: Context, path: str, errors: List[str]) -> Tuple[Optional[str], Optional[str]]:
    """Name and version from METADATA or PKG-INFO, in `path` or `path` itself."""
    name = version = None
    for place in (os.path.join(path, "METADATA"), os.path.join(path, "PKG-INFO"), path):
        try:
            text = context.read_head(place, _METADATA_HEAD_BYTES).decode("utf-8", "replace")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            continue
        except OSError as error:
            errors.append(f"{place}: {error.strerror}")
            return None, None
        for line in text.splitlines():
            if not line.strip():
                break  # the headers are over
            key, _, value = line.partition(":")
            if key.lower() == "name":
                name = value.strip() or None
            elif key.lower() == "version":
                version = value.strip() or None
        break
    return name, version
