"""One solved package, as the lock names it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from envaudit.errors import EnvauditError
from envaudit.lock.channels import Channel, without_credentials


@dataclass(frozen=True)
class Record:
    """What a channel says of a package file.

    Attributes:
        channel: the canonical name of its channel, as the lock's metadata has it.
        url: the canonical URL of the file; credentials only as `${VARIABLE}`.
        md5, sha256: in hex, None where the channel's index has none.
        depends: match specs, `python >=3.10,<3.11.0a0`.
    """

    name: str
    version: str
    build: str
    subdir: str
    channel: str
    url: str
    md5: str | None = None
    sha256: str | None = None
    depends: tuple[str, ...] = ()

    @property
    def file_name(self) -> str:
        """`numpy-1.26.4-py310hb13e2d6_0.conda`."""
        return self.url.rpartition("/")[2]


def record_of(table: Mapping[str, Any], channels: Sequence[Channel]) -> Record:
    """A record of the solver (`RepoDataRecord.to_json` of py-rattler), under its canonical names.

    Of channels that are fetched from one place, the first of `channels` is taken.
    """
    fetched = str(table["url"])
    channel = _channel_of(fetched, str(table["channel"]), channels)
    place = next((place for place in channel.urls if fetched.startswith(place + "/")), "")
    if place:
        url = channel.base + fetched[len(place) :]
    elif channel.is_mirrored or "$" in channel.base:
        # The index may send its readers on to yet another place (CEP 15, base_url), or the solver
        # wrote the address in another form; neither a mirror nor a credential may reach a lock.
        url = f"{channel.base}/{table['subdir']}/{table['fn']}"
    else:
        url = fetched
    return Record(
        name=str(table["name"]),
        version=str(table["version"]),
        build=str(table["build"]),
        subdir=str(table["subdir"]),
        channel=channel.canonical,
        url=url,
        md5=table.get("md5"),
        sha256=table.get("sha256"),
        depends=tuple(table.get("depends", ())),
    )


def _channel_of(url: str, place: str, channels: Sequence[Channel]) -> Channel:
    """The channel a file is from; py-rattler gives its address with stars for the credentials.

    Raises:
        EnvauditError: there is none, so that nothing of unknown origin comes into a lock.
    """
    known = [(address, channel) for channel in channels for address in channel.urls]
    for address, channel in sorted(known, key=lambda pair: len(pair[0]), reverse=True):
        if url.startswith(address + "/"):
            return channel
    for address, channel in known:
        if unquote(without_credentials(address)) == unquote(without_credentials(place.rstrip("/"))):
            return channel
    raise EnvauditError(
        "the solver took a package from a channel it was not given", where=without_credentials(place)
    )
