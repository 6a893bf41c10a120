"""From solved packages to the bytes of a conda-lock.yml, by conda-lock's own models and writer.

The content hash is that of conda-lock's own spec of the same files, so that conda-lock takes the
lock for fresh. The bytes depend on the sources and on what was solved, not on the time or the machine.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envaudit.errors import InputError
from envaudit.lock.categories import Key, Root, categories_of
from envaudit.lock.inputs import Inputs
from envaudit.lock.lockspec import conda_lock_spec
from envaudit.lock.names import provided
from envaudit.lock.pylock import PipPackage
from envaudit.lock.record import Record
from envaudit.lock.sourcefile import SourceFile
from envaudit.lock.virtual import VirtualPackages


@dataclass(frozen=True)
class Solved:
    """What came of one platform."""

    platform: str
    records: tuple[Record, ...]
    pip: tuple[PipPackage, ...] = ()


@dataclass(frozen=True)
class CondaLockView:
    """conda-lock's view of the sources, computed while the solver works.

    Attributes:
        spec: its `LockSpecification`.
        content_hashes: platform to hash.
    """

    spec: Any
    content_hashes: Mapping[str, str]


def conda_lock_view(
    sources: Sequence[SourceFile], platforms: Sequence[str], virtual: VirtualPackages, table: str
) -> CondaLockView:
    """Import conda-lock, read the sources with it, and compute its content hashes.

    Raises:
        UsageError, InputError: as of `conda_lock_spec`.
    """
    from conda_lock.content_hash import compute_content_hashes

    spec = conda_lock_spec(sources, platforms, mapping_url=f"file://{table}")
    return CondaLockView(spec, compute_content_hashes(spec, virtual.conda_lock_repodata()))


def accepted_hashes(
    sources: Sequence[SourceFile], platforms: Sequence[str], choices: Sequence[VirtualPackages], table: str
) -> dict[str, set[str]]:
    """Platform to all content hashes that conda-lock takes for these sources, under any of the choices."""
    from conda_lock.content_hash import backwards_compatible_content_hashes

    spec = conda_lock_spec(sources, platforms, mapping_url=f"file://{table}")
    accepted: dict[str, set[str]] = {platform: set() for platform in platforms}
    for virtual in choices:
        repodata = virtual.conda_lock_repodata()
        for platform, hashes in accepted.items():
            hashes |= set(backwards_compatible_content_hashes(spec, repodata, platform))
    return accepted


def assemble(
    sources: Sequence[SourceFile],
    solved: Sequence[Solved],
    view: CondaLockView,
    inputs: Inputs,
    path: str,
    table: str,
) -> bytes:
    """The bytes of the lock.

    Args:
        sources: what was solved for.
        solved: one for each platform.
        view: of the same sources.
        inputs: kept in the lock's metadata.
        path: where the lock will be written; sources are named relative to its folder.
        table: the name table.

    Raises:
        InputError: a channel whose index has no md5 for a package: the format cannot do without.
    """
    from pathlib import Path

    from conda_lock.lockfile import write_conda_lock_file
    from conda_lock.lockfile.v2prelim.models import Lockfile, LockMeta

    packages = [package for one in solved for package in _packages(one, sources, table)]
    folder = os.path.dirname(os.path.abspath(path))
    content = Lockfile(
        package=packages,
        metadata=LockMeta(
            content_hash=dict(view.content_hashes),
            channels=list(view.spec.channels),
            platforms=list(view.spec.platforms),
            sources=[os.path.relpath(source.path, folder) for source in sources],
            custom_metadata=inputs.to_custom(),
        ),
    )
    with tempfile.TemporaryDirectory(prefix="envaudit-") as scratch:
        # The head of the file names the file.
        written = Path(scratch) / os.path.basename(path)
        write_conda_lock_file(content, written, metadata_choices=None)
        return written.read_bytes()


def locked_conda(one: Solved, sources: Sequence[SourceFile], table: str) -> list[Any]:
    """conda-lock's entries of one platform's conda part."""
    return [each for each in _packages(one, sources, table) if each.manager == "conda"]


def _packages(one: Solved, sources: Sequence[SourceFile], table: str) -> Iterator[Any]:
    """conda-lock's entries of one platform."""
    from conda_lock.lockfile.v2prelim.models import LockedDependency

    dependencies = {record.name: _dependencies(record) for record in one.records}
    holders = _holders(one, dependencies, table)
    needs = _needs(one, dependencies, holders)
    categories = categories_of(_roots(one.platform, sources, needs, holders), needs)
    for record in one.records:
        if record.md5 is None:
            raise InputError(
                f"{record.file_name} has no md5 in its channel's index",
                where=record.channel,
                why="conda-lock's format cannot do without",
                next_step="Index that channel again with a tool that computes it.",
            )
        yield LockedDependency(
            name=record.name,
            version=record.version,
            manager="conda",
            platform=one.platform,
            dependencies=dependencies[record.name],
            url=record.url,
            hash=_hash(md5=record.md5, sha256=record.sha256),
            categories=set(categories[Key("conda", record.name)]),
        )
    for package in one.pip:
        yield LockedDependency(
            name=package.name,
            version=package.version,
            manager="pip",
            platform=one.platform,
            dependencies=dict.fromkeys(package.dependencies, "*"),
            url=package.url,
            hash=_hash(sha256=package.sha256 or _commit(package)),
            source={"type": "url", "url": package.url} if package.is_direct else None,
            categories=set(categories[Key("pip", package.name)]),
        )


def _hash(**digests: str | None) -> Any:
    from conda_lock.lockfile.v2prelim.models import HashModel

    return HashModel(**{name: digest for name, digest in digests.items() if digest is not None})


def _commit(package: PipPackage) -> str | None:
    """The commit of a repository: what conda-lock puts in the place of a sha256."""
    if not package.url.startswith("git+"):
        return None
    return package.url.split("#")[0].rpartition("@")[2]


def _dependencies(record: Record) -> dict[str, str]:
    """Name to version spec; several of one name are merged as conda-lock merges them."""
    from conda_lock._vendor.conda.models.match_spec import MatchSpec

    asked: dict[str, list[Any]] = {}
    for text in record.depends:
        spec = MatchSpec(text)
        asked.setdefault(spec.name, []).append(spec)
    merged = {
        name: specs[0] if len(specs) == 1 else MatchSpec.merge(specs)[0] for name, specs in asked.items()
    }
    return {name: spec.version.spec_str if spec.version is not None else "" for name, spec in merged.items()}


def _holders(one: Solved, dependencies: Mapping[str, Mapping[str, str]], table: str) -> dict[str, list[Key]]:
    """Distribution to the locked packages that hold it: those of pip, else those of conda."""
    holders: dict[str, list[Key]] = {}
    for record in one.records:
        for distribution in provided([(record.name, record.version, dependencies[record.name])], table):
            holders.setdefault(distribution, []).append(Key("conda", record.name))
    return {**holders, **{package.name: [Key("pip", package.name)] for package in one.pip}}


def _needs(
    one: Solved, dependencies: Mapping[str, Mapping[str, str]], holders: Mapping[str, Sequence[Key]]
) -> dict[Key, list[Key]]:
    needs = {
        Key("conda", record.name): [Key("conda", name) for name in dependencies[record.name]]
        for record in one.records
    }
    for package in one.pip:
        needs[Key("pip", package.name)] = [
            key for name in package.dependencies for key in holders.get(name, ())
        ]
    return needs


def _roots(
    platform: str,
    sources: Iterable[SourceFile],
    needs: Mapping[Key, Sequence[Key]],
    holders: Mapping[str, Sequence[Key]],
) -> Iterator[Root]:
    for source in sources:
        for entry in source.entries(platform):
            if entry.kind == "conda":
                yield Root(Key("conda", entry.key), source.category)
            else:
                for key in holders.get(entry.key, ()):
                    yield Root(key, source.category)
        if source.pip_sections and Key("conda", "pip") in needs:
            # Whatever the category of the file: conda-lock has it so.
            yield Root(Key("conda", "pip"), "main")
