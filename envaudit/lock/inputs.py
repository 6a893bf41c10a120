"""What a lock was made for, kept inside it, so that its staleness has a cause and not only a hash.

conda-lock's content hash says that something changed, never what. So `metadata.custom_metadata`
(text to text, which conda-lock keeps and every reader skips) gets the channels, the dependencies of
each platform and the virtual packages that were assumed, in a form that spacing and comments of the
source do not change.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from envaudit.lock.credentials import cleaned
from envaudit.lock.entries import Entry
from envaudit.lock.sourcefile import SourceFile
from envaudit.lock.virtual import VirtualPackages

_MAX_BYTES = 16 << 20
_SHOWN_DIGITS = 12
_PREFIX = "envaudit_"
_CHANNELS = f"{_PREFIX}channels"
_PLATFORMS = f"{_PREFIX}platforms"
_PRIORITY = f"{_PREFIX}channel_priority"
_CUDA = f"{_PREFIX}cuda"
_NAMES = f"{_PREFIX}names"
_SPECS = f"{_PREFIX}specs_"
_VIRTUAL = f"{_PREFIX}virtual_packages_"


@dataclass(frozen=True)
class Inputs:
    """Everything besides the channels' content that decides what a lock holds.

    Attributes:
        channels: as the sources name them, in their order.
        specs: platform to `conda numpy >=1.20`, `pip wandb`; of another category than main
            `dev: conda pytest`. Sorted.
        virtual: platform to `__cuda=12.4`, sorted.
        cuda: what `--cuda` said; None without it.
        priority: the channel priority.
        platforms: as the sources name them; a lock may be for others, which somebody chose by hand.
        own_names: whether a table of the user's own (`--names`) said what conda's packages hold.
    """

    channels: tuple[str, ...] = ()
    specs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    virtual: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    cuda: str | None = None
    priority: str = ""
    platforms: tuple[str, ...] = ()
    own_names: bool = False

    def to_custom(self) -> dict[str, str]:
        """The entries of `custom_metadata`."""
        custom = {_CHANNELS: json.dumps(list(self.channels))}
        if self.platforms:
            custom[_PLATFORMS] = " ".join(self.platforms)
        if self.priority:
            custom[_PRIORITY] = self.priority
        if self.own_names:
            custom[_NAMES] = "own"
        if self.cuda is not None:
            custom[_CUDA] = self.cuda
        for platform, specs in sorted(self.specs.items()):
            custom[_SPECS + platform] = json.dumps(list(specs))
        for platform, packages in sorted(self.virtual.items()):
            custom[_VIRTUAL + platform] = " ".join(packages)
        return custom

    @classmethod
    def from_custom(cls, custom: Mapping[str, str]) -> Inputs | None:
        """What a lock says that it was made for; None where another tool made it, or it is damaged."""
        if _CHANNELS not in custom:
            return None
        try:
            return cls(
                channels=_texts(custom[_CHANNELS]),
                specs={name: _texts(text) for name, text in _under(custom, _SPECS)},
                virtual={name: _versions(text) for name, text in _under(custom, _VIRTUAL)},
                cuda=custom.get(_CUDA),
                priority=custom.get(_PRIORITY, ""),
                platforms=tuple(custom.get(_PLATFORMS, "").split()),
                own_names=_NAMES in custom,
            )
        except (ValueError, RecursionError):
            return None


def inputs_of(
    sources: Sequence[SourceFile],
    platforms: Iterable[str],
    virtual: VirtualPackages | None = None,
    priority: str = "",
) -> Inputs:
    """What these sources ask for.

    Raises:
        UsageError: a platform that the virtual packages do not have.
    """
    names = list(platforms)
    channels = dict.fromkeys(cleaned(each.text) for source in sources for each in source.channels)
    return Inputs(
        channels=tuple(channels),
        specs={platform: _specs(sources, platform) for platform in names},
        virtual={} if virtual is None else {name: tuple(map(str, virtual.of(name))) for name in names},
        cuda=None if virtual is None else virtual.cuda,
        priority=priority,
        platforms=platforms_of(sources),
    )


def platforms_of(sources: Sequence[SourceFile]) -> tuple[str, ...]:
    """The platforms that the sources name, each once."""
    return tuple(dict.fromkeys(each.text for source in sources for each in source.platforms))


def _specs(sources: Sequence[SourceFile], platform: str) -> tuple[str, ...]:
    lines = set()
    for source in sources:
        before = "" if source.category == "main" else f"{source.category}: "
        lines |= {before + _line(entry) for entry in source.entries(platform) if entry.kind != "pip_include"}
        lines |= {f"{before}pip --index {cleaned(each.text)}" for each in source.pip_repositories}
        lines |= set() if source.allow_pypi_requests else {f"{before}pip --no-default-index"}
    return tuple(sorted(lines))


def _line(entry: Entry) -> str:
    """One dependency with its spacing evened out."""
    if entry.kind == "conda" and not entry.url:
        channel = f"{entry.channel}::" if entry.channel else ""
        parts = ["conda", channel + entry.key, "".join(entry.version.split()), entry.build]
        return cleaned(" ".join(part for part in parts if part))
    if entry.kind == "pip":
        extras = f"[{','.join(sorted(entry.extras))}]" if entry.extras else ""
        parts = ["pip", entry.key + extras, "".join(entry.version.split()), *sorted(entry.hashes)]
        marker = f"; {' '.join(entry.marker.split())}" if entry.marker else ""
        return cleaned(" ".join(part for part in parts if part) + marker)
    if entry.kind == "pip_constraint":
        return f"pip {cleaned(' '.join(entry.text.split()))} {_digest_of(entry)}"
    return cleaned(f"{'conda' if entry.kind == 'conda' else 'pip'} {' '.join(entry.text.split())}")


def _digest_of(entry: Entry) -> str:
    """The content of a constraints file, whose lines are no entries: `sha256:0123456789ab`."""
    try:
        with open(os.path.join(os.path.dirname(entry.path), entry.value), "rb") as file:
            return f"sha256:{hashlib.sha256(file.read(_MAX_BYTES)).hexdigest()[:_SHOWN_DIGITS]}"
    except OSError:
        return "unreadable"


def _texts(text: str) -> tuple[str, ...]:
    values = json.loads(text)
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError("expected a list of texts")
    return tuple(values)


def _versions(text: str) -> tuple[str, ...]:
    packages = tuple(text.split())
    if not all("=" in each for each in packages):
        raise ValueError("expected __name=version")
    return packages


def _under(custom: Mapping[str, str], prefix: str) -> list[tuple[str, str]]:
    return [(key[len(prefix) :], text) for key, text in custom.items() if key.startswith(prefix)]
