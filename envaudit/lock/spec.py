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
from envaudit.lock.condaspec import BadSpec, parse_spec
from envaudit.lock.sourcefile import SourceFile

_SUBDIR = re.compile(r"\A(.+)/(noarch|(?:linux|osx|win)-[a-z0-9_]+)\Z")
# What stands in brackets and is no key (`pyuvdata[casa]`), conda drops.
_NO_KEYS = re.compile(r"\[[^\[\]=]*\]")
_CHANNEL_KEY = re.compile(r"""(?:(?<=\[)|,)\s*channel\s*=\s*(?:'[^']*'|"[^"]*"|[^,\]\s]*)\s*,?""")
_DIGEST = re.compile(r"(?:sha256:)?([0-9a-fA-F]{32}|[0-9a-fA-F]{64})\Z")


@dataclass(frozen=True)
class Spec:
    """One match spec and where it was written; `spec_of` makes it of a text.

    Attributes:
        text: as written, `pytorch::pytorch=2.1.0`.
        name: of the package, in small letters as channels have it.
        bare: the spec without its channel, `pytorch=2.1.0`.
        where: `environment.yml:7:5`, or empty.
        channel: the channel it asks for, or empty.
        subdir: the platform folder it asks for, or empty.
    """

    text: str
    name: str
    bare: str
    where: str = ""
    channel: str = ""
    subdir: str = ""


def spec_of(text: str, where: str = "") -> Spec:
    """The spec that a text says.

    Raises:
        InputError: it is none.
    """
    try:
        parts = parse_spec(text.strip())
    except BadSpec as error:
        raise InputError(
            f"'{text}' is no package spec",
            where=where,
            why=str(error),
            next_step="Write a name and, if needed, a version and a build: pytorch=2.1.0=*cuda*.",
        ) from None
    if parts.url:
        address, _, digest = parts.url.partition("#")
        channel = address.rpartition("/")[0]
        bare = f"{parts.name} {parts.version} {parts.build}{_hash_key(digest)}"
    else:
        channel = parts.channel
        bare = _NO_KEYS.sub("", _CHANNEL_KEY.sub("", text.strip().rpartition("::")[2])).strip()
    subdir = _SUBDIR.match(channel)
    if subdir:
        return Spec(text, parts.name.lower(), bare, where, subdir.group(1), subdir.group(2))
    return Spec(text, parts.name.lower(), bare, where, channel)


def _hash_key(digest: str) -> str:
    """What stands behind the `#` of a package's URL, as explicit lists have it, as a key of a spec."""
    match = _DIGEST.match(digest)
    if match is None:
        return ""
    return f"[{'md5' if len(match[1]) == 32 else 'sha256'}={match[1].lower()}]"


def specs_of(sources: Iterable[SourceFile], platform: str) -> tuple[Spec, ...]:
    """What the source files ask of conda on one platform, in their order.

    A file with a pip section asks for pip, as conda-lock has it: something must install the section.

    Raises:
        InputError: an entry that is no spec.
    """
    found = []
    for source in sources:
        found += [spec_of(entry.text, entry.place) for entry in source.conda if entry.applies_to(platform)]
        if source.pip_sections and all(spec.name != "pip" for spec in found):
            found.append(spec_of("pip", source.pip_sections[0].place))
    return tuple(found)


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
    if asked[0].group:
        return asked[0].group
    return next(place for place, channel in enumerate(channels) if channel.base == asked[0].base)
