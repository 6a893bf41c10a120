"""Tags: small files `tags/<tag>/<node>` that each hold the name of one snapshot file."""

from __future__ import annotations

import errno
import os
import re
from typing import Dict, Iterable, List, NamedTuple, Optional

from envaudit.errors import InputError, UsageError
from envaudit.model.codec import NODE_NAME
from envaudit.store.files import (
    make_folder,
    open_regular,
    replace,
    sync_folder,
    write_failure,
)
from envaudit.store.snapshot_file import parse_name, unreadable
from envaudit.store.temporaries import is_temporary, remove_abandoned

LATEST = "latest"

# It starts with a letter: neither a time, nor `..`, nor hidden; and fits a file name.
_TAG = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,99}\Z")
_MAX_TAG_FILE_BYTES = 512


class Problem(NamedTuple):
    """Something in the store that is not as a writer leaves it."""

    path: str
    text: str


class TagTable(NamedTuple):
    """All tags: tag to node to snapshot file name, and what could not be read."""

    tags: Dict[str, Dict[str, str]]
    problems: List[Problem]


def check_tag(tag: str) -> None:
    """Refuse what is no tag that a user may give.

    Raises:
        UsageError: another shape, or the built-in `latest`.
    """
    if tag == LATEST:
        raise UsageError(f"'{LATEST}' is built in and always means the newest snapshot", where="tag")
    if not _TAG.match(tag):
        raise UsageError(
            f"{tag!a} is not a tag",
            next_step="A tag is a letter, then letters, digits, '.', '_' or '-', at most 100.",
        )


def check_node(node: str) -> None:
    """Refuse what is no node name before it becomes part of a path.

    Raises:
        UsageError: `../../etc/x`, for instance.
    """
    if not NODE_NAME.match(node):
        raise UsageError(f"{node!a} is not a node name")


def is_tag(text: str) -> bool:
    """Whether a reference is a tag (or `latest`) and not a time."""
    return _TAG.match(text) is not None


def read_tag(root: str, tag: str, node: str) -> Optional[str]:
    """The snapshot file that `tag` names for `node`; None when the node does not have the tag.

    Raises:
        InputError: the tag's file is not one that a store writes.
    """
    folder = os.path.join(root, tag)
    path = os.path.join(folder, node)
    _refuse_links(root, folder)
    try:
        data = _read(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise unreadable(path, error) from error
    name = data.decode("ascii", "replace").rstrip("\n")
    if parse_name(name) is None:
        raise InputError(
            "does not hold the name of a snapshot", where=path, next_step="Remove it, and tag the node again."
        )
    return name


def write_tags(root: str, tag: str, nodes: Iterable[str], name: str) -> None:
    """Let `tag` name the snapshot file `name` for each node, replacing what it named before.

    Raises:
        NeededError: disk full, no permission; each node has its old or its new tag.
    """
    folder = os.path.join(root, tag)
    _refuse_links(root, folder)
    make_folder(folder)
    # Temporary files lie beside the tags' folders, so that one look finds those of all tags.
    try:
        remove_abandoned(root)
        replace(folder, sorted(nodes), f"{name}\n".encode("ascii"), temporaries=root)
        sync_folder(folder)
    except OSError as error:
        raise write_failure(folder, error) from error


def tag_names(root: str) -> List[str]:
    """All tags of the store, sorted."""
    return [name for name in _list(root) if _TAG.match(name) and name != LATEST]


def nodes_with(root: str, tag: str) -> List[str]:
    """The nodes that have a tag, sorted."""
    return [name for name in _list(os.path.join(root, tag)) if NODE_NAME.match(name)]


def read_all(root: str) -> TagTable:
    """Every tag of every node; what is strange becomes a problem and hides nothing else."""
    table: Dict[str, Dict[str, str]] = {}
    problems = []
    _refuse_links(root)
    for tag in _list(root):
        if is_temporary(tag):
            continue
        folder = os.path.join(root, tag)
        if not _TAG.match(tag) or tag == LATEST or os.path.islink(folder) or not os.path.isdir(folder):
            problems.append(Problem(folder, "not the folder of a tag"))
            continue
        for node in _list(folder):
            path = os.path.join(folder, node)
            if not NODE_NAME.match(node):
                problems.append(Problem(path, "not named after a node"))
                continue
            try:
                name = read_tag(root, tag, node)
            except InputError as error:
                problems.append(Problem(path, error.what))
                continue
            if name is not None:
                table.setdefault(tag, {})[node] = name
    return TagTable(table, problems)


def tags_of_snapshot(root: str, nodes: Iterable[str], name: str) -> List[str]:
    """The tags by which any of `nodes` needs the snapshot file `name`, read afresh.

    Raises:
        InputError: a tag cannot be read, so that nobody knows what it needs.
    """
    names = list(nodes)
    return [tag for tag in tag_names(root) if any(read_tag(root, tag, node) == name for node in names)]


def _read(path: str) -> bytes:
    # A tag replaced by another machine while it is open here: NFS calls the old file stale.
    for attempt in range(3):
        try:
            with open(open_regular(path), "rb") as stream:
                return stream.read(_MAX_TAG_FILE_BYTES)
        except OSError as error:
            if error.errno != errno.ESTALE or attempt == 2:
                raise
    raise AssertionError


def _refuse_links(*folders: str) -> None:
    """A link would lead readers and writers into any folder of its maker's choice."""
    for folder in folders:
        if os.path.islink(folder):
            raise InputError("a symbolic link, expected a folder", where=folder)


def _list(folder: str) -> List[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise unreadable(folder, error) from error
