"""A git checkout read from its files: where it is, what is checked out, where it came from.

Enough where git is not installed, too old, or refuses a checkout of another owner.
"""

from __future__ import annotations

import os
import re
from typing import Optional, Tuple

from envaudit.probe.context import Context

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")
_MAX_REFS_BYTES = 8 << 20
# What `git status` of a checkout starts: the `clean` and `process` of a filter for each file whose
# time stamp changed, and a transport for what a partial clone left out. An include may hold either.
_STARTING = re.compile(r"\[(?:filter|include)|promisor|partialclone", re.IGNORECASE)


def find_checkout(context: Context, folder: str) -> Optional[str]:
    """The top folder of the checkout that holds `folder`, or None."""
    here = os.path.normpath(folder)
    while True:
        if context.exists(os.path.join(here, ".git")):
            return here
        above = os.path.dirname(here)
        if above == here:
            return None
        here = above


def git_folder(context: Context, top: str) -> str:
    """The folder of a checkout's own git data: `.git`, or what a worktree's `.git` file names.

    Raises:
        OSError: it is not readable, or names nothing.
    """
    folder = os.path.join(top, ".git")
    if context.is_dir(folder):
        return folder
    key, _, target = context.read_text(folder, 4096).strip().partition(": ")
    if key != "gitdir" or not target:
        raise OSError(f"{folder}: names no gitdir")
    return os.path.normpath(os.path.join(top, target))


def head_of(context: Context, top: str) -> Tuple[Optional[str], Optional[str]]:
    """Commit and branch that a checkout's HEAD names; None where there is none yet, or no branch.

    Raises:
        OSError: HEAD or what it names cannot be read.
    """
    folder = git_folder(context, top)
    head = context.read_text(os.path.join(folder, "HEAD"), 4096).strip()
    if _COMMIT.match(head):
        return head, None
    key, _, ref = head.partition(": ")
    if key != "ref" or not ref.startswith("refs/"):
        raise OSError(f"{folder}/HEAD: neither a commit nor a reference")
    branch = ref[len("refs/heads/") :] if ref.startswith("refs/heads/") else ref
    return _commit_of(context, folder, ref), branch


def origin_of(context: Context, top: str) -> Optional[str]:
    """The URL of the remote `origin` as the checkout's configuration has it, or None."""
    try:
        text = context.read_text(os.path.join(_shared(context, git_folder(context, top)), "config"))
    except OSError:
        return None
    inside = False
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("["):
            inside = line.replace(" ", "").lower() == '[remote"origin"]'
        elif inside:
            key, _, value = line.partition("=")
            if key.strip().lower() == "url":
                return value.strip().strip('"')
    return None


def may_start_programs(context: Context, top: str) -> bool:
    """Whether git, asked for changes, may start what the checkout's own configuration names.

    The user's and the system's configuration (git-lfs is installed there) are theirs to trust. A
    configuration that cannot be read is not known to be harmless.
    """
    try:
        folder = git_folder(context, top)
        shared = _shared(context, folder)
        for path in (os.path.join(shared, "config"), os.path.join(folder, "config.worktree")):
            if context.exists(path) and _STARTING.search(context.read_text(path)):
                return True
    except OSError:
        return True
    return False


def _shared(context: Context, folder: str) -> str:
    """The folder with references and configuration: a worktree shares that of its repository."""
    try:
        common = context.read_text(os.path.join(folder, "commondir"), 4096).strip()
    except OSError:
        return folder
    return os.path.normpath(os.path.join(folder, common))


def _commit_of(context: Context, folder: str, ref: str) -> Optional[str]:
    if ".." in ref.split("/"):
        raise OSError(f"{folder}/HEAD: leads out of the repository")
    shared = _shared(context, folder)
    for place in (folder, shared):
        try:
            commit = context.read_text(os.path.join(place, ref), 4096).strip()
        except OSError:
            continue
        if _COMMIT.match(commit):
            return commit
    try:
        packed = context.read_text(os.path.join(shared, "packed-refs"), _MAX_REFS_BYTES)
    except FileNotFoundError:
        return None
    for line in packed.splitlines():
        commit, _, name = line.partition(" ")
        if name == ref and _COMMIT.match(commit):
            return commit
    return None
