"""Where the files of a lock are fetched: the user's mirrors, a mirrored folder, or as the lock says."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from string import Template
from urllib.parse import urlsplit

from envaudit.errors import UsageError
from envaudit.lock.channels import Channel, fetch_urls, resolve_channels, without_credentials
from envaudit.lock.condarc import DEFAULT_ALIAS, DEFAULTS_HOST, Settings
from envaudit.lock.lockfile import Lock, LockedPackage
from envaudit.lock.mirror import folder_of, is_mirror, pip_folder


def addresses_of(
    lock: Lock, settings: Settings, *, mirror: str | None = None, variables: Collection[str] = ()
) -> Callable[[LockedPackage], Sequence[str]]:
    """A function from a package to its URLs, in the order in which they are tried.

    Args:
        lock: whose packages.
        settings: the user's conda settings.
        mirror: a folder made by `envaudit mirror`, which comes first.
        variables: names of environment variables that the user lets any address of the lock have.

    Raises:
        UsageError: `mirror` is no such folder; the function itself, when a channel cannot be resolved,
            or when a variable would go to a host that the user has not named.
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
        urls = fetch_urls(package.url, channels())
        _keep_variables(package.url, urls, settings, variables)
        return urls

    return addresses


def _keep_variables(
    written: str, urls: Sequence[str], settings: Settings, variables: Collection[str]
) -> None:
    """A lock comes with a repository: it must not choose a secret of this user and who is told it.

    Raises:
        UsageError: an address with a variable leads to a host that neither the user's conda settings
            nor `variables` allow for.
    """
    used = dict.fromkeys(found["named"] or found["braced"] for found in Template.pattern.finditer(written))
    foreign = [name for name in used if name and name not in variables]
    if not foreign:
        return
    known = set(map(_origin, ("file:", DEFAULT_ALIAS, DEFAULTS_HOST, *_places(settings))))
    if all(_origin(url) in known for url in urls):
        return
    what = f"variable {foreign[0]}" if len(foreign) == 1 else f"variables {' and '.join(foreign)}"
    options = " ".join(f"--variable {name}" for name in foreign)
    raise UsageError(
        f"the lock would send the {what} to a host that your conda settings do not name",
        where=without_credentials(written),
        next_step=f"If that host may have it: {options}, or name the channel in your .condarc.",
    )


def _origin(url: str) -> tuple[str, str]:
    """Who is asked, of a URL as it is sent, and how; the text itself where it is no URL."""
    try:
        parts = urlsplit(url)
    except ValueError:  # `https://[host/...` in a .condarc
        return url, ""
    return parts.scheme, parts.netloc.rpartition("@")[2].lower()


def _places(settings: Settings) -> Iterator[str]:
    """All that the user's conda settings say of where packages are; bare names are harmless."""
    yield settings.channel_alias
    yield from (*settings.channels, *settings.default_channels, *settings.custom_channels.values())
    for places in settings.custom_multichannels.values():
        yield from places
    for key, places in settings.mirrored_channels.items():
        yield from (key, *places)


def _bases(lock: Lock) -> list[str]:
    return [package.channel for package in lock.packages if package.manager == "conda"]
