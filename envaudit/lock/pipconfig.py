"""The index that the user has told pip of, for uv, which does not read pip's configuration.

Behind a mirror `pip.conf` is where people put its address, and the lock is made by the same user. A
setting of uv's own comes first. Source: pip's documented search path, lowest first.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Iterator, Mapping

from envaudit.lock.credentials import random_folders

_INDEXES_OF_UV = ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL")
_OF_UV = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_NO_INDEX", "UV_CONFIG_FILE")


def index_of_pip(environ: Mapping[str, str]) -> str | None:
    """`index-url` of pip's configuration; None without one, and where uv has a setting of its own."""
    if any(environ.get(name) for name in _OF_UV) or any(map(os.path.isfile, _files_of_uv(environ))):
        return None
    found = environ.get("PIP_INDEX_URL")
    if found or environ.get("PIP_CONFIG_FILE") == os.devnull:
        return found or None
    for path in _files_of_pip(environ):
        # A password may hold a percent sign, which is no reference to another key.
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
            found = parser.get("global", "index-url", fallback=found)
        except (configparser.Error, UnicodeDecodeError, OSError):
            continue  # pip itself will say so
    return found.strip() if found else None


def tokens_of_indexes(environ: Mapping[str, str]) -> list[str]:
    """What looks like a token in the path of an index of the user's own: an index gives it to its files."""
    named = [environ.get(name, "") for name in _INDEXES_OF_UV]
    return random_folders(" ".join([*named, index_of_pip(environ) or ""]))


def _files_of_pip(environ: Mapping[str, str]) -> Iterator[str]:
    home = environ.get("HOME", "")
    yield from (os.path.join(folder, "pip", "pip.conf") for folder in _system_folders(environ))
    yield "/etc/pip.conf"
    if home:
        yield os.path.join(home, ".pip", "pip.conf")
    yield os.path.join(environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config"), "pip", "pip.conf")
    if environ.get("PIP_CONFIG_FILE"):
        yield environ["PIP_CONFIG_FILE"]


def _files_of_uv(environ: Mapping[str, str]) -> Iterator[str]:
    yield "/etc/uv/uv.toml"
    base = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME", ""), ".config")
    yield os.path.join(base, "uv", "uv.toml")


def _system_folders(environ: Mapping[str, str]) -> list[str]:
    # The first of them counts most.
    return (environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep)[::-1]
