"""An environment that several nodes share: read whole by one of them, stamped by the others.

A thousand nodes that read one environment on one file server would bring its metadata service
down. So a node that is told to wait looks where its environment lies. On a network file system it
leaves the sections that depend on nothing else unread, and says instead which environment it would
have read and in which state it sees it. Whoever asked then takes these sections from a node that
read the same one in the same state.

The stamp is a digest over all that those sections depend on: the interpreter's own words about its
folders, and of conda-meta and every folder of sys.path the source, the place, inode and mtime_ns.
A node with a stale view of a folder, another mount inside it, or a local folder that holds
packages has another stamp or none, and reads for itself. What no stamp shows is a file that was
changed in place, on a node whose client still has its old pages.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any, Callable, Dict, List, Mapping, Optional

from envaudit.probe.context import Answer, Context
from envaudit.probe.hostname import host_names
from envaudit.probe.mounts import Mount, MountTable, mounts, real_path
from envaudit.probe.placeholders import Placeholders
from envaudit.probe.secrets import clean

# What follows from the files of the environment alone. What the loader takes and what the
# interpreter says of itself is asked on every node.
SECTIONS = ("conda", "integrity", "packages", "torch")

# The option that tells a node its part, and its values.
OPTION = "shared_prefix"
LEAD = "lead"
WAIT = "wait"

# The note of a section that carries the stamp.
NOTE = "shared_prefix"
LEFT = "left to a node that sees the same shared environment"

_PACKAGE_ENDS = (".dist-info", ".egg-info", ".egg-link", ".egg", ".pth")
_TORCH = ("torch", "torchvision", "torchaudio")
_TEXTS = ("prefix", "base_prefix", "exec_prefix", "user_site", "user_site_enabled", "path", "site_packages")
_MAX_SOURCE = 256
_MAX_PATH = 4096


def prepare(context: Context) -> None:
    """Before any section is read: a node without a network file system has no part in it."""
    try:
        shared = any(mount.network for mount in mounts(context))
    except OSError:
        shared = False
    if not shared:
        context.options = {name: value for name, value in context.options.items() if name != OPTION}


def read(name: str, context: Context, whole: Callable[[Context], Answer]) -> Answer:
    """What section `name` answers: `whole(context)`, or the stamp of a shared environment instead."""
    part = context.options.get(OPTION)
    if part not in (LEAD, WAIT) or name not in SECTIONS:
        return whole(context)
    stamp = stamp_of(context)
    if stamp is None:
        return whole(context)
    if part == WAIT:
        return Answer("error", {}, {NOTE: stamp}, (LEFT,))
    answer = whole(context)
    return answer._replace(notes={**answer.notes, NOTE: stamp})


def is_left(row: Mapping[str, Any]) -> bool:
    """Whether a section's row says that it was left to another node."""
    return row["status"] == "error" and NOTE in row["notes"] and row["errors"] == [LEFT]


def stamp_of(context: Context) -> Optional[Dict[str, str]]:
    """Source and path of the environment on its file server, and the digest of its state as seen here.

    None where the environment is not on a network file system, not all of it, or not to be seen.

    Raises:
        InterpreterUnknown: there is no environment to be read.
    """
    try:
        table = MountTable(mounts(context))
    except OSError:
        return None
    told = context.interpreter
    prefix = str(told.get("prefix") or "")
    looking = _Looking(context, table)
    home = looking.mount_of(prefix)
    if home is None or not home.network or not looking.see_all(told):
        return None
    put = Placeholders(context.environ, host_names(context)).put
    seen = {
        "told": [told.get(key) for key in _TEXTS],
        # A folder outside the prefix is told with placeholders, which follow from the user.
        "shown": [put(entry) for entry in told.get("path", ())],
        "state": looking.state,
    }
    text = json.dumps(seen, sort_keys=True)
    return {
        "filesystem": home.fstype,
        "source": clean(home.source)[:_MAX_SOURCE],
        "path": home.place(real_path(context, prefix) or prefix)[:_MAX_PATH],
        "stamp": hashlib.sha256(text.encode("ascii")).hexdigest(),
    }


class _Looking:
    """The folders of one environment, and the state in which they are seen.

    Attributes:
        state: of each folder and file that was looked at, what tells its state.
    """

    def __init__(self, context: Context, table: MountTable) -> None:
        self.state: List[Any] = []
        self._context = context
        self._table = table

    def mount_of(self, path: str) -> Optional[Mount]:
        """The mount that holds a path."""
        return self._table.holding(real_path(self._context, path) or path) if path else None

    def see_all(self, told: Mapping[str, Any]) -> bool:
        """Look at every folder that the shared sections read; whether all of it is shared."""
        prefixes = {str(told.get(key) or "") for key in ("prefix", "base_prefix")} - {""}
        records = {os.path.join(prefix, "conda-meta") for prefix in prefixes}
        entries = [str(entry) for entry in told.get("path", ())]
        for folder in dict.fromkeys([*sorted(prefixes), *sorted(records), *entries]):
            if not self._see_folder(folder, may_be_local=folder not in records, bare=folder in prefixes):
                return False
        for prefix in sorted(prefixes):
            # Edited in place, these leave their folder's time as it is.
            for name in ("pinned", "history"):
                self._see_file(os.path.join(prefix, "conda-meta", name))
        for entry in entries:
            self._see_file(os.path.join(entry, "torch", "version.py"))
        return True

    def _see_folder(self, folder: str, *, may_be_local: bool, bare: bool) -> bool:
        """Take a folder's state; False where it is not shared and may hold what the sections read.

        Args:
            folder: its path.
            may_be_local: whether it need not be shared, as long as it holds no package.
            bare: whether nothing in it but its subfolders is read, as in a prefix.
        """
        real = real_path(self._context, folder) or folder
        mount = self._table.holding(real)
        try:
            seen = os.stat(self._context.real(real))
        except (FileNotFoundError, NotADirectoryError):
            self.state.append([folder, None])
            return True
        except OSError:
            return False
        if mount is None:
            return False
        if not mount.network:
            return may_be_local and (bare or self._is_bare(folder))
        below = real.rstrip("/") + "/"
        if any(other.point.startswith(below) for other in self._table.mounts):
            return False
        self.state.append([folder, mount.source, mount.place(real), seen.st_ino, seen.st_mtime_ns])
        return True

    def _is_bare(self, folder: str) -> bool:
        """Whether a local folder, such as that of the standard library, holds no package at all."""
        try:
            names = self._context.list_dir(folder)
        except NotADirectoryError:
            return False  # a zip
        except OSError:
            return False
        self.state.append([folder, "local"])
        return not any(name.endswith(_PACKAGE_ENDS) or name in _TORCH for name in names)

    def _see_file(self, path: str) -> None:
        try:
            seen = os.stat(self._context.real(real_path(self._context, path) or path))
        except OSError:
            return
        self.state.append([path, seen.st_ino, seen.st_size, seen.st_mtime_ns])
