"""Keeping a store in order: what is wrong in it, and what nobody needs any more."""

from __future__ import annotations

import os
from typing import Dict, List, Optional, Set

from envaudit.errors import InputError, UsageError
from envaudit.store.files import hide, restore, sync_folder, write_failure
from envaudit.store.listing import Entry, problem_of, scan, snapshot_names
from envaudit.store.snapshot_file import (
    decode_document,
    digest8,
    parse_name,
    read_document,
    read_head,
    stamp_of,
    unreadable,
)
from envaudit.store.tags import Problem, read_all, read_tag, tags_of_snapshot
from envaudit.store.temporaries import abandoned, remove_abandoned


def verify(snapshots: str, tags: str) -> List[Problem]:
    """Everything in the store that is not as a writer leaves it, after reading all of it.

    Recomputes every section's, fingerprint's and file's digest; names tags that lead nowhere and
    temporary files of writers that are gone. An empty list means that every snapshot is whole.

    Raises:
        InputError: the store's folders cannot be listed.
    """
    names = snapshot_names(snapshots)
    problems = [Problem(os.path.join(snapshots, name), "not named like a snapshot") for name in names.strange]
    nodes_of: Dict[str, Set[str]] = {}
    for name in names.snapshots:
        try:
            nodes_of[name] = _verify_file(os.path.join(snapshots, name), name)
        except FileNotFoundError:
            continue
        except InputError as error:
            # A file that is gone was pruned since the folder was listed.
            if os.path.lexists(os.path.join(snapshots, name)):
                problems.append(problem_of(os.path.join(snapshots, name), error))
    table = read_all(tags)
    problems += table.problems
    for tag, rows in table.tags.items():
        for node, name in rows.items():
            path = os.path.join(tags, tag, node)
            if not os.path.lexists(os.path.join(snapshots, name)):
                # A tag that was moved meanwhile has nothing to do with that file any more.
                if read_tag(tags, tag, node) == name:
                    problems.append(Problem(path, f"leads to {name}, which does not exist"))
            elif name in nodes_of and node not in nodes_of[name]:
                problems.append(Problem(path, f"leads to {name}, which does not hold {node}"))
    for folder in (snapshots, tags):
        problems += _leftovers(folder)
    return sorted(problems)


def prune(snapshots: str, tags: str, keep: int, now: Optional[str] = None) -> List[str]:
    """Remove the snapshots that no tag needs and that are not among any node's newest `keep`.

    A file that cannot be read stays, and so does one from after `now`: its clock was ahead, and it is
    no reason to remove what was taken since. A tag that is set while this runs keeps its snapshot: the
    file is renamed out of the way first, then the tags are read once more, and it comes back
    when one needs it; whoever sets a tag looks for the file afterwards. Only a prune that is
    killed between the two, in the moment in which somebody tags just that file, loses it.

    Returns:
        The names of the removed files, oldest first.

    Raises:
        UsageError: `keep` is less than 1.
        NeededError: a file may not be removed.
        InputError: a tag cannot be read, so that what it needs is not known.
    """
    if keep < 1:
        raise UsageError(f"cannot keep {keep} snapshots of a node", where="--keep", why="at least 1")
    found = scan(snapshots, tags)
    unread = [problem for problem in found.problems if problem.path.startswith(tags + os.sep)]
    if unread:
        raise InputError(
            unread[0].text,
            where=unread[0].path,
            why="so it is not known what it needs",
            next_step="See 'envaudit store verify', and repair or remove it; nothing was pruned.",
        )
    entries = [entry for entry in found.entries if now is None or entry.captured_at <= now]
    removed = [entry.name for entry in _unneeded(entries, keep) if _remove(snapshots, tags, entry)]
    if removed:
        sync_folder(snapshots)
    remove_abandoned(snapshots)
    remove_abandoned(tags)
    return removed


def _unneeded(entries: List[Entry], keep: int) -> List[Entry]:
    seen: Dict[str, int] = {}
    doomed = []
    for entry in reversed(entries):
        recent = any(seen.get(node, 0) < keep for node in entry.nodes)
        for node in entry.nodes:
            seen[node] = seen.get(node, 0) + 1
        if not recent and not entry.tags:
            doomed.append(entry)
    return doomed[::-1]


def _remove(snapshots: str, tags: str, entry: Entry) -> bool:
    path = os.path.join(snapshots, entry.name)
    try:
        if tags_of_snapshot(tags, entry.nodes, entry.name):
            return False
        aside = hide(path)
        try:
            needed = bool(tags_of_snapshot(tags, entry.nodes, entry.name))
        except InputError:
            restore(aside, path)
            raise
        if needed:
            restore(aside, path)
            return False
        os.unlink(aside)
        return True
    except FileNotFoundError:
        return False  # another prune was faster
    except OSError as error:
        raise write_failure(path, error) from error


def _verify_file(path: str, name: str) -> Set[str]:
    """The nodes of a snapshot file that is whole.

    Raises:
        InputError: it is not, or it is gone.
        FileNotFoundError: it went just now.
    """
    document = read_document(path)
    snapshot = decode_document(document, path)
    head = read_head(path)
    match = parse_name(name)
    assert match is not None
    if match["digest"] != digest8(document):
        raise InputError("the digest in its name differs from the content", where=path)
    if match["stamp"] != stamp_of(head["captured_at"]):
        raise InputError("the time in its name differs from the content", where=path)
    return {fingerprint.node for fingerprint in snapshot.fingerprints}


def _leftovers(folder: str) -> List[Problem]:
    try:
        names = abandoned(folder)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise unreadable(folder, error) from error
    return [
        Problem(os.path.join(folder, name), "left by a writer that ended; the next writer removes it")
        for name in names
    ]
