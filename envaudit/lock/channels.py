"""Channel names as people write them, what a lock calls them, and where this user fetches them.

The canonical side is what every reader of a lock understands without the writer's settings: a bare
name under conda's default alias, or the URL itself. The fetched side follows the user's settings:
`channel_alias`, `custom_channels`, `default_channels` and `mirrored_channels` may all send a name
to a mirror. conda itself names such a channel by its bare name, and so does the lock.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from urllib.parse import urlsplit

from envaudit.errors import UsageError
from envaudit.lock.condarc import DEFAULT_ALIAS, DEFAULTS_HOST, Settings
from envaudit.lock.credentials import SECRET, cleaned, credential_in

NO_DEFAULTS = "nodefaults"

_SUBDIR = re.compile(r"/(?:noarch|(?:linux|osx|win|emscripten|wasi|freebsd|zos)-[a-z0-9_]+)\Z")
_TOKEN = re.compile(r"/t/([^/]+)(?=/)")
_UNSET = re.compile(r"\$\{?(\w+)\}?")
_MAX_DEPTH = 8


@dataclass(frozen=True)
class Channel:
    """One place of packages.

    Attributes:
        canonical: how the lock's metadata names it: `conda-forge`, or a URL.
        base: the canonical URL that the lock's package URLs begin with; credentials only as
            `${VARIABLE}`.
        urls: where it is fetched, the next one tried when one does not answer; credentials are
            filled in, so these are never printed.
        group: the multichannel it came from (`defaults`), or empty. Channels of one group share
            one priority.
    """

    canonical: str
    base: str
    urls: tuple[str, ...] = field(repr=False)
    group: str = ""

    @property
    def url(self) -> str:
        """The first of `urls`."""
        return self.urls[0]

    @property
    def is_mirrored(self) -> bool:
        """Whether it is fetched somewhere else than the lock says."""
        return _filled(self.base) not in self.urls


def resolve_channels(names: Iterable[str], settings: Settings) -> tuple[Channel, ...]:
    """The channels behind `names`, in order, each once.

    `nodefaults` is dropped, `defaults` and the user's multichannels become their members; without
    any name the user's `channels` count, and without those `defaults`, as for conda.

    Raises:
        UsageError: a literal credential, an unset variable, a multichannel inside itself, or
            what is no channel's name or address.
    """
    wanted = [name.strip() for name in names]
    named = [name for name in wanted if name != NO_DEFAULTS]
    if not named:
        named = list(settings.channels) or ["defaults"]
    found: dict[str, Channel] = {}
    for name in named:
        for channel in _expand(name, settings, "", 0):
            for url in channel.urls:
                _refuse_malformed(url)
            found.setdefault(channel.base, channel)
    return tuple(found.values())


def fetch_urls(url: str, channels: Sequence[Channel]) -> tuple[str, ...]:
    """Where the package that a lock names `url` is fetched by this user: mirrors first to last.

    A URL of none of the channels stays as it is, with its `${VARIABLE}`s filled in.
    """
    best = max(
        (channel for channel in channels if url.startswith(channel.base + "/")),
        key=lambda channel: len(channel.base),
        default=None,
    )
    if best is None:
        return (_filled(url),)
    return tuple(mirror + url[len(best.base) :] for mirror in best.urls)


def _expand(name: str, settings: Settings, group: str, depth: int) -> list[Channel]:
    """One channel, or the members of a multichannel."""
    members: Sequence[str] = settings.custom_multichannels.get(name, ())
    if name == "defaults" and not members:
        members = settings.default_channels
    if not members:
        return [_channel(name, settings, group)]
    if depth >= _MAX_DEPTH:
        raise UsageError(
            f"'{name}' contains itself", where="custom_multichannels", next_step="Break the circle."
        )
    return [
        channel
        for member in members
        # A member may have the name of its group: conda-forge: [conda-forge, ...] is no circle.
        for channel in (
            [_channel(member, settings, group or name)]
            if member == name
            else _expand(member, settings, group or name, depth + 1)
        )
    ]


def _channel(name: str, settings: Settings, group: str) -> Channel:
    text = _address(name.strip())
    if not text or any(character.isspace() for character in text):
        raise UsageError(f"'{name}' is no channel", next_step="Give its name or its URL.")
    text = _SUBDIR.sub("", text.rstrip("/"))
    if "://" in text:
        known = _name_of_mirror(text, settings)
        if known is None:
            refuse_literal_credentials(text)
            mirrors = _mirrors((text, without_credentials(text)), settings)
            return Channel(text, text, mirrors or (_filled(text),), group)
        text = known
    base, fetched = _canonical_base(text), _fetched(text, settings)
    return Channel(text, base, _mirrors((text, base, fetched), settings) or (fetched,), group)


def _refuse_malformed(url: str) -> None:
    """Nothing where `url` can be the beginning of a package's URL.

    Raises:
        UsageError: it cannot.
    """
    try:
        parts = urlsplit(url)
        good = parts.port != 0 and not parts.query and not parts.fragment
    except ValueError:  # `http://[::1/x`, `http://host:99999/x`
        good = False
    if not good:
        # What ends the host too early, `https://u:p#w@host/x`, hides the password from who looks for one.
        scheme, _, rest = url.partition("://")
        _, at, place = rest.rpartition("@")
        advice = "It has a host, a port up to 65535 if any, a path, and nothing behind '?' or '#'."
        if at:
            advice += " In a password '#' is %23, '?' %3F, '/' %2F, '[' %5B, ']' %5D."
        raise UsageError(
            "no channel is at such an address",
            where=f"{scheme}://{SECRET}@{place}" if at else cleaned(url),
            next_step=advice,
        )


def _address(text: str) -> str:
    """A folder as its `file://` URL; anything else as it is."""
    if text.startswith(("/", "./", "../", "~/")):
        return Path(os.path.abspath(os.path.expanduser(text))).as_uri()
    return text.replace(" ", "%20") if text.startswith("file:") else text


def _canonical_base(name: str) -> str:
    return f"{DEFAULTS_HOST if name.startswith('pkgs/') else DEFAULT_ALIAS}/{name}"


def _fetched(name: str, settings: Settings) -> str:
    """Where a bare name is fetched: the longest of `custom_channels`, `defaults`' places, the alias."""
    for known in sorted(settings.custom_channels, key=len, reverse=True):
        if name == known or name.startswith(known + "/"):
            return f"{_address(settings.custom_channels[known])}/{name}"
    for place in settings.default_channels:
        if "://" in place and place.endswith("/" + name):
            return _filled(place)
    return (
        f"{_address(settings.channel_alias)}/{name}"
        if not name.startswith("pkgs/")
        else _canonical_base(name)
    )


def _mirrors(texts: Sequence[str], settings: Settings) -> tuple[str, ...]:
    """The `mirrored_channels` of a channel by its name or its URLs, also by the beginning of one."""
    for key in sorted(settings.mirrored_channels, key=len, reverse=True):
        for text in texts:
            if text == key or text.startswith(key + "/"):
                rest = text[len(key) :]
                return tuple(_address(place) + rest for place in settings.mirrored_channels[key])
    return ()


def _name_of_mirror(url: str, settings: Settings) -> str | None:
    """The bare name of a URL that is a known place of a named channel, else None."""
    bare = without_credentials(url)
    for key, places in settings.mirrored_channels.items():
        if bare in map(without_credentials, places) and "://" not in key:
            return key
    for name, place in settings.custom_channels.items():
        root = f"{without_credentials(place)}/{name}"
        if bare == root or bare.startswith(root + "/"):
            return bare[len(without_credentials(place)) + 1 :]
    for host in (DEFAULTS_HOST, *settings.default_channels):
        tail = re.search(r"/(pkgs/(?:main|r|msys2|free|pro|archive))\Z", bare)
        if tail and bare.startswith(without_credentials(host)):
            return tail.group(1)
    for alias in (settings.channel_alias, DEFAULT_ALIAS):
        root = without_credentials(alias)
        if bare == url and bare.startswith(root + "/"):
            return bare[len(root) + 1 :]
    return None


def without_credentials(url: str) -> str:
    """`url` without user info and `/t/TOKEN`."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url
    authority, slash, path = rest.partition("/")
    return _TOKEN.sub("", f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}", count=1)


def refuse_literal_credentials(url: str, *, where: str = "") -> None:
    """Nothing where every user, password and token of `url` is a variable.

    Raises:
        UsageError: names the place of the credential, never the credential.
    """
    what = credential_in(url)
    if not what:
        return
    user_info, _, host = urlsplit(url).netloc.rpartition("@")
    example = "${CHANNEL_USER}:${CHANNEL_PASSWORD}@" if user_info else "/t/${CHANNEL_TOKEN}/"
    raise UsageError(
        f"{what} is written out in the address of the channel on {host}",
        where=where,
        why="it would stand in the lock for everyone to read",
        next_step=f"Write {example} instead and set that variable.",
    )


def _filled(url: str) -> str:
    """`url` with its variables filled in.

    Raises:
        UsageError: a variable that is not set.
    """
    if "$" not in url:
        return url
    filled = Template(url).safe_substitute(os.environ)
    missing = _UNSET.search(filled)
    if missing and missing.group(1) not in os.environ:
        raise UsageError(
            f"the variable {missing.group(1)} is not set",
            where=without_credentials(url),
            next_step=f"Set {missing.group(1)}: the address of this channel needs it.",
        )
    return filled
