"""What is to be locked, and the solve that it starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from envaudit.lock.channels import Channel
from envaudit.lock.condarc import Settings
from envaudit.lock.lockfile import Lock, LockedPackage
from envaudit.lock.names import TABLE
from envaudit.lock.solve import Solving, start_solving
from envaudit.lock.sourcefile import SourceFile
from envaudit.lock.spec import Spec
from envaudit.lock.virtual import VirtualPackages

if TYPE_CHECKING:
    from envaudit.lock.solve import Progress


@dataclass(frozen=True)
class LockRequest:
    """What is to be locked, and how.

    Attributes:
        sources: read, and free of fatal faults.
        path: of the lock, existing or to be.
        platforms: at least one.
        settings: the user's conda settings.
        virtual: what is assumed about the machines.
        priority: channel priority; None for that of the settings.
        table: the name table.
        offline: take channel indexes from the cache alone.
        allow_build: whether the pip part may build source distributions.
        existing: the lock to stay with, where something is updated.
        update: the names that may move; what they force moves too.
    """

    sources: tuple[SourceFile, ...]
    path: str
    platforms: tuple[str, ...]
    settings: Settings
    virtual: VirtualPackages
    priority: str | None = None
    table: str = TABLE
    offline: bool = False
    allow_build: bool = False
    existing: Lock | None = None
    update: frozenset[str] = frozenset()


def solving_of(
    request: LockRequest,
    specs: Mapping[str, Sequence[Spec]],
    channels: Sequence[Channel],
    kept: Mapping[str, Iterable[LockedPackage]],
    progress: Progress | None,
) -> Solving:
    """Start solving; the conda packages of `kept` stay where they are if they can."""
    return start_solving(
        specs,
        channels,
        request.settings,
        request.virtual,
        locked={
            platform: [package for package in packages if package.manager == "conda"]
            for platform, packages in kept.items()
        },
        priority=request.priority,
        offline=request.offline,
        progress=progress,
    )
