"""What a host lets its user in with, from where conda and pip users keep it.

The places are those of rattler, which pixi and rattler-build write: the file that
`RATTLER_AUTH_FILE` names, the system's keyring, `~/.rattler/credentials.json`; then the netrc file.
"""

from __future__ import annotations

import functools
import json
import netrc
import os
from dataclasses import dataclass, field
from typing import Any

_KEYRING_SERVICE = "rattler"
_MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class Login:
    """One way in; what does not apply is empty.

    Attributes:
        user, password: of basic authentication.
        bearer: a token for the header.
        token: a token that stands in the path, `/t/TOKEN/channel`.
    """

    user: str = ""
    password: str = field(default="", repr=False)
    bearer: str = field(default="", repr=False)
    token: str = field(default="", repr=False)


@functools.lru_cache(maxsize=256)
def login_of(host: str) -> Login | None:
    """How to get in at a host; None where nobody kept anything for it."""
    named = os.environ.get("RATTLER_AUTH_FILE")
    own = os.path.expanduser("~/.rattler/credentials.json")
    return (
        (_of_file(named, host) if named else None)
        or _of_keyring(host)
        or _of_file(own, host)
        or _of_netrc(host)
    )


def _of_file(path: str, host: str) -> Login | None:
    try:
        with open(path, encoding="utf-8") as file:
            kept = json.loads(file.read(_MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(kept, dict):
        return None
    above = host
    while above:
        entry = kept.get(above) or kept.get(f"*.{above}")
        if entry is not None:
            return _login(entry)
        above = above.partition(".")[2]
    return None


def _of_keyring(host: str) -> Login | None:
    """Asked only where a keyring is installed and has a place to keep things."""
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        return None
    try:
        kept = keyring.get_password(_KEYRING_SERVICE, host)
        return _login(json.loads(kept)) if kept else None
    except (KeyringError, RuntimeError, OSError, ValueError):
        return None


def _of_netrc(host: str) -> Login | None:
    path = os.environ.get("NETRC") or os.path.expanduser("~/.netrc")
    try:
        found = netrc.netrc(path).authenticators(host)
    except (OSError, ValueError, netrc.NetrcParseError):  # ValueError: not UTF-8
        return None
    return Login(found[0], found[2] or "") if found else None


def _login(entry: Any) -> Login | None:
    """`{"BasicHTTP": {"username": ..., "password": ...}}`, `{"BearerToken": ...}`, `{"CondaToken": ...}`."""
    if not isinstance(entry, dict):
        return None
    basic = entry.get("BasicHTTP")
    if isinstance(basic, dict):
        return Login(str(basic.get("username", "")), str(basic.get("password", "")))
    if isinstance(entry.get("BearerToken"), str):
        return Login(bearer=entry["BearerToken"])
    if isinstance(entry.get("CondaToken"), str):
        return Login(token=entry["CondaToken"])
    return None
