"""What to solve for: every match spec of the source files, each with the place it was written.

conda-lock keeps only the last of several specs of one name; the solver is given all of them, which
is their intersection. A spec of a channel (`pytorch::pytorch`) is tied to that channel by its full
address: py-rattler would look a bare name up under conda's default alias.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from envaudit.errors import InputError
from envaudit.lock.channels import Channel, resolve_channels
from envaudit.lock.condarc import Settings

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_SUBDIR = re.compile(r"\A(.+)/(noarch|(?:linux|osx|win)-[a-z0-9_]+)\Z")
_CHANNEL_KEY = re.compile(r"""(?:\[|,)\s*channel\s*=\s*(?:'([^']*)'|"([^"]*)"|([^,\]\s]*))""")


@dataclass(frozen=True)
class Spec:
    """One match spec as written, `pytorch::pytorch=2.1.0`, and where: `environment.yml:7`."""

    text: str
    where: str = ""

    @property
    def channel(self) -> str:
        """The channel it asks for, or empty."""
        name, separator, _ = self.text.strip().rpartition("::")
        if separator:
            subdir = _SUBDIR.match(name)
            return subdir.group(1) if subdir else name
        key = _CHANNEL_KEY.search(self.text)
        return next((part for part in key.groups() if part), "") if key else ""

    @property
    def subdir(self) -> str:
        """The platform folder it asks for, or empty."""
        subdir = _SUBDIR.match(self.text.strip().rpartition("::")[0])
        return subdir.group(2) if subdir else ""

    @property
    def bare(self) -> str:
        """The spec without its channel."""
        text = self.text.strip().rpartition("::")[2].strip()
        key = _CHANNEL_KEY.search(text)
        if not key:
            return text
        rest = (text[: key.start() + 1] + text[key.end() :]).replace("[,", "[").replace("[]", "")
        return rest.replace(",]", "]").strip()

    @property
    def name(self) -> str:
        """The package's name, in small letters as channels have it.

        Raises:
            InputError: the text does not begin with a name.
        """
        match = _NAME.match(self.bare)
        if not match:
            raise InputError(
                f"'{self.text}' is no package spec",
                where=self.where,
                next_step="Write a name and, if needed, a version: numpy>=1.26.",
            )
        return match.group().lower()


def channels_for(
    names: Iterable[str], specs: Iterable[Spec], settings: Settings
) -> tuple[tuple[Channel, ...], tuple[Channel, ...]]:
    """The channels of a solve, and those among them that only a spec names.

    A channel that stands in a spec alone comes last: conda reads it too, and a lock that does not
    list it cannot be read back (a public lock has four packages of an unlisted channel).

    Raises:
        UsageError: as of `resolve_channels`.
    """
    listed = resolve_channels(names, settings)
    extra: dict[str, Channel] = {}
    for spec in specs:
        if spec.channel:
            for channel in resolve_channels([spec.channel], settings):
                if all(channel.base != other.base for other in listed):
                    extra.setdefault(channel.base, channel)
    return (*listed, *extra.values()), tuple(extra.values())


def tied_to(spec: Spec, channels: Sequence[Channel], settings: Settings) -> int | str | None:
    """The place in `channels` of the one a spec asks for, or the group it asks for, else None."""
    if not spec.channel:
        return None
    asked = resolve_channels([spec.channel], settings)
    if len(asked) > 1 or asked[0].group:
        return asked[0].group
    return next(place for place, channel in enumerate(channels) if channel.base == asked[0].base)
