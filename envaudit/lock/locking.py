"""One run of locking: solve, resolve the pip part, assemble, read back, audit.

Nothing is written here. What comes of it is a value: the bytes of a lock, or why there is none, and
the Sections that the rules judge.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from envaudit.errors import InputError, NeededError, UsageError
from envaudit.lock import assemble as assembling
from envaudit.lock.assemble import CondaLockView, Solved
from envaudit.lock.audit import lock_section
from envaudit.lock.bundled import resolve_bundled
from envaudit.lock.channels import Channel
from envaudit.lock.condarc import Settings
from envaudit.lock.gpubuilds import CPU, FRAMEWORKS, requests, variant_of
from envaudit.lock.inputs import inputs_of
from envaudit.lock.lockfile import Lock, LockedPackage, parse_lock
from envaudit.lock.names import TABLE, normalised, provided
from envaudit.lock.network import environment
from envaudit.lock.outcome import PipConflict, pip_conflict, solve_section
from envaudit.lock.pip import PipConflictError, PipRequest, find_uv, resolve_pip, uv_platform
from envaudit.lock.piplines import PipLines, pip_lines
from envaudit.lock.pylock import PipPackage
from envaudit.lock.solve import Record, Solution, Solving, start_solving
from envaudit.lock.sourcefile import SourceFile
from envaudit.lock.spec import Spec, channels_for, spec_of, specs_of
from envaudit.lock.virtual import VirtualPackages
from envaudit.model.section import Section

if TYPE_CHECKING:
    from envaudit.lock.solve import Progress

# What the pip part of several platforms is resolved at a time: uv is a process of its own.
_PIP_JOBS = 4


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
    with _solving(request, specs, channels, kept, progress) as solving:
        # The import of conda-lock takes as long as most solves.
        view = assembling.conda_lock_view(request.sources, request.platforms, request.virtual, request.table)
        solution = solving.result()
    if solution.conflicts:
        return Made(None, None, (solve_section(solution.conflicts, helped=solution.helped),))
    resolved = _resolve(request, solution, view, kept, progress)
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
    data = assembling.assemble(request.sources, solved, view, inputs, request.path, request.table)
    lock = parse_lock(data, request.path)
    suggestions = _suggestions(request, lock, specs, channels)
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
    known = {package.name for package in request.existing.packages}
    for name in sorted(request.update - known):
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
            if package.name not in request.update
        )
        for platform in request.platforms
    }


def _solving(
    request: LockRequest,
    specs: Mapping[str, Sequence[Spec]],
    channels: Sequence[Channel],
    kept: Mapping[str, Iterable[LockedPackage]],
    progress: Progress | None,
) -> Solving:
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


def _resolve(
    request: LockRequest,
    solution: Solution,
    view: CondaLockView,
    kept: Mapping[str, Iterable[LockedPackage]],
    progress: Progress | None,
) -> dict[str, tuple[PipPackage, ...] | PipConflict]:
    """The pip part of every platform."""

    def one(platform: str) -> tuple[PipPackage, ...] | PipConflict:
        entries = [entry for source in request.sources for entry in source.pip if entry.applies_to(platform)]
        repositories = [each.text for source in request.sources for each in source.pip_repositories]
        default_index = all(source.allow_pypi_requests for source in request.sources)
        lines = pip_lines(entries, repositories, default_index=default_index)
        if not lines.requirements:
            return ()
        if progress is not None:
            progress.phase(platform, "pip", f"{len(lines.requirements)} requirements")
        records = solution.records[platform]
        asked = _pip_request(request, platform, records, lines, kept.get(platform, ()))
        try:
            return _resolve_one(request, asked, records, view)
        except PipConflictError as error:
            return pip_conflict(platform, error, entries, asked.provided)

    with ThreadPoolExecutor(_PIP_JOBS) as pool:
        return dict(zip(request.platforms, pool.map(one, request.platforms)))


def _pip_request(
    request: LockRequest,
    platform: str,
    records: Sequence[Record],
    lines: PipLines,
    kept: Iterable[LockedPackage],
) -> PipRequest:
    python = next((record.version for record in records if record.name == "python"), None)
    if python is None:
        sections = [each for source in request.sources for each in source.pip_sections]
        raise InputError(
            "a pip section, but no Python to install it into",
            where=sections[0].place,
            next_step="Add python to the dependencies, with its version: python=3.12.",
        )
    conda = [
        (record.name, record.version, [text.split()[0] for text in record.depends]) for record in records
    ]
    return PipRequest(
        platform=platform,
        python=python,
        requirements=lines.requirements,
        options=lines.options,
        provided=provided(conda, request.table),
        virtual={each.name: each.version for each in request.virtual.of(platform)},
        locked={
            normalised(each.name): each.version
            for each in kept
            if each.manager == "pip" and each.source_url is None
        },
        prerelease=lines.prerelease,
        allow_build=request.allow_build,
        environ=_connection(request.settings),
    )


def _connection(settings: Settings) -> dict[str, str]:
    """What uv should know of the user's conda settings; its own variables come first."""
    proxies = {
        f"{scheme.upper()}_PROXY": settings.proxy_servers[scheme]
        for scheme in ("http", "https")
        if settings.proxy_servers.get(scheme) and f"{scheme.upper()}_PROXY" not in os.environ
    }
    certificates = {
        name: value for name, value in environment(settings, {}).items() if name not in os.environ
    }
    return {**proxies, **certificates}


def _resolve_one(
    request: LockRequest, asked: PipRequest, records: tuple[Record, ...], view: CondaLockView
) -> tuple[PipPackage, ...]:
    """By uv; by conda-lock's own resolver where there is no uv, or none for the platform."""
    if uv_platform(asked.platform, asked.virtual) is not None:
        try:
            find_uv()
        except NeededError:
            pass
        else:
            return resolve_pip(asked)
    conda = assembling.locked_conda(Solved(asked.platform, records), request.sources, request.table)
    return resolve_bundled(asked, view.spec, conda, request.virtual, request.table)


def _suggestions(
    request: LockRequest,
    lock: Lock,
    specs: Mapping[str, Sequence[Spec]],
    channels: Sequence[Channel],
) -> dict[str, bool]:
    """What would ask for a CUDA build of a framework that came as a CPU build, and whether it solves."""
    for platform in request.platforms:
        entries = [entry for source in request.sources for entry in source.entries(platform)]
        cuda = any(package.name == "__cuda" for package in request.virtual.of(platform))
        if requests(entries)[1] or not cuda:
            continue
        for package in lock.of(platform, categories=None, manager="conda"):
            if package.name in FRAMEWORKS and variant_of(package) == CPU:
                return {
                    text: _solves(request, platform, (*specs[platform], spec_of(text)), channels)
                    for text in _candidates(package, specs[platform])
                }
    return {}


def _candidates(package: LockedPackage, specs: Sequence[Spec]) -> tuple[str, ...]:
    """The build pin, on the version that the source asks for, and the metapackage of conda-forge."""
    name = "pytorch" if package.name == "libtorch" else package.name
    asked = next((spec.bare for spec in specs if spec.name == name), name)
    version = asked[len(name) :].strip().replace(" ", "")
    pin = f"{name}{version}=*cuda*" if version.startswith("=") else f"{name} {version or '*'} *cuda*"
    return (pin, "pytorch-gpu") if name == "pytorch" else (pin,)


def _solves(request: LockRequest, platform: str, specs: Sequence[Spec], channels: Sequence[Channel]) -> bool:
    alone = replace(request, existing=None)
    try:
        with _solving(alone, {platform: specs}, channels, {}, None) as solving:
            return not solving.result().conflicts
    except (InputError, NeededError):
        return False
