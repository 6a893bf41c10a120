"""What must not leave the node: credentials in names, values, URLs and command lines.

A secret is replaced where it stands, so that the rest of a value still compares. Two nodes that
differ in a secret alone are alike.
"""

from __future__ import annotations

import re
from typing import Match

SECRET = "<secret>"  # noqa: S105 (what stands in its place)

_SECRET_NAME = re.compile(
    r"TOKEN(?!IZER)|SECRET|PASSW|PASSPHRASE|CREDENTIAL|(?<!P)KEY(?!BOARD)|AUTH|COOKIE|PRIVATE", re.IGNORECASE
)

# Shapes that the issuers document, so that a scanner may find them: Hugging Face, OpenAI and
# Anthropic, AWS, GitHub, GitLab, Slack, Google, PyPI, Weights & Biases, npm, NVIDIA's NGC, Docker Hub,
# Vault, JSON web tokens, private keys in PEM.
_TOKEN = re.compile(
    r"hf_[A-Za-z0-9]{8,}"
    r"|\bsk-[A-Za-z0-9_-]{8,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{12,}"
    r"|gh[pousr]_[A-Za-z0-9]{8,}"
    r"|github_pat_[A-Za-z0-9_]{8,}"
    r"|glpat-[A-Za-z0-9_-]{8,}"
    r"|\bx(?:ox[abeoprs]|app)-[A-Za-z0-9-]{8,}"
    r"|AIza[A-Za-z0-9_-]{30,}"
    r"|pypi-[A-Za-z0-9_-]{16,}"
    r"|npm_[A-Za-z0-9]{16,}"
    r"|wandb_[A-Za-z0-9_]{16,}"
    r"|nvapi-[A-Za-z0-9_-]{16,}"
    r"|dckr_pat_[A-Za-z0-9_-]{8,}"
    r"|\bhvs\.[A-Za-z0-9_-]{16,}"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?"
    r"|-----BEGIN[ A-Z]*PRIVATE KEY-----.*?(?:-----END[ A-Z]*PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
_NAME = (
    r"token(?!iz)|secret|passw(?:or)?d|passphrase|credential|(?:access|account|api|private)[_-]?key"
    r"|auth(?!or)|signature"
)
# In JSON, in Python or in a shell's words, name and value may stand in quotes, and these behind backslashes.
_QUOTE = r"\\{0,3}['\"]"
_VALUE = rf"\"[^\"\n]{{1,512}}\"|'[^'\n]{{1,512}}'|(?:{_QUOTE})?[^\s&;,'\"\\]+"
# Bounded, so that no text, however it repeats, takes long.
_ASSIGNED = re.compile(
    rf"(?<![/\w.-])(?P<name>[\w.-]{{0,64}}(?:{_NAME})[\w.-]{{0,64}}(?:{_QUOTE}\]?)?\s{{0,8}}[=:]\s{{0,8}}"
    rf"|--[\w-]{{0,64}}(?:{_NAME})[\w-]{{0,64}}\s{{1,8}}|(?<=[?&])(?:key|sig)=)"
    rf"(?P<value>{_VALUE})",
    re.IGNORECASE,
)
# RFC 9110, 11.6.2, and RFC 6265, 4.2: what stands behind `Authorization:` and `Cookie:`.
_AUTHORIZATION = re.compile(
    rf"(?P<scheme>\bAuthorization(?:{_QUOTE})?\s{{0,8}}[=:]\s{{0,8}}(?:{_QUOTE})?(?:\w{{1,16}}\s{{1,8}})?"
    r"|\bBearer\s{1,8}(?=\S{16})|\bCookie:\s{0,8})(?P<value>[^\s'\"]{4,})",
    re.IGNORECASE,
)
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?P<rest>[^\s'\"<>]*)")
_PATH_TOKEN = re.compile(r"/t/[^/\s]+")


def is_secret_name(name: str) -> bool:
    """Whether a variable's name says that its value is a secret (`UCX_IB_PKEY` does not)."""
    return _SECRET_NAME.search(name) is not None


def clean(text: str) -> str:
    """A text without what looks like a secret: URL credentials, tokens, `password=...`."""
    if "://" in text:
        text = _URL.sub(_clean_match, text)
    text = _TOKEN.sub(SECRET, text)
    text = _AUTHORIZATION.sub(lambda match: match["scheme"] + SECRET, text)
    return _ASSIGNED.sub(lambda match: match["name"] + SECRET, text)


def clean_url(url: str) -> str:
    """A URL without user info, `/t/TOKEN/`, query and fragment: what names the place, nothing more.

    A signed download link carries its secret in the query.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        return clean(url)
    place = re.split(r"[?#]", _without_user(rest), maxsplit=1)[0]
    return clean(f"{scheme}://{_PATH_TOKEN.sub('', place)}")


def _clean_match(match: Match[str]) -> str:
    place, mark, query = _without_user(match["rest"]).partition("?")
    return match["scheme"] + _PATH_TOKEN.sub(f"/t/{SECRET}", place) + mark + query


def _without_user(rest: str) -> str:
    """What follows `scheme://` without user info.

    A password may wrongly hold `/`, `?`, `#` or `@`: with a password all up to the last @ goes.
    """
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    user, at, host = authority.rpartition("@")
    _, colon, port = host.partition(":")
    if ":" in user or (colon and not port.isdigit()):
        return rest.rpartition("@")[2]
    return rest[len(user) + len(at) :]
