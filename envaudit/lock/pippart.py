"""The pip part of all platforms, on the conda part that was solved."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from envaudit.errors import InputError, NeededError, UsageError
from envaudit.lock.assemble import CondaLockView, Solved, locked_conda
from envaudit.lock.bundled import resolve_bundled
from envaudit.lock.condarc import Settings
from envaudit.lock.credentials import is_secret_variable
from envaudit.lock.lockfile import LockedPackage
from envaudit.lock.names import normalised, provided
from envaudit.lock.network import environment
from envaudit.lock.outcome import PipConflict, pip_conflict
from envaudit.lock.pip import PipConflictError, PipRequest, end_running, find_uv, resolve_pip, uv_platform
from envaudit.lock.piplines import PipLines, pip_lines
from envaudit.lock.pylock import PipPackage
from envaudit.lock.request import LockRequest
from envaudit.lock.solve import Record, Solution

if TYPE_CHECKING:
    from envaudit.lock.solve import Progress

# What uv fills in, as pip does.
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_USER = re.compile(r"//[^/\s]*@")
# What the pip part of several platforms is resolved at a time: uv is a process of its own.
_PIP_JOBS = 4


def resolve_pip_parts(
    request: LockRequest,
    solution: Solution,
    view: CondaLockView,
    kept: Mapping[str, Iterable[LockedPackage]],
    progress: Progress | None,
) -> dict[str, tuple[PipPackage, ...] | PipConflict]:
    """The pip part of every platform, or why it has no solution.

    Raises:
        InputError: a requirement that cannot be read, or no Python to install into.
        NeededError: an index that does not answer.
    """

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
            found = _resolve_one(request, asked, records, view)
        except PipConflictError as error:
            return pip_conflict(platform, error, entries, asked.provided)
        _refuse_secrets(found, "\n".join((*lines.requirements, *lines.options)))
        return found

    with ThreadPoolExecutor(_PIP_JOBS) as pool:
        try:
            return dict(zip(request.platforms, pool.map(one, request.platforms)))
        except BaseException:
            # Leaving the block waits for the other platforms.
            pool.shutdown(wait=False, cancel_futures=True)
            end_running()
            raise


def _refuse_secrets(found: Iterable[PipPackage], lines: str) -> None:
    """Nothing where no address has the value of a variable that the section keeps a secret in.

    An index with a token in its path gives it to the addresses of its files. A password, which uv leaves
    out of those, may be any word of a path: it is looked for only where a password stands.

    Raises:
        UsageError: names the variable.
    """
    secrets = {name: os.environ.get(name, "") for name in _VARIABLE.findall(lines)}
    secrets = {name: value for name, value in secrets.items() if is_secret_variable(name, value)}
    of_paths = set(_VARIABLE.findall(_USER.sub("//", lines)))
    for package in found:
        for name, value in secrets.items():
            place = package.url if name in of_paths else urlsplit(package.url).netloc.rpartition("@")[0]
            if value in place or value in unquote(place):
                raise UsageError(
                    f"the value of {name} would stand in the address of {package.name}",
                    where="pip part",
                    why="that is in the lock for everyone to read",
                    next_step="Keep it in a netrc file, or give it as the password of the index: "
                    f"https://USER:${{{name}}}@HOST/simple.",
                )


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
        offline=request.offline,
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
    conda = locked_conda(Solved(asked.platform, records), request.sources, request.table)
    return resolve_bundled(asked, view.spec, conda, request.virtual, request.table)
