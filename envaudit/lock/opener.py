"""How this user reaches the network: proxies, certificates, passwords, as the conda settings say."""

from __future__ import annotations

import base64
import os
import re
import ssl
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from envaudit._version import __version__
from envaudit.errors import NeededError
from envaudit.lock.netauth import Login

TIMEOUT_S = 30.0

_TOKEN = re.compile(r"/t/[^/]+(?=/)")

# Host to what lets its user in, None where nothing is known of it.
Logins = Callable[[str], "Login | None"]


class Opener:
    """Opens http and https URLs.

    Args:
        ssl_verify: True, False, `truststore`, or the path of a certificate bundle.
        proxies: scheme, or scheme://host, to the proxy's URL; beside those of the environment.
        attempts: how often something that may pass is tried.
        logins: asked for hosts whose URL has no user.
    """

    def __init__(
        self,
        *,
        ssl_verify: bool | str = True,
        proxies: Mapping[str, str] | None = None,
        attempts: int = 3,
        logins: Logins | None = None,
    ) -> None:
        self.attempts = max(1, attempts)
        self._logins = logins
        self._proxies = {**urllib.request.getproxies(), **(proxies or {})}
        self._ssl_verify = ssl_verify
        self._openers: dict[str, urllib.request.OpenerDirector] = {}

    def open(self, url: str) -> Any:
        """The answer to a GET, a context manager with `read` and `headers`.

        Raises:
            OSError: and its kind URLError and HTTPError, as urllib has it.
            NeededError: a certificate bundle that is not there.
        """
        bare, header = self._split(url)
        request = urllib.request.Request(bare, headers={"User-Agent": f"envaudit/{__version__}"})  # noqa: S310
        if header:
            # Not sent on where the answer leads elsewhere.
            request.add_unredirected_header("Authorization", header)
        return self._opener_of(bare).open(request, timeout=TIMEOUT_S)

    def _split(self, url: str) -> tuple[str, str]:
        """The URL without user and password, and the header that carries them."""
        parts = urlsplit(url)
        user_info, _, host = parts.netloc.rpartition("@")
        user, _, password = user_info.partition(":")
        login = Login(unquote(user), unquote(password)) if user_info else None
        if login is None and self._logins is not None:
            login = self._logins(parts.hostname or "")
        path, header = parts.path, ""
        if login is not None and login.bearer:
            header = f"Bearer {login.bearer}"
        elif login is not None and login.token:
            path = parts.path if _TOKEN.search(parts.path) else f"/t/{login.token}{parts.path}"
        elif login is not None:
            header = "Basic " + base64.b64encode(f"{login.user}:{login.password}".encode()).decode()
        return urlunsplit(parts._replace(netloc=host, path=path)), header

    def _opener_of(self, url: str) -> urllib.request.OpenerDirector:
        parts = urlsplit(url)
        proxy = self._proxies.get(f"{parts.scheme}://{parts.hostname}") or self._proxies.get(parts.scheme)
        if proxy and urllib.request.proxy_bypass(parts.hostname or ""):
            proxy = None
        key = proxy or ""
        if key not in self._openers:
            handlers: list[Any] = [urllib.request.ProxyHandler({parts.scheme: proxy} if proxy else {})]
            handlers.append(urllib.request.HTTPSHandler(context=self._context()))
            self._openers[key] = urllib.request.build_opener(*handlers)
        return self._openers[key]

    def _context(self) -> ssl.SSLContext:
        if self._ssl_verify is False:
            return ssl._create_unverified_context()  # noqa: S323  (the user's own setting)
        if isinstance(self._ssl_verify, str) and self._ssl_verify != "truststore":
            bundle = os.path.expanduser(self._ssl_verify)
            if not os.path.exists(bundle):
                raise NeededError(
                    "there is no such certificate bundle",
                    where=bundle,
                    next_step="Set ssl_verify in .condarc to a file that exists.",
                )
            folder = os.path.isdir(bundle)
            return ssl.create_default_context(
                cafile=None if folder else bundle, capath=bundle if folder else None
            )
        return ssl.create_default_context()


def printable_url(url: str) -> str:
    """A URL without user, password, token and query."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, _TOKEN.sub("/t/<TOKEN>", parts.path), "", ""))
