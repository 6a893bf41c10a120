"""User and password of a host, from where conda and pip users keep them: netrc and the keyring."""

from __future__ import annotations

import functools
import netrc
import os

# Which tools write under which service name: rattler (pixi, micromamba's successor) and pip.
_SERVICES = ("rattler", "https://{host}")


@functools.lru_cache(maxsize=256)
def credentials(host: str) -> tuple[str, str] | None:
    """User and password for a host; None where nobody kept any."""
    return _of_netrc(host) or _of_keyring(host)


def _of_netrc(host: str) -> tuple[str, str] | None:
    path = os.environ.get("NETRC") or os.path.expanduser("~/.netrc")
    try:
        found = netrc.netrc(path).authenticators(host)
    except (OSError, netrc.NetrcParseError):
        return None
    return (found[0], found[2] or "") if found else None


def _of_keyring(host: str) -> tuple[str, str] | None:
    """Asked only where a keyring is installed and has a place to keep things."""
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        return None
    for service in _SERVICES:
        try:
            found = keyring.get_credential(service.format(host=host), host if "{" not in service else None)
        except (KeyringError, RuntimeError, OSError):
            return None
        if found is not None:
            return _pair(found.username, found.password)
    return None


def _pair(username: str, password: str) -> tuple[str, str]:
    """What rattler keeps is JSON: `{"BasicHTTP": {"username": ..., "password": ...}}`."""
    import json

    try:
        kept = json.loads(password)["BasicHTTP"]
        return str(kept["username"]), str(kept["password"])
    except (ValueError, KeyError, TypeError):
        return username, password
