"""Files in the folders of packages that no package recorded.

Only importable packages are looked into: folders of site-packages in which a package has files.
What lies beside them (a `.pth` file, `__editable__` modules, metadata) comes and goes with tools that
keep no record, and so do caches and generated files in `lib`, `share`, `etc` and `bin`.
"""

from __future__ import annotations

import os
import stat
from typing import Dict, FrozenSet, Iterator, List, Set, Tuple

from envaudit.probe.context import Context
from envaudit.probe.recorded import Recorded

# Byte code and what numba caches beside it; what NFS and editors leave of an open file.
_SKIPPED_FOLDERS = ("__pycache__", ".ipynb_checkpoints")
_SKIPPED_ENDINGS = (".pyc", ".pyo", ".swp", "~")
_SKIPPED_BEGINNINGS = (".nfs", ".#")
_NONE: FrozenSet[str] = frozenset()
_METADATA = (".dist-info", ".egg-info", ".egg", ".data")
_MAX_DEPTH = 64
_MAX_ENTRIES = 5_000_000


def unrecorded(context: Context, recorded: Recorded, errors: List[str]) -> Iterator[Tuple[str, str]]:
    """Package and path of each file; the package is the one that the folder belongs to."""
    owners, names = _owners(recorded), recorded.folders
    entries = 0
    for top in _tops(recorded):
        pending: List[Tuple[str, str, int]] = [(top, "", 0)]
        while pending:
            folder, owner, depth = pending.pop()
            owner = owners.get(folder) or owner
            known = names.get(folder, _NONE)
            try:
                listed = os.listdir(context.real(folder))
            except (FileNotFoundError, NotADirectoryError):
                continue  # its files are told as missing
            except OSError as error:
                errors.append(f"{folder}: {error.strerror}")
                continue
            entries += len(listed)
            if entries > _MAX_ENTRIES:
                errors.append(f"{top}: more than {_MAX_ENTRIES} files, of which no more were looked at")
                return
            for name in listed:
                if name in known:
                    continue
                path = f"{folder}/{name}"
                if path in owners or (owner and _is_folder(context, path)):
                    if name not in _SKIPPED_FOLDERS and depth < _MAX_DEPTH:
                        pending.append((path, owner, depth + 1))
                elif owner and not _is_skipped(name):
                    yield owner, path


def _is_folder(context: Context, path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(context.real(path)).st_mode)
    except OSError:
        return False  # gone meanwhile, or not to be looked at


def _is_skipped(name: str) -> bool:
    return name.endswith(_SKIPPED_ENDINGS) or name.startswith(_SKIPPED_BEGINNINGS)


def _owners(recorded: Recorded) -> Dict[str, str]:
    """Each folder that leads to a recorded name to its package.

    The empty package stands for a folder that holds folders alone: a namespace that packages share.
    """
    owners = dict(recorded.owners)
    for folder in recorded.folders:
        above = folder.rpartition("/")[0]
        while above and above not in owners:
            owners[above] = ""
            above = above.rpartition("/")[0]
    return owners


def _tops(recorded: Recorded) -> List[str]:
    """The top-level folders of site-packages that packages have files in."""
    tops: Set[str] = set()
    for site in recorded.sites:
        if os.path.basename(site) not in ("site-packages", "dist-packages"):
            continue  # the standard library holds what its distributor put there
        start = site + "/"
        for folder in recorded.folders:
            if folder.startswith(start):
                name = folder[len(start) :].partition("/")[0]
                if not name.endswith(_METADATA) and name not in _SKIPPED_FOLDERS:
                    tops.add(start + name)
    return sorted(tops - recorded.unowned)
