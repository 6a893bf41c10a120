"""Files in the folders of packages that no package recorded.

Only importable packages are looked into: folders of site-packages in which a package has files.
What lies beside them (a `.pth` file, `__editable__` modules, metadata) comes and goes with tools that
keep no record, and so do caches and generated files in `lib`, `share`, `etc` and `bin`.
"""

from __future__ import annotations

import os
from typing import Dict, Iterator, List, Set, Tuple

from envaudit.probe.context import Context
from envaudit.probe.recorded import Recorded

# Byte code and what numba caches beside it; what NFS and editors leave of an open file.
_SKIPPED_FOLDERS = ("__pycache__", ".ipynb_checkpoints")
_SKIPPED_ENDINGS = (".pyc", ".pyo", ".swp", "~")
_SKIPPED_BEGINNINGS = (".nfs", ".#")
_METADATA = (".dist-info", ".egg-info", ".egg", ".data")
_MAX_DEPTH = 64
_MAX_ENTRIES = 5_000_000


def unrecorded(context: Context, recorded: Recorded, errors: List[str]) -> Iterator[Tuple[str, str]]:
    """Package and path of each file; the package is the one that the folder belongs to."""
    folders = _folders(recorded)
    entries = 0
    for top in _tops(recorded):
        pending: List[Tuple[str, str, int]] = [(top, "", 0)]
        while pending:
            folder, owner, depth = pending.pop()
            owner = folders.get(folder) or owner
            try:
                with os.scandir(context.real(folder)) as listed:
                    found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in listed]
            except FileNotFoundError:
                continue  # its files are told as missing
            except OSError as error:
                errors.append(f"{folder}: {error.strerror}")
                continue
            entries += len(found)
            if entries > _MAX_ENTRIES:
                errors.append(f"{top}: more than {_MAX_ENTRIES} files, of which no more were looked at")
                return
            for name, is_folder in found:
                path = f"{folder}/{name}"
                if is_folder:
                    # In a folder that several packages share without owning it, others may have theirs.
                    if name not in _SKIPPED_FOLDERS and depth < _MAX_DEPTH and (owner or path in folders):
                        pending.append((path, owner, depth + 1))
                elif owner and path not in recorded.owned and not _is_skipped(name):
                    yield owner, path


def _is_skipped(name: str) -> bool:
    return name.endswith(_SKIPPED_ENDINGS) or name.startswith(_SKIPPED_BEGINNINGS)


def _folders(recorded: Recorded) -> Dict[str, str]:
    """Each folder in which a package has a file, or folders of files, to that package.

    The empty name stands for a folder that holds none itself: a namespace that packages share.
    """
    found: Dict[str, str] = {}
    for path, package in recorded.owned.items():
        folder = path.rpartition("/")[0]
        if not found.get(folder) or package < found[folder]:
            found[folder] = package
    for folder in list(found):
        above = folder.rpartition("/")[0]
        while above and above not in found:
            found[above] = ""
            above = above.rpartition("/")[0]
    return found


def _tops(recorded: Recorded) -> List[str]:
    """The top-level folders of site-packages that packages have files in."""
    tops: Set[str] = set()
    for site in recorded.sites:
        if os.path.basename(site) not in ("site-packages", "dist-packages"):
            continue  # the standard library holds what its distributor put there
        start = site + "/"
        for path in recorded.owned:
            if path.startswith(start):
                name, slash, _ = path[len(start) :].partition("/")
                if slash and not name.endswith(_METADATA) and name not in _SKIPPED_FOLDERS:
                    tops.add(start + name)
    return sorted(tops - recorded.unowned)
