"""One run of locking: solve, resolve the pip part, assemble, read back, audit.

Nothing is written here. What comes of it is a value: the bytes of a lock, or why there is none, and
the Sections that the rules judge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from envaudit.errors import UsageError
from envaudit.lock.assemble import Solved, assemble, conda_lock_view
from envaudit.lock.audit import lock_section
from envaudit.lock.channels import Channel
from envaudit.lock.inputs import inputs_of
from envaudit.lock.lockfile import Lock, LockedPackage, parse_lock
from envaudit.lock.names import TABLE, normalised
from envaudit.lock.outcome import PipConflict, solve_section
from envaudit.lock.pippart import resolve_pip_parts
from envaudit.lock.request import LockRequest, solving_of
from envaudit.lock.spec import Spec, channels_for, specs_of
from envaudit.lock.suggestions import tried_suggestions
from envaudit.model.section import Section

if TYPE_CHECKING:
    from envaudit.lock.solve import Progress


@dataclass(frozen=True)
class Made:
    """What came of it.

    Attributes:
        data: the bytes of the lock; None where a part has no solution.
        lock: the same, read back.
        sections: `solve`, and `lockfile` where there is a lock.
        counts: platform to the numbers of its conda and pip packages.
    """

    data: bytes | None
    lock: Lock | None
    sections: tuple[Section, ...]
    counts: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def make_lock(request: LockRequest, progress: Progress | None = None) -> Made:
    """Solve all platforms and make a lock of it.

    Raises:
        UsageError: an unknown platform, a channel with a literal credential, a name to update that
            the lock does not have.
        InputError: a spec or a requirement that cannot be read, a damaged channel.
        NeededError: a channel or an index that does not answer, a solver that died.
    """
    specs = {platform: specs_of(request.sources, platform) for platform in request.platforms}
    channels = _channels(request, specs)
    kept = _kept(request)
    with solving_of(request, specs, channels, kept, progress) as solving:
        # The import of conda-lock takes as long as most solves.
        view = conda_lock_view(request.sources, request.platforms, request.virtual, request.table)
        solution = solving.result()
    if solution.conflicts:
        return Made(None, None, (solve_section(solution.conflicts, helped=solution.helped),))
    resolved = resolve_pip_parts(request, solution, view, kept, progress)
    conflicts = [each for each in resolved.values() if isinstance(each, PipConflict)]
    if conflicts:
        return Made(None, None, (solve_section((), conflicts, solution.helped),))
    solved = [
        Solved(platform, solution.records[platform], each)
        for platform, each in resolved.items()
        if not isinstance(each, PipConflict)
    ]
    priority = request.priority or request.settings.channel_priority
    inputs = inputs_of(request.sources, request.platforms, request.virtual, priority)
    inputs = replace(inputs, own_names=request.table != TABLE)
    data = assemble(request.sources, solved, view, inputs, request.path, request.table)
    lock = parse_lock(data, request.path)
    suggestions = tried_suggestions(request, lock, specs, channels)
    return Made(
        data,
        lock,
        (
            solve_section(helped=solution.helped, suggestions=suggestions),
            lock_section(lock, request.sources, table=request.table),
        ),
        {each.platform: (len(each.records), len(each.pip)) for each in solved},
    )


def _channels(request: LockRequest, specs: Mapping[str, Sequence[Spec]]) -> tuple[Channel, ...]:
    names = [each.text for source in request.sources for each in source.channels]
    all_specs = [spec for wanted in specs.values() for spec in wanted]
    return channels_for(dict.fromkeys(names), all_specs, request.settings)[0]


def _kept(request: LockRequest) -> dict[str, tuple[LockedPackage, ...]]:
    """Platform to the packages of the existing lock that should not move."""
    if request.existing is None:
        return {}
    known = {normalised(package.name) for package in request.existing.packages}
    moving = {normalised(name) for name in request.update}
    for name in sorted(moving - known):
        import difflib

        close = difflib.get_close_matches(name, known, n=1)
        raise UsageError(
            f"the lock has no package '{name}'",
            where=request.path,
            next_step=f"Did you mean '{close[0]}'?" if close else "",
        )
    return {
        platform: tuple(
            package
            for package in request.existing.of(platform, categories=None)
            if normalised(package.name) not in moving
        )
        for platform in request.platforms
    }
