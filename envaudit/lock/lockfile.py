"""A conda-lock.yml as a frozen value, read without conda-lock, every fault named by its key path.

Reading through conda-lock's own models costs 0.6 to 1.0 s of imports and gives a pydantic report;
`lock --check`, `verify` and `install` need neither. The format is version 1 of conda-lock's unified
lock file, which stores a package of several categories once a category.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any
from urllib.parse import unquote, urlsplit

from envaudit.errors import InputError, UsageError
from envaudit.lock.keypaths import KeyedReader

MANAGERS = ("conda", "pip")

_MAX_BYTES = 64 << 20
_SCHEMA = "1"
# What becomes part of a path or of a command line: a lock comes from a repository under test.
CONDA_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}\Z")
PIP_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}\Z")
VERSION = re.compile(r"[A-Za-z0-9_.+!*-]{1,200}\Z")
_PLATFORM = re.compile(r"[a-z][a-z0-9]*-[a-z0-9_]+\Z")
# Of a repository it becomes a line of requirements.
URL = re.compile(r"\S+\Z")
HEX = re.compile(r"[0-9a-fA-F]{32,128}\Z")
_EXTENSIONS = (".conda", ".tar.bz2")


@dataclass(frozen=True)
class LockedChannel:
    """A channel of a lock: its name or URL as the source has it, and the variables inside it."""

    url: str
    used_env_vars: tuple[str, ...] = ()


@dataclass(frozen=True)
class LockedPackage:
    """One package on one platform.

    Attributes:
        manager: `conda` or `pip`.
        dependencies: name to version spec, `*` or empty for any.
        url: where it is fetched; may hold `${VARIABLE}` for a credential.
        md5, sha256: in hex; None where the lock has none.
        categories: `main`, `dev` and so on, at least one.
        source_url: of a pip entry that comes from a URL or a repository, else None.
        recorded_build: the build string, where the lock spells it out.
    """

    name: str
    version: str
    manager: str
    platform: str
    url: str
    dependencies: Mapping[str, str] = field(default_factory=dict)
    md5: str | None = None
    sha256: str | None = None
    categories: frozenset[str] = frozenset({"main"})
    source_url: str | None = None
    recorded_build: str | None = None

    @cached_property
    def file_name(self) -> str:
        """`numpy-1.26.4-py310hb13e2d6_0.conda`."""
        return unquote(urlsplit(self.url).path).rsplit("/", 1)[-1]

    @cached_property
    def build(self) -> str:
        """The build string of a conda package, from its file name; empty for pip."""
        if self.recorded_build is not None:
            return self.recorded_build
        stem = self.file_name
        for extension in _EXTENSIONS:
            if stem.endswith(extension):
                return stem[: -len(extension)].rsplit("-", 1)[-1]
        return ""

    @property
    def subdir(self) -> str:
        """The folder of the channel that it lies in, `linux-64` or `noarch`; empty for pip."""
        if self.manager != "conda":
            return ""
        parts = urlsplit(self.url).path.split("/")
        return parts[-2] if len(parts) > 1 else ""

    @property
    def channel(self) -> str:
        """The URL of the channel that it comes from, without the folder; empty for pip."""
        return "" if self.manager != "conda" else self.url.rsplit("/", 2)[0]


@dataclass(frozen=True)
class Lock:
    """A whole lock file.

    Attributes:
        path: where it was read.
        content_hash: platform to the hash that conda-lock compares with its sources.
        sources: the environment files, relative to the lock's folder.
        custom: `metadata.custom_metadata`, where envaudit keeps what it solved for.
        packages: in the file's order.
    """

    path: str
    content_hash: Mapping[str, str]
    channels: tuple[LockedChannel, ...]
    platforms: tuple[str, ...]
    sources: tuple[str, ...]
    packages: tuple[LockedPackage, ...]
    custom: Mapping[str, str] = field(default_factory=dict)

    def of(
        self, platform: str, categories: Iterable[str] | None = ("main",), manager: str | None = None
    ) -> tuple[LockedPackage, ...]:
        """The packages of one platform; `categories` None means all."""
        wanted = None if categories is None else frozenset(categories)
        return tuple(
            package
            for package in self.packages
            if package.platform == platform
            and (manager is None or package.manager == manager)
            and (wanted is None or not wanted.isdisjoint(package.categories))
        )

    @property
    def categories(self) -> tuple[str, ...]:
        """All categories that some package has, `main` first."""
        names = {name for package in self.packages for name in package.categories}
        return tuple(sorted(names, key=lambda name: (name != "main", name)))

    def check_has(self, platform: str, categories: Iterable[str]) -> None:
        """Refuse categories that leave nothing of what is there: an empty environment would be as locked.

        Raises:
            UsageError: a category that no package has, or packages of other categories alone.
        """
        chosen = tuple(categories)
        unknown = sorted(set(chosen) - set(self.categories) - {"main"})
        there = {name for package in self.of(platform, None) for name in package.categories}
        if unknown:
            said, has = f"the lock has no category '{unknown[0]}'", self.categories
        elif there and there.isdisjoint(chosen):
            said = f"the lock has no package of category {', '.join(chosen)} for {platform}"
            has = tuple(sorted(there))
        else:
            return
        advice = f"It has {', '.join(has)}: name one with --category." if has else ""
        raise UsageError(said, where=self.path, next_step=advice)

    def source_paths(self) -> tuple[str, ...]:
        """The environment files as paths from here."""
        folder = os.path.dirname(os.path.abspath(self.path))
        return tuple(os.path.normpath(os.path.join(folder, source)) for source in self.sources)


def read_lock(path: str) -> Lock:
    """The lock at `path`.

    Raises:
        InputError: it cannot be read, is no YAML, no conda-lock file, of another version, or a
            value is not what it must be; the key path says which.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        advice = "Make one with 'envaudit lock'." if isinstance(error, FileNotFoundError) else ""
        why = error.strerror or str(error)
        raise InputError("cannot be read", where=path, why=why, next_step=advice) from None
    if len(data) > _MAX_BYTES:
        raise InputError(f"larger than {_MAX_BYTES} bytes", where=path)
    return parse_lock(data, path)


def parse_lock(data: bytes, path: str) -> Lock:
    """The lock that a file's content is; see `read_lock`."""
    if re.search(rb"^@EXPLICIT\s*$", data, re.MULTILINE):
        raise InputError(
            "an explicit list, not a conda-lock file",
            where=path,
            next_step="conda and micromamba install from it, and 'envaudit verify' takes it as it is.",
        )
    document = _load_yaml(data, path)
    if not isinstance(document, dict) or "version" not in document:
        raise InputError(
            "not a conda-lock file", where=path, next_step="Make one with 'envaudit lock environment.yml'."
        )
    if document["version"] != _SCHEMA:
        raise InputError(
            f"lock format {document['version']!r} is not known, only version {_SCHEMA} is",
            where=path,
            next_step="Make the lock again with 'envaudit lock', or export it to conda-lock version 1.",
        )
    reader = _Reader(path)
    metadata = reader.mapping(document, "metadata", "")
    channels = tuple(
        reader.channel(each, f"metadata.channels[{index}]")
        for index, each in enumerate(reader.sequence(metadata, "channels", "metadata."))
    )
    packages = [
        reader.package(each, f"package[{index}]")
        for index, each in enumerate(reader.sequence(document, "package", ""))
    ]
    return Lock(
        path=path,
        content_hash=reader.texts(metadata, "content_hash", "metadata."),
        channels=channels,
        platforms=reader.names(metadata, "platforms", "metadata.", _PLATFORM, "a platform"),
        sources=reader.names(metadata, "sources", "metadata."),
        packages=_folded(packages, path),
        custom=reader.texts(metadata, "custom_metadata", "metadata.")
        if "custom_metadata" in metadata
        else {},
    )


def _load_yaml(data: bytes, path: str) -> Any:
    """YAML with every scalar as its text: `version: 1.10` is no number."""
    import yaml

    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        return yaml.load(data, Loader=loader)  # noqa: S506  (a base loader makes texts only)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else path
        conflict = "Resolve the merge conflict first. " if b"\n<<<<<<< " in b"\n" + data else ""
        raise InputError(
            "not YAML", where=place, why=str(error.problem), next_step=f"{conflict}Make the lock again."
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise InputError("not YAML", where=path, why=str(error).split("\n")[0]) from None


def _folded(packages: list[LockedPackage], path: str) -> tuple[LockedPackage, ...]:
    """One entry a package: version 1 repeats it for each of its categories.

    Raises:
        InputError: a package is there twice, and not the same, as a merge of two branches may leave it.
    """
    by_key: dict[tuple[str, ...], LockedPackage] = {}
    for index, package in enumerate(packages):
        key = (package.manager, package.platform, package.name)
        known = by_key.setdefault(key, package)
        if (known.url, known.version, known.md5, known.sha256) != (
            package.url,
            package.version,
            package.md5,
            package.sha256,
        ):
            raise InputError(
                f"package[{index}]: {package.name} is there twice for {package.platform}",
                where=path,
                why=f"{known.version} {known.build}".strip()
                + " and "
                + f"{package.version} {package.build}".strip(),
                next_step="Make the lock again with 'envaudit lock'.",
            )
        by_key[key] = replace(known, categories=known.categories | package.categories)
    return tuple(by_key.values())


class _Reader(KeyedReader):
    """The values of a lock."""

    def channel(self, value: object, where: str) -> LockedChannel:
        if isinstance(value, str):
            return LockedChannel(value)
        if not isinstance(value, dict):
            raise self.fault(where, "a channel", value)
        variables = self.names(value, "used_env_vars", f"{where}.") if "used_env_vars" in value else ()
        return LockedChannel(self.text(value, "url", f"{where}."), variables)

    def package(self, value: object, where: str) -> LockedPackage:
        if not isinstance(value, dict):
            raise self.fault(where, "a mapping", value)
        prefix = f"{where}."
        manager = self.text(value, "manager", prefix)
        if manager not in MANAGERS:
            raise self.fault(f"{prefix}manager", "conda or pip", manager)
        hashes = self.texts(value, "hash", prefix) if value.get("hash") else {}
        source = value.get("source")
        url = self.text(value, "url", prefix, URL)
        try:
            urlsplit(url)
        except ValueError:  # `https://[host/...`
            raise self.fault(f"{prefix}url", "a url", url) from None
        return LockedPackage(
            name=self.text(value, "name", prefix, CONDA_NAME if manager == "conda" else PIP_NAME),
            version=self.text(value, "version", prefix, VERSION),
            manager=manager,
            platform=self.text(value, "platform", prefix, _PLATFORM),
            url=url,
            dependencies=self.texts(value, "dependencies", prefix) if value.get("dependencies") else {},
            md5=self.digest(hashes, "md5", prefix),
            # conda-lock keeps a repository's commit in the place of the sha256.
            sha256=None if url.startswith("git+") else self.digest(hashes, "sha256", prefix),
            categories=frozenset({self.text(value, "category", prefix) if value.get("category") else "main"}),
            source_url=self.text(source, "url", f"{prefix}source.") if isinstance(source, dict) else None,
            recorded_build=self.text(value, "build", prefix, VERSION) if value.get("build") else None,
        )

    def digest(self, hashes: Mapping[str, str], key: str, prefix: str) -> str | None:
        value = hashes.get(key, "")
        if value in ("", "null", "~"):
            return None
        if not HEX.match(value):
            raise self.fault(f"{prefix}hash.{key}", "a digest in hex", value)
        return value
