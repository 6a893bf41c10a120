"""A local channel with every package of a lock: for clusters without a network.

The folder has one channel for each channel of the lock, under its address, a folder `pip` with the
wheels, and a `condarc` that sends conda, mamba and envaudit to it. Each channel has an index, so
that any conda program can use it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from envaudit.errors import InputError, NeededError, UsageError
from envaudit.lock.channels import without_credentials
from envaudit.lock.fetch import Progress, copy_file, fetch_all, hashes_match, wanted
from envaudit.lock.install import Supply, child_lines
from envaudit.lock.lockfile import Lock, LockedPackage
from envaudit.lock.prefix import held

MARKER = "envaudit-mirror.json"

_SUBDIR = re.compile(r"noarch\Z|[a-z]+-[a-z0-9_]+\Z")
_PART = re.compile(r"\.part-[0-9]+\Z")  # of `copy_file` and `_write_settings`
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Mirrored:
    """What a mirror holds after a run.

    Attributes:
        conda, pip: packages of the lock that are there.
        fetched: how many of them this run has brought.
        size_bytes: of all of them.
    """

    conda: int
    pip: int
    fetched: int
    size_bytes: int


def is_mirror(folder: str) -> bool:
    """Whether a folder was made by `mirror`."""
    return os.path.isfile(os.path.join(folder, MARKER))


def pip_folder(folder: str) -> str:
    """Where a mirror keeps wheels."""
    return os.path.join(folder, "pip")


def folder_of(folder: str, package: LockedPackage) -> str:
    """Where a mirror keeps a conda package: `DIR/conda.anaconda.org/conda-forge/linux-64`.

    Raises:
        InputError: the package's URL has no platform folder.
    """
    if not _SUBDIR.match(package.subdir):
        raise InputError(f"{package.name}: its URL names no platform folder")
    return os.path.join(folder, _place(package.channel), package.subdir)


def mirror(
    lock: Lock,
    folder: str,
    supply: Supply,
    *,
    platforms: Collection[str] = (),
    progress: Progress | None = None,
) -> Mirrored:
    """Put every package of a lock into `folder`, checked by hash, and index its channels.

    What is there already and has the right hash stays; what another lock has put there stays too.

    Args:
        lock: all its categories.
        folder: made where it is not there; one that is not empty must be a mirror.
        supply: where the files come from.
        platforms: of the lock; all of them by default.
        progress: is told of each file.

    Raises:
        UsageError: another folder stands there, or the lock lacks a platform.
        InputError: a file is not what the lock says.
        NeededError: a file cannot be had, the folder cannot be written, or another mirror is at work there.
    """
    unknown = sorted(set(platforms) - set(lock.platforms))
    if unknown:
        raise UsageError(
            f"the lock has no packages for {unknown[0]}",
            where=lock.path,
            next_step=f"It has {', '.join(lock.platforms)}.",
        )
    packages = [
        package for platform in platforms or lock.platforms for package in lock.of(platform, categories=None)
    ]
    _check_pip(packages)
    try:
        _prepare(folder)
        # Two that index one channel at a time would each leave out what the other brings.
        with held(os.path.join(folder, ".envaudit-lock"), "mirror", needed=False):
            _remove_leftovers(folder)
            places = {_target(folder, package): package for package in packages}
            left = {path: package for path, package in places.items() if not _is_there(path, package)}
            files = {path: wanted(package, supply.addresses(package)) for path, package in left.items()}
            found = fetch_all(
                tuple(files.values()),
                supply.cache,
                opener=supply.opener,
                offline=supply.offline,
                progress=progress,
            )
            for path, file in files.items():
                os.makedirs(os.path.dirname(path), exist_ok=True)
                copy_file(found[file], path)
            _index(folder, packages)
            _write_settings(folder, packages)
        size_bytes = sum(os.path.getsize(path) for path in places)
    except OSError as error:
        raise NeededError("cannot be written", where=folder, why=error.strerror or str(error)) from error
    conda = sum(package.manager == "conda" for package in places.values())
    return Mirrored(conda, len(places) - conda, len(files), size_bytes)


def _check_pip(packages: Sequence[LockedPackage]) -> None:
    for package in packages:
        if package.manager == "pip" and package.url.startswith(("git+", "hg+", "svn+", "bzr+")):
            raise UsageError(
                f"{package.name} comes from a repository, which a mirror cannot hold",
                next_step="Build a wheel of that commit, and require the wheel.",
            )


def _prepare(folder: str) -> None:
    if os.path.isdir(folder) and os.listdir(folder) and not is_mirror(folder):
        raise UsageError("is not empty and no mirror", where=folder, next_step="Name an empty folder.")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, MARKER), "w", encoding="utf-8") as file:
        file.write('{"envaudit.mirror": 1}\n')


def _remove_leftovers(folder: str) -> None:
    """What killed runs left of files that they were copying."""
    for path in Path(folder).rglob("*.part-*"):
        if _PART.search(path.name):
            path.unlink()


def _target(folder: str, package: LockedPackage) -> str:
    place = pip_folder(folder) if package.manager == "pip" else folder_of(folder, package)
    return os.path.join(place, package.file_name)


def _is_there(path: str, package: LockedPackage) -> bool:
    if not os.path.isfile(path):
        return False
    return hashes_match(path, package.sha256, package.md5)[0]


def _place(channel: str) -> str:
    """A channel's address as a path: host and path, without scheme and credentials."""
    bare = without_credentials(channel).partition("://")[2] or channel
    parts = [_UNSAFE.sub("-", part) for part in bare.split("/")]
    return os.path.join(*[part for part in parts if part and part.strip(".")] or ["channel"])


def _index(folder: str, packages: Sequence[LockedPackage]) -> None:
    """Write repodata.json for each channel, by a process of its own as always with rattler."""
    places = sorted({_place(package.channel) for package in packages if package.manager == "conda"})
    for place in places:
        os.makedirs(os.path.join(folder, place, "noarch"), exist_ok=True)
    job = {"folders": [os.path.abspath(os.path.join(folder, place)) for place in places]}
    for line in child_lines("envaudit.lock.indexing", job):
        if "fault" in line:
            raise NeededError("the index could not be written", where=folder, why=str(line["fault"])[:500])
        if "done" in line:
            return
    raise NeededError("the index was not written", where=folder, next_step="Run it again.")


def _write_settings(folder: str, packages: Sequence[LockedPackage]) -> None:
    """`condarc`, for every conda program of the cluster; the channels of other locks stay in it."""
    path = os.path.join(folder, "condarc")
    channels = {without_credentials(package.channel) for package in packages if package.manager == "conda"}
    lines = ["# Written by 'envaudit mirror': use it with CONDARC=this-file.", "mirrored_channels:"]
    for channel in sorted(channels | _mirrored_channels(path)):
        place = Path(folder, _place(channel)).absolute().as_uri()
        lines += [f"  {json.dumps(channel)}:", f"    - {json.dumps(place)}"]
    if len(lines) == 2:
        lines[1] = "mirrored_channels: {}"
    # Nodes read it meanwhile, and the next run takes the channels of other locks from it.
    part = f"{path}.part-{os.getpid()}"
    with open(part, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    os.replace(part, path)


def _mirrored_channels(path: str) -> set[str]:
    """The channels that a `condarc` of an earlier run names."""
    import yaml

    try:
        with open(path, encoding="utf-8") as file:
            return set(map(str, yaml.safe_load(file)["mirrored_channels"]))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError):
        return set()
