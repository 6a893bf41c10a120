"""From a lock to an environment: every file checked, built aside, put in place whole or not at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from envaudit.errors import InputError, NeededError, UsageError
from envaudit.lock.fetch import Progress, fetch_all, wanted
from envaudit.lock.lockfile import Lock, LockedPackage
from envaudit.lock.opener import Opener
from envaudit.lock.prefix import replacement
from envaudit.lock.wheelinstall import install_distributions

# The child takes this process' own sys.path, never the working directory.
_CHILD = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from {module} import main; main()"


@dataclass(frozen=True)
class Supply:
    """Where package files come from.

    Attributes:
        addresses: of a package, the URLs to try in order.
        cache: the folder of checked archives.
        opener: how to reach the network.
        offline: whether to take nothing from it.
    """

    addresses: Callable[[LockedPackage], Sequence[str]]
    cache: str
    opener: Opener
    offline: bool = False


@dataclass(frozen=True)
class Installed:
    """What an install did.

    Attributes:
        prefix: where, without symbolic links.
        conda, pip: how many packages of each.
        scripts_not_run: packages that have a post-link script; such scripts are never run.
    """

    prefix: str
    conda: int
    pip: int
    scripts_not_run: tuple[str, ...] = ()


def install(
    lock: Lock,
    prefix: str,
    platform: str,
    supply: Supply,
    *,
    categories: Collection[str] = ("main",),
    allow_build: bool = False,
    progress: Progress | None = None,
) -> Installed:
    """Make `prefix` the environment that a lock describes for one platform.

    Args:
        lock: what is wanted.
        prefix: a folder; an environment that is there is replaced as a whole.
        platform: one that the lock has.
        supply: where the files come from.
        categories: whose packages are installed.
        allow_build: whether pip packages without a wheel may be built, which runs their code.
        progress: is told of each package.

    Raises:
        UsageError: the lock has no such platform, or `prefix` must not be replaced.
        InputError: a file is not what the lock says.
        NeededError: a file cannot be had, or the prefix cannot be written.
    """
    conda, pip = wanted_packages(lock, platform, categories)
    with replacement(prefix) as (fresh, target):
        archives = _fetched(conda, supply, progress)
        scripts = _link(conda, archives, fresh, target, platform, progress)
        if pip:
            if progress is not None:
                progress.begin("pip", 1)
            install_distributions(pip, fresh, target, supply=supply, allow_build=allow_build)
    return Installed(target, len(conda), len(pip), tuple(scripts))


def wanted_packages(
    lock: Lock, platform: str, categories: Collection[str]
) -> tuple[tuple[LockedPackage, ...], tuple[LockedPackage, ...]]:
    """The conda and the pip packages of one platform.

    Raises:
        UsageError: the lock has no such platform or category, or nothing of it for that platform.
    """
    if platform not in lock.platforms or not lock.of(platform, None):
        others = ", ".join(each for each in lock.platforms if each != platform)
        raise UsageError(
            f"the lock has no packages for {platform}",
            where=lock.path,
            next_step=f"It has {others or 'none at all'}. Lock with -p {platform} to add it.",
        )
    lock.check_has(platform, categories)
    return lock.of(platform, categories, "conda"), lock.of(platform, categories, "pip")


def _fetched(packages: Sequence[LockedPackage], supply: Supply, progress: Progress | None) -> list[str]:
    """The checked archives of some packages, in their order."""
    files = [wanted(package, supply.addresses(package)) for package in packages]
    paths = fetch_all(files, supply.cache, opener=supply.opener, offline=supply.offline, progress=progress)
    return [paths[file] for file in files]


def _link(
    packages: Sequence[LockedPackage],
    archives: Sequence[str],
    fresh: str,
    target: str,
    platform: str,
    progress: Progress | None,
) -> list[str]:
    """Put archives into the fresh prefix; gives the packages whose scripts were not run."""
    if progress is not None:
        progress.begin("link", len(packages))
    job = {
        "prefix": fresh,
        "final": target,
        "platform": platform,
        "extracted": os.path.join(os.path.dirname(fresh), "extracted"),
        "packages": [
            {
                "path": os.path.abspath(path),
                "name": package.name,
                "version": package.version,
                "build": package.build,
                "url": package.url,
                "channel": package.channel,
                "md5": package.md5,
                "sha256": package.sha256,
            }
            for package, path in zip(packages, archives)
        ],
    }
    for line in child_lines("envaudit.lock.linking", job):
        if "linked" in line and progress is not None:
            progress.advance(line["linked"])
        if "fault" in line:
            raise _link_failure(line["fault"], target)
        if "done" in line:
            return list(line["done"])
    raise NeededError("the installer ended without a word", where=target, next_step="Run it again.")


def _link_failure(text: str, target: str) -> Exception:
    if "No space left" in text or "os error 28" in text:
        return NeededError(
            "no space is left", where=target, next_step="Free space there, or name another --prefix."
        )
    if text.startswith("Misplaced"):
        return InputError(
            "the files of a package would not stay in the environment",
            why=text.partition(": ")[2],
            next_step="Do not use it, and tell whoever runs its channel.",
        )
    if text.startswith("ValueError"):
        return InputError(text.partition(": ")[2], next_step="The lock contradicts itself: lock again.")
    return NeededError("a package could not be installed", where=target, why=" ".join(text.split())[:500])


def child_lines(module: str, job: object) -> Iterator[dict[str, Any]]:
    """What the `main` of a module answers to a job, line by line, from a process of its own.

    Nothing where it ends before; the process is ended when nobody reads on.
    """
    path = json.dumps([entry for entry in sys.path if entry])
    argv = [sys.executable, "-I", "-B", "-c", _CHILD.format(module=module), path]
    # A child that ends before it has read its job, by a library that cannot be loaded, answers nothing.
    with suppress(BrokenPipeError), subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd="/"
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            for line in process.stdout:
                try:
                    answer = json.loads(line)
                except ValueError:
                    continue  # a library's own words on standard output
                if isinstance(answer, dict):
                    yield answer
        finally:
            process.kill()
