"""The repository of the working directory: commit, local changes, environment files and locks."""

from __future__ import annotations

import fnmatch
import hashlib
import os
from typing import Any, Dict, List, Tuple

from envaudit.probe.checkout import find_checkout, head_of, may_start_programs, origin_of
from envaudit.probe.context import Answer, Context, ProgramFailed, ProgramTimeout
from envaudit.probe.secrets import clean, clean_url

SCHEMA = 1
DEADLINE_S = 5.0

# A folder without this name beside `.git` is no place where teams keep their locks.
_FOLDERS = ("", "lockfiles", "locks", "envs", "environments")
_FILES = ("environment*.yml", "environment*.yaml", "*lock.yml", "*lock.yaml", "*.lock", "conda-*.lock")
_MAX_FILES = 100
_MAX_FILE_BYTES = 32 << 20
_MAX_CHANGED = 50


def read(context: Context) -> Answer:
    """Commit, `dirty` (tracked files that differ from it) and sha256 of environment files and locks.

    `dirty` is null where git cannot say: not installed, older than 2.15, or a checkout of another
    owner, which git refuses to look into; and where it could not say without starting a program of
    the checkout's choice or fetching. The commit is then read from the files.
    """
    if not context.is_dir(context.workdir):
        return Answer("error", {}, {}, (f"{context.workdir}: no such folder",))
    top = find_checkout(context, context.workdir)
    if top is None:
        return Answer("absent", {})
    notes: Dict[str, Any] = {"top": top}
    errors: List[str] = []
    facts: Dict[str, Any] = {"commit": None, "dirty": None}
    try:
        facts["commit"], notes["branch"] = head_of(context, top)
    except OSError as error:
        errors.append(f"{top}: {error}")
    try:
        facts["dirty"], notes["changed"] = _changes(context, top)
    except ProgramTimeout as error:
        errors.append(str(error))
    except ProgramFailed as error:
        notes["not_examined"] = {"dirty": str(error)}
    facts["files"], unread = _files(context, top)
    errors += unread
    origin = origin_of(context, top)
    notes["origin"] = None if origin is None else clean_url(origin)
    return Answer("partial" if errors else "ok", facts, notes, errors)


def _changes(context: Context, top: str) -> Tuple[bool, List[str]]:
    # No lock is taken in a repository that somebody may be using, and no program that its
    # configuration names is started. Untracked files (logs, checkpoints) are no change.
    if may_start_programs(context, top):
        raise ProgramFailed("its own configuration has filters, includes or a promisor, which git would run")
    options = ["--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "status.renames=false"]
    argv = ["git", *options, "-C", top, "status"]
    argv += ["--porcelain", "-z", "--untracked-files=no", "--ignore-submodules=dirty"]
    ran = context.run(argv, limit_bytes=8 << 20)
    if ran.rc != 0:
        lines = ran.stderr.strip().splitlines()
        raise ProgramFailed(clean(lines[0]) if lines else f"git ended with status {ran.rc}")
    changed = [entry[3:] for entry in ran.stdout.split("\0") if entry]
    return bool(changed), changed[:_MAX_CHANGED]


def _files(context: Context, top: str) -> Tuple[Dict[str, str], List[str]]:
    """sha256 by path, relative to the checkout, of the environment files and locks."""
    found: Dict[str, str] = {}
    errors: List[str] = []
    folders = {os.path.join(top, folder) if folder else top for folder in _FOLDERS} | {context.workdir}
    for folder in sorted(folders):
        try:
            names = context.list_dir(folder)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            errors.append(f"{folder}: {error.strerror}")
            continue
        for name in names:
            if len(found) < _MAX_FILES and any(fnmatch.fnmatchcase(name, glob) for glob in _FILES):
                path = os.path.join(folder, name)
                try:
                    text = context.read_bytes(path, _MAX_FILE_BYTES)
                except OSError as error:
                    errors.append(f"{path}: {error.strerror}")
                else:
                    found[os.path.relpath(path, top)] = hashlib.sha256(text).hexdigest()
    return found, errors
