"""How py-rattler's client reaches a channel: certificates and proxies of the user's conda settings.

Passwords of a keyring, of `RATTLER_AUTH_FILE` and of a netrc file are py-rattler's own doing: its
client asks them for every host.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from envaudit.lock.condarc import Settings


def client_settings(settings: Settings) -> str:
    """The settings as py-rattler's own TOML configuration."""
    lines = []
    if settings.ssl_verify is False:
        lines.append("tls-no-verify = true")
    elif isinstance(settings.ssl_verify, str):
        lines.append('tls-root-certs = "system"')
    proxies = [
        # A TOML basic string and a JSON string are written the same way.
        f"{scheme} = {json.dumps(settings.proxy_servers[scheme])}"
        for scheme in ("http", "https")
        if settings.proxy_servers.get(scheme)
    ]
    if proxies:
        lines += ["[proxy-config]", *proxies]
    return "\n".join(lines)


def environment(settings: Settings, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of the solver: the system's certificates replaced by the user's bundle."""
    found = dict(os.environ if environ is None else environ)
    if isinstance(settings.ssl_verify, str) and settings.ssl_verify != "truststore":
        found["SSL_CERT_FILE"] = os.path.expanduser(settings.ssl_verify)
    return found
