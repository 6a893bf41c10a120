"""Where the files of a lock are fetched: the user's mirrors, a mirrored folder, or as the lock says."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from envaudit.errors import UsageError
from envaudit.lock.channels import Channel, fetch_urls, resolve_channels
from envaudit.lock.condarc import Settings
from envaudit.lock.lockfile import Lock, LockedPackage
from envaudit.lock.mirror import folder_of, is_mirror, pip_folder


def addresses_of(
    lock: Lock, settings: Settings, *, mirror: str | None = None
) -> Callable[[LockedPackage], Sequence[str]]:
    """A function from a package to its URLs, in the order in which they are tried.

    Args:
        lock: whose packages.
        settings: the user's conda settings.
        mirror: a folder made by `envaudit mirror`, which comes first.

    Raises:
        UsageError: `mirror` is no such folder; the function itself, when a channel cannot be resolved.
    """
    if mirror is not None and not is_mirror(mirror):
        raise UsageError("is no mirror", where=mirror, next_step="Make one: envaudit mirror LOCK --to DIR.")

    @functools.lru_cache(maxsize=1)
    def channels() -> tuple[Channel, ...]:
        # Also those that the packages come from and the lock's list does not name. Only where one is
        # needed: a cluster with a mirror has no credentials for the channel.
        names = dict.fromkeys([channel.url for channel in lock.channels] + _bases(lock))
        return resolve_channels(names, settings)

    def addresses(package: LockedPackage) -> Sequence[str]:
        if mirror is not None:
            place = pip_folder(mirror) if package.manager == "pip" else folder_of(mirror, package)
            path = os.path.join(place, package.file_name)
            if os.path.isfile(path):
                return [Path(path).absolute().as_uri()]
        if package.manager == "pip":
            return [package.url]
        return fetch_urls(package.url, channels())

    return addresses


def _bases(lock: Lock) -> list[str]:
    return [package.channel for package in lock.packages if package.manager == "conda"]
