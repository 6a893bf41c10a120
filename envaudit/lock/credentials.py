"""Secrets in what a source file says: found, and left out of everything that is shown or kept."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

SECRET = "<secret>"  # noqa: S105 (what stands in its place)

# What the shell, conda and pip fill in: `$TOKEN`, `${TOKEN}`, `%TOKEN%`.
_VARIABLE = re.compile(r"\$\{?[A-Za-z_][A-Za-z0-9_]*\}?\Z|%[A-Za-z_][A-Za-z0-9_]*%\Z")
_URL = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]{0,30})://[^\s'\"<>]+")
# anaconda.org's and Quetz' form of a token inside a channel's path.
_PATH_TOKEN = re.compile(r"/t/([^/\s]+)(?=/|\Z)")
# A folder made at random, which is how some servers of packages let people in (entitlement tokens): capitals,
# small letters and digits with no word among them, or hex digits that are no commit (40) and no sha256 (64).
_RANDOM_FOLDER = re.compile(
    r"/((?=[^/]*[a-z])(?=[^/]*[A-Z])(?=[^/]*[0-9][A-Za-z]+[0-9])(?![^/]*[a-z]{5})[A-Za-z0-9]{16,}"
    r"|(?!(?:[0-9a-f]{40}|[0-9a-f]{64})/)[0-9a-f]{32,})(?=/)"
)
_QUERY_SECRET = re.compile(
    r"[?&]([^=&#]{0,40}(?:token|key|secret|passw|sig)[^=&#]{0,40})=([^&#\s]+)", re.IGNORECASE
)
# Shapes that their issuers document, for scanners to find.
_TOKEN = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,}"
    r"|glpat-[A-Za-z0-9_-]{16,}|pypi-[A-Za-z0-9_-]{32,}|sk-[A-Za-z0-9_-]{20,}|(?:AKIA|ASIA)[A-Z0-9]{16})"
)
_SECRET_NAME = re.compile(
    r"TOKEN(?!IZER)|SECRET|PASSW|PASSPHRASE|CREDENTIAL|(?<!P)KEY(?!BOARD)|PRIVATE", re.IGNORECASE
)


def credential_in(text: str) -> str:
    """What literal credential a text has, `a password`; empty for none.

    A variable (`${CONDA_TOKEN}`) is none, nor is the user of an ssh address (`git@host`).
    """
    for match in _URL.finditer(text):
        found = _in_url(match[0])
        if found:
            return found
    return "a token" if _TOKEN.search(text) else ""


def random_folders(indexes: str) -> list[str]:
    """The folders in the addresses of indexes that look like tokens; in a file's it is often its hash."""
    return _RANDOM_FOLDER.findall(indexes)


def is_secret_variable(name: str, value: str) -> bool:
    """Whether an environment variable keeps a secret in the file: by its name, or by its value."""
    if not value or _VARIABLE.match(value):
        return False
    named = _SECRET_NAME.search(name) is not None and not re.fullmatch(r"[0-9]{1,4}|true|false|/.*", value)
    return named or bool(credential_in(value))


def cleaned(text: str) -> str:
    """The text with `<secret>` in the place of each literal credential."""
    return _TOKEN.sub(SECRET, _URL.sub(lambda match: _clean_url(match[0]), text))


def _in_url(url: str) -> str:
    user, password = _user_of(url)
    if password and not _VARIABLE.match(password):
        return "a password"
    if user and not password and not _VARIABLE.match(user) and "ssh" not in url.partition(":")[0]:
        return "a user name or token"
    # A folder `t` of a repository holds no token.
    token = None if url.startswith(("git+", "git:", "ssh:")) else _PATH_TOKEN.search(url)
    if token and not _VARIABLE.match(token[1]):
        return "a token"
    return "a token" if any(not _VARIABLE.match(value) for _, value in _QUERY_SECRET.findall(url)) else ""


def _user_of(url: str) -> tuple[str, str]:
    try:
        authority = urlsplit(url).netloc
    except ValueError:
        return "", ""
    user, _, password = authority.rpartition("@")[0].partition(":")
    return user, password


def _clean_url(url: str) -> str:
    if not _in_url(url):
        return url
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    place = f"{scheme}://{SECRET}@{host.rpartition('@')[2]}" if "@" in host else f"{scheme}://{host}"
    path = _PATH_TOKEN.sub(f"/t/{SECRET}", f"{slash}{path}")
    return place + _QUERY_SECRET.sub(lambda match: match[0].replace(match[2], SECRET), path)
