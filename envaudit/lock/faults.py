"""What the solver's process says of a channel or a spec that fails, as an error with advice."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn
from urllib.parse import urlsplit

from envaudit.errors import EnvauditError, InputError, NeededError
from envaudit.lock.channels import Channel

_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]*@|(?<=/t/)[^/\s]+(?=/)")
_MAX_WHY = 300
_DOWN = (
    "error sending request",
    "error trying to connect",
    "timed out",
    "timeout",
    "dns error",
    "connection",
)
_GONE = ("404", "not found", "could not find", "No such file", "does not exist", "noarch")
_DENIED = ("401", "403", "Unauthorized", "Forbidden")
_TRUST = ("certificate", "UnknownIssuer", "tls")


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
        raise InputError("a channel's index cannot be read", why=_short(fault["text"]))
    raise EnvauditError("the solver failed", where="py-rattler", why=_short(fault["text"]))


def channel_error(channel: Channel, texts: Sequence[str]) -> EnvauditError:
    """What is wrong with a channel, from the library's words for each of its addresses."""
    where = f"channel {_clean(channel.canonical)}"
    if channel.is_mirrored:
        where += " at " + ", ".join(_clean(url) for url in channel.urls)
    text = texts[-1] if texts else ""
    lower = text.lower()
    why = _short(text)
    host = urlsplit(channel.urls[-1]).hostname or "that folder"
    if any(word in text for word in _DENIED):
        return NeededError(
            "refuses this user",
            where=where,
            why=why,
            next_step="Put the token into a variable (/t/${CHANNEL_TOKEN}/), or store the password with "
            f"'rattler auth login {host}' or in ~/.netrc.",
        )
    if any(word.lower() in lower for word in _TRUST):
        return NeededError(
            "its certificate is not trusted",
            where=where,
            why=why,
            next_step="Set ssl_verify in your .condarc to the certificate bundle of your network.",
        )
    if any(word.lower() in lower for word in _GONE):
        return NeededError(
            "there is no channel",
            where=where,
            why=why,
            next_step="Check its spelling, and that it has a folder 'noarch' with repodata.json.",
        )
    if any(word in lower for word in _DOWN):
        return NeededError(
            "cannot be reached",
            where=where,
            why=why,
            next_step=f"Check the network and proxy to {host}, or set mirrored_channels in your .condarc.",
        )
    return InputError(
        "answered with something that is no channel index",
        where=where,
        why=why,
        next_step=f"A login page or a broken download on the way? Try 'curl -L {_clean(channel.urls[-1])}"
        "/noarch/repodata.json'.",
    )


def _clean(text: str) -> str:
    """Without user info and tokens."""
    return _CREDENTIALS.sub(lambda match: "" if match.group().endswith("@") else "<token>", text)


def _short(text: str) -> str:
    """One line without credentials; the last cause says most, the first says where."""
    words = " ".join(_clean(text).replace("\nCaused by: ", ": ").split())
    return words if len(words) <= _MAX_WHY else words[: _MAX_WHY - 1] + "…"
