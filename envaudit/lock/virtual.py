"""Virtual packages: what a solve assumes about the machines that will run the environment.

Without a choice they are conda-lock's own defaults, since the content hash of a lock covers them;
its table is read as data, because importing conda-lock costs the better part of a second.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from envaudit.errors import InputError, NeededError, UsageError

NO_CUDA = "none"

_MAX_BYTES = 1 << 20
_NAME = re.compile(r"__[a-z0-9_]+\Z")
_VERSION = re.compile(r"[0-9][A-Za-z0-9_.]*\Z")


@dataclass(frozen=True)
class VirtualPackage:
    """`__glibc` 2.28; `build` is empty but for `__archspec`, where it is the architecture."""

    name: str
    version: str
    build: str = ""

    def __str__(self) -> str:
        """`__archspec=1=x86_64`."""
        return f"{self.name}={self.version}" + (f"={self.build}" if self.build else "")


@dataclass(frozen=True)
class VirtualPackages:
    """The choice of a user and what it comes to.

    Attributes:
        by_platform: platform to its packages, sorted by name.
        path: the file they were read from; None for conda-lock's defaults.
        cuda: `12.4`, `none`, or None where the table's own number counts.
    """

    by_platform: Mapping[str, tuple[VirtualPackage, ...]]
    path: str | None = None
    cuda: str | None = None

    def of(self, platform: str) -> tuple[VirtualPackage, ...]:
        """The packages of one platform.

        Raises:
            UsageError: a platform that the table does not have.
        """
        if platform in self.by_platform:
            return self.by_platform[platform]
        import difflib

        close = difflib.get_close_matches(platform, self.by_platform, n=1)
        known = ", ".join(sorted(self.by_platform))
        raise UsageError(
            f"unknown platform '{platform}'",
            where=self.path or "",
            next_step=f"Did you mean '{close[0]}'?" if close else f"Known are {known}.",
        )

    def conda_lock_repodata(self) -> Any:
        """The same choice as conda-lock's `FakeRepoData`, for its content hash; imports conda-lock."""
        from pathlib import Path

        from conda_lock.virtual_package import (
            default_virtual_package_repodata,
            virtual_package_repo_from_specification,
        )

        if self.path is not None:
            return virtual_package_repo_from_specification(Path(self.path))
        if self.cuda is None:
            return default_virtual_package_repodata()
        return default_virtual_package_repodata(cuda_version="" if self.cuda == NO_CUDA else self.cuda)


def virtual_packages(*, cuda: str | None = None, path: str | None = None) -> VirtualPackages:
    """conda-lock's defaults with another `cuda`, or the table of a file in conda-lock's format.

    Raises:
        UsageError: both were given, or `cuda` is neither a version nor `none`.
        InputError: the file is not of that format, with the key path.
        NeededError: conda-lock is not installed.
    """
    if path is not None and cuda is not None:
        raise UsageError(
            "--cuda and --virtual-packages contradict each other",
            next_step="Write __cuda into the file, or give --cuda alone.",
        )
    if cuda is not None and cuda != NO_CUDA and not re.match(r"[0-9]+(\.[0-9]+)*\Z", cuda):
        raise UsageError(f"--cuda {cuda}: expected a version such as 12.4, or {NO_CUDA}")
    table = _read(path if path is not None else _default_path())
    by_platform = {}
    for platform, packages in table.items():
        if cuda is not None and "__cuda" in packages:
            packages = {name: text for name, text in packages.items() if name != "__cuda"}
            if cuda != NO_CUDA:
                packages["__cuda"] = cuda
        by_platform[platform] = tuple(_package(name, packages[name]) for name in sorted(packages))
    return VirtualPackages(by_platform, path, cuda)


def _package(name: str, text: str) -> VirtualPackage:
    version, _, build = text.partition(" ")
    return VirtualPackage(name, version, build)


def _default_path() -> str:
    # Finding a top-level package does not import it.
    from importlib.util import find_spec

    found = find_spec("conda_lock")
    if found is None or not found.submodule_search_locations:
        raise NeededError(
            "conda-lock is not installed", next_step="Install envaudit with pip, which brings it."
        )
    return os.path.join(found.submodule_search_locations[0], "default-virtual-packages.yaml")


def _read(path: str) -> dict[str, dict[str, str]]:
    """`{platform: {__name: "version build"}}` of a file."""
    import yaml

    try:
        with open(path, "rb") as file:
            table = yaml.safe_load(file.read(_MAX_BYTES))
    except OSError as error:
        raise InputError("cannot be read", where=path, why=error.strerror or str(error)) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError("not YAML", where=path, why=" ".join(str(error).split())[:300]) from None
    platforms = _mapping(_mapping(table, path, "").get("subdirs"), path, "subdirs")
    found: dict[str, dict[str, str]] = {}
    for platform, entry in platforms.items():
        key = f"subdirs.{platform}"
        packages = _mapping(_mapping(entry, path, key).get("packages"), path, f"{key}.packages")
        found[str(platform)] = {}
        for name, text in packages.items():
            if not isinstance(name, str) or not _NAME.match(name):
                raise InputError(f"{key}.packages: '{name}' is no virtual package name", where=path)
            if not isinstance(text, str) or not _VERSION.match(text.partition(" ")[0]):
                raise InputError(
                    f"{key}.packages.{name}: expected a version in quotes, got {text!r}", where=path
                )
            found[str(platform)][name] = text
    return found


def _mapping(value: Any, path: str, key: str) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise InputError(
            f"{key or 'the file'}: expected keys and values, got {type(value).__name__}",
            where=path,
            next_step='The format is conda-lock\'s: subdirs: / linux-64: / packages: / __cuda: "12.4".',
        )
    return value
