"""What lies in a store, from file names, heads and tags alone."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

from envaudit.errors import InputError
from envaudit.model.fingerprint import Missing
from envaudit.store.snapshot_file import advised, parse_name, read_head, unreadable
from envaudit.store.tags import Problem, read_all
from envaudit.store.temporaries import is_temporary


@dataclass(frozen=True)
class Entry:
    """One stored snapshot run.

    Attributes:
        name: the file's name in `snapshots/`.
        captured_at: UTC, `2026-11-30T10:00:00Z`.
        host: the machine that took the snapshot, as far as a file name can hold its name.
        tool: the version of envaudit that wrote it.
        nodes: node to fingerprint digest, as the head claims them.
        missing: the nodes that gave no answer.
        tags: tag to the nodes for which it names this snapshot.
    """

    name: str
    captured_at: str
    host: str
    tool: str
    nodes: Mapping[str, str]
    missing: Mapping[str, Missing]
    tags: Mapping[str, Tuple[str, ...]] = field(default_factory=dict)

    def tags_of(self, node: str) -> Tuple[str, ...]:
        """The tags by which one node has this snapshot, sorted."""
        return tuple(sorted(tag for tag, nodes in self.tags.items() if node in nodes))


class Scan(NamedTuple):
    """The entries of a store, newest last, and what could not be read beside them."""

    entries: List[Entry]
    problems: List[Problem]


class Names(NamedTuple):
    """The snapshot files of a folder, oldest first, and what else lies there."""

    snapshots: List[str]
    strange: List[str]


def snapshot_names(folder: str) -> Names:
    """The names in a `snapshots` folder in the order of time, without opening a file.

    Runs of one second are told apart by the file's own time. A folder that does not exist is
    empty.

    Raises:
        InputError: the folder cannot be listed, or is a symbolic link.
    """
    if os.path.islink(folder):
        raise InputError("a symbolic link, expected a folder", where=folder)
    found: List[Tuple[str, int, str]] = []
    strange = []
    try:
        with os.scandir(folder) as listing:
            for item in listing:
                match = parse_name(item.name)
                if match is not None:
                    order = _modified_ns(item)
                    found.append((match["stamp"], order, item.name))
                elif not is_temporary(item.name):
                    strange.append(item.name)
    except FileNotFoundError:
        return Names([], [])
    except OSError as error:
        raise unreadable(folder, error) from error
    return Names([name for _, _, name in sorted(found)], sorted(strange))


def newest_heads(folder: str, names: Sequence[str]) -> Iterator[Tuple[str, Dict[str, Any]]]:
    """Names and heads from the end of `names` backwards, read as they are asked for.

    Raises:
        InputError: a file on the way is corrupt. It may be the one that is wanted: going on to an
            older one would answer with another snapshot than the user asked for.
    """
    for name in reversed(names):
        try:
            yield name, read_head(os.path.join(folder, name))
        except FileNotFoundError:
            continue  # pruned since the folder was listed
        except InputError as error:
            raise advised(error) from None


def scan(folder: str, tags_root: str) -> Scan:
    """All entries of a store, oldest first; a file that cannot be read becomes a problem."""
    names = snapshot_names(folder)
    table = read_all(tags_root)
    problems = [Problem(os.path.join(folder, name), "not named like a snapshot") for name in names.strange]
    problems += table.problems
    by_name: Dict[str, Dict[str, List[str]]] = {}
    for tag, rows in table.tags.items():
        for node, name in rows.items():
            by_name.setdefault(name, {}).setdefault(tag, []).append(node)
    entries = []
    for name in names.snapshots:
        path = os.path.join(folder, name)
        try:
            head = read_head(path)
        except FileNotFoundError:
            continue  # pruned since the folder was listed
        except InputError as error:
            problems.append(problem_of(path, error))
            continue
        tags = {tag: tuple(nodes) for tag, nodes in by_name.get(name, {}).items()}
        entries.append(_entry(name, head, tags))
    return Scan(entries, problems)


def problem_of(path: str, error: InputError) -> Problem:
    """A file that cannot be read as a problem: the error's text without the path it names."""
    key_path = error.where.partition(": ")[2]
    text = f"{key_path}: {error.what}" if key_path else error.what
    return Problem(path, f"{text} ({error.why})" if error.why else text)


def _entry(name: str, head: Mapping[str, Any], tags: Mapping[str, Tuple[str, ...]]) -> Entry:
    match = parse_name(name)
    assert match is not None
    return Entry(
        name=name,
        captured_at=head["captured_at"],
        host=match["host"],
        tool=head["tool"],
        nodes={node: claim["digest"] for node, claim in head["nodes"].items()},
        missing={
            node: Missing(gone["kind"], gone["why"], gone["next_step"])
            for node, gone in head["missing"].items()
        },
        tags=tags,
    )


def _modified_ns(item: os.DirEntry[str]) -> int:
    try:
        return item.stat(follow_symlinks=False).st_mtime_ns
    except FileNotFoundError:
        return 0
