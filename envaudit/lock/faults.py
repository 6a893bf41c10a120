"""What the solver's process says of a channel or a spec that fails, as an error with advice."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn
from urllib.parse import urlsplit

from envaudit.errors import EnvauditError, InputError, NeededError
from envaudit.lock.channels import Channel

_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]*@|(?<=/t/)[^/\s]+(?=/)")
_MAX_WHY = 300
_STATUS = re.compile(r"HTTP status (?:client|server) error \((\d{3})")
_CUT_OFF = (
    "end of file before message length",
    "connection closed before message",
    "error reading a body",
    "unexpected eof",
)
_CACHE = ("failed to create", "no space left", "quota exceeded", "read-only file system")
_DOWN = ("error sending request", "error trying to connect", "timed out", "dns error", "connection reset")
_GONE = ("could not find subdir", "no such file", "not found")
_TRUST = ("certificate", "unknownissuer")


def raise_fault(fault: Mapping[str, Any], channels: Sequence[Channel]) -> NoReturn:
    """The error behind one `fault` line.

    Raises:
        InputError: a spec that is none, or an index that is none.
        NeededError: a channel that is down, missing or refuses this user.
        EnvauditError: the solver's process itself failed.
    """
    kind = fault["kind"]
    if kind == "spec":
        raise InputError(
            f"'{fault['spec']}' is no package spec",
            where=fault["where"],
            why=_short(fault["text"]),
            next_step="Write a name and, if needed, a version and a build: pytorch=2.1.0=*cuda*.",
        )
    if kind == "channel":
        channel = channels[int(fault["place"])]
        raise channel_error(channel, [str(text) for text in fault["texts"]])
    if kind == "index":
        raise InputError(
            "a channel's index cannot be read",
            why=_short(fault["text"]),
            next_step="Try again, or set mirrored_channels in your .condarc.",
        )
    raise EnvauditError("the solver failed", where="py-rattler", why=_short(fault["text"]))


def channel_error(channel: Channel, texts: Sequence[str]) -> EnvauditError:
    """What is wrong with a channel, from the library's words for each of its addresses."""
    where = f"channel {_clean(channel.canonical)}"
    if channel.is_mirrored:
        where += " at " + ", ".join(_clean(url) for url in channel.urls)
    text = texts[-1] if texts else ""
    what, next_step = _advice(text, channel.urls[-1])
    if what is None:
        return InputError(
            "answered with something that is no channel index",
            where=where,
            why=_short(text),
            next_step=next_step,
        )
    return NeededError(what, where=where, why=_short(text), next_step=next_step)


def _advice(text: str, url: str) -> tuple[str | None, str]:
    """What happened and what to do; None for an answer that came but is no index."""
    lower = text.lower()
    host = urlsplit(url).hostname or "that folder"
    status = _STATUS.search(text)
    code = status.group(1) if status else ""
    if "no usable repodata cache" in lower:
        return "there is no index of it in the cache", "Run once without --offline."
    if any(word in lower for word in _CACHE):
        return "its index cannot be kept in the cache", (
            "Free space there, or set XDG_CACHE_HOME to a folder that can be written."
        )
    if code in ("401", "403", "407"):
        return "refuses this user", (
            "Put the token into a variable (/t/${CHANNEL_TOKEN}/), or store the password with "
            f"'rattler auth login {host}' or in ~/.netrc."
        )
    if code.startswith("5") or code == "429":
        return f"is out of order (HTTP {code})", "Try again later, or set mirrored_channels in your .condarc."
    if any(word in lower for word in _TRUST):
        return (
            "its certificate is not trusted",
            "Set ssl_verify in your .condarc to the certificate bundle of your network.",
        )
    if any(word in lower for word in _CUT_OFF):
        return (
            "broke off in the middle of its answer",
            "Try again, or set mirrored_channels in your .condarc.",
        )
    if any(word in lower for word in _DOWN):
        return "cannot be reached", (
            f"Check the network and proxy to {host}, or set mirrored_channels in your .condarc."
        )
    if code == "404" or any(word in lower for word in _GONE):
        return (
            "there is no such channel",
            "Check its spelling, and that it has a folder 'noarch' with repodata.json.",
        )
    return None, (
        "A login page or a broken download on the way? "
        f"Try 'curl -L {shlex.quote(_clean(url) + '/noarch/repodata.json')}'."
    )


def _clean(text: str) -> str:
    """Without user info and tokens."""
    return _CREDENTIALS.sub(lambda match: "" if match.group().endswith("@") else "<token>", text)


def _short(text: str) -> str:
    """One line without credentials; the last cause says most, the first says where."""
    words = " ".join(_clean(text).replace("\nCaused by: ", ": ").split())
    return words if len(words) <= _MAX_WHY else words[: _MAX_WHY - 1] + "…"
