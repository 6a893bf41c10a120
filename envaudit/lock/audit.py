"""A lock as the Section `lockfile`: what the rules of `envaudit.rules.lockfile` judge.

It is made of the bytes that will be written, read back, and of the sources; whether a version
satisfies a spec is asked of conda's own code (the copy inside conda-lock), a second opinion on what
the solver said.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import unquote, urlsplit

from envaudit.lock.credentials import cleaned, credential_in
from envaudit.lock.entries import Entry
from envaudit.lock.gpubuilds import (
    CPU,
    FRAMEWORKS,
    built_for,
    requests,
    toolkit_version,
    unused_cudatoolkit,
    variant_of,
)
from envaudit.lock.inputs import Inputs
from envaudit.lock.lockfile import Lock, LockedPackage
from envaudit.lock.names import TABLE, normalised, provided
from envaudit.lock.pipconfig import tokens_of_indexes
from envaudit.lock.sourcefile import SourceFile
from envaudit.model.canonical import Fact
from envaudit.model.section import Section

NAME = "lockfile"
SCHEMA = 1

# A pip entry of these kinds names a distribution; the rest are options and paths.
_NAMING = ("pip", "pip_url", "pip_git")


def lock_section(lock: Lock, sources: Sequence[SourceFile] = (), *, table: str = TABLE) -> Section:
    """The facts of a lock, held against its sources where they are given."""
    recorded = Inputs.from_custom(lock.custom)
    platforms: dict[str, Fact] = {}
    for platform in lock.platforms:
        packages = lock.of(platform, categories=None)
        entries = [entry for source in sources for entry in source.entries(platform)]
        assumed = recorded.virtual.get(platform, ()) if recorded else ()
        platforms[platform] = _platform(packages, entries, assumed, table)
    facts: dict[str, Fact] = {
        "path": lock.path,
        "platforms": platforms,
        "credentials": list(_credentials(lock)),
        "has_sources": bool(sources),
    }
    return Section(NAME, SCHEMA, "ok", facts)


def _platform(
    packages: Sequence[LockedPackage], entries: Sequence[Entry], assumed: Sequence[str], table: str
) -> dict[str, Fact]:
    gpu, cpu = requests(entries)
    conda = {package.name: package for package in packages if package.manager == "conda"}
    pip = {normalised(package.name): package for package in packages if package.manager == "pip"}
    given = provided(((each.name, each.version, each.dependencies) for each in conda.values()), table)
    return {
        "packages": len(packages),
        "unsatisfied": [*_unsatisfied_conda(entries, conda), *_unsatisfied_pip(entries, pip, given)],
        "open": [*_open_conda(conda), *_open_pip(pip, given)],
        "cuda": [*_cuda(packages)],
        "frameworks": [
            {"name": each.name, "version": each.version, "build": each.build, "variant": variant_of(each)}
            for each in packages
            if each.name in FRAMEWORKS or each.name in ("pytorch-mutex", "cpuonly")
        ],
        "asks_cuda": [_place(entry) for entry in gpu],
        "asks_cpu": [_place(entry) for entry in cpu],
        "assumes_cuda": next((text.split("=")[1] for text in assumed if text.startswith("__cuda=")), None),
        "unused": [each.version for each in unused_cudatoolkit(packages)],
        "without_hash": [_named(each) for each in packages if not _is_pinned(each)],
        "foreign": [
            {"name": each.name, "subdir": each.subdir}
            for each in conda.values()
            if each.subdir not in (each.platform, "noarch")
        ],
        "both": [
            {"distribution": name, "conda": given[name], "pip": package.version}
            for name, package in sorted(pip.items())
            if name in given
        ],
        "not_locked": [_place(entry) for entry in entries if entry.kind == "pip_path"],
    }


def _unsatisfied_conda(entries: Sequence[Entry], locked: dict[str, LockedPackage]) -> Iterator[Fact]:
    from conda_lock._vendor.conda.models.match_spec import MatchSpec

    for entry in entries:
        # A virtual package is a fact of the machine: the solver has met it, and no lock holds it.
        if entry.kind != "conda" or entry.key.startswith("__"):
            continue
        package = locked.get(entry.key)
        if package is None:
            yield {**_place(entry), "locked": None}
            continue
        if entry.url:
            if _file(package.url) != _file(entry.url):
                yield {**_place(entry), "locked": _file(package.url)}
            continue
        spec = MatchSpec(name=entry.key, **_constraints(entry))
        if not spec.match(_record(package)) or not _is_of(package, entry.channel):
            yield {**_place(entry), "locked": f"{package.version} {package.build}"}


def _file(url: str) -> str:
    """`linux-64/numpy-1.26.4-0` of a package's address: both forms of a package are the same."""
    path = unquote(urlsplit(url).path).removesuffix(".conda").removesuffix(".tar.bz2")
    return "/".join(path.split("/")[-2:])


def _constraints(entry: Entry) -> dict[str, str]:
    """Version and build as conda's keyword form has them: `=1.0` alone is `1.0.*` there.

    `==1.0.*`, as pip writes it, means the same to mamba and to the solver; conda drops the `.*`.
    """
    found = {}
    version = re.sub(r"==([^,|]+\.\*)", r"\1", "".join(entry.version.split()))
    if re.match(r"=[^=,|]+\Z", version):
        version = version[1:] if version.endswith("*") or entry.build else f"{version[1:]}.*"
    if version and version != "*":
        found["version"] = version
    if entry.build and entry.build != "*":
        found["build"] = entry.build
    return found


def _record(package: LockedPackage) -> dict[str, Any]:
    return {"name": package.name, "version": package.version, "build": package.build, "build_number": 0}


def _is_of(package: LockedPackage, channel: str) -> bool:
    """Whether a package lies in the channel of `channel::name`; a group's name cannot be told here."""
    if not channel or channel == "defaults" or "$" in channel:
        return True
    # A subdir may stand in the place of the channel's last part: `conda-forge/linux-64::zlib`.
    place = channel.rstrip("/").removesuffix(f"/{package.subdir}")
    return package.channel == place or package.channel.endswith(f"/{place}")


def _unsatisfied_pip(
    entries: Sequence[Entry], pip: dict[str, LockedPackage], given: dict[str, str]
) -> Iterator[Fact]:
    from packaging.specifiers import SpecifierSet

    # Of all lines of one name: which of them counts, its marker decides.
    demanded: dict[str, list[str]] = {}
    for entry in entries:
        for text in entry.hashes:
            if text.startswith("sha256:"):
                demanded.setdefault(entry.key, []).append(text[len("sha256:") :].lower())
    for entry in entries:
        if entry.kind not in _NAMING or not entry.key:
            continue
        package = pip.get(entry.key)
        digests = demanded.get(entry.key)
        if digests and package and package.sha256 and package.sha256.lower() not in digests:
            yield {**_place(entry), "locked": f"{package.version} of sha256 {package.sha256}"}
            continue
        if entry.marker:
            continue
        version = package.version if package else given.get(entry.key)
        if version is None:
            yield {**_place(entry), "locked": None}
            continue
        try:
            fits = entry.kind != "pip" or SpecifierSet(entry.version).contains(version, prereleases=True)
        except ValueError:
            continue  # a conda version such as 2023c: the resolver has judged it
        if not fits:
            yield {**_place(entry), "locked": version}


def _open_conda(locked: dict[str, LockedPackage]) -> Iterator[Fact]:
    for package in locked.values():
        for name, wanted in package.dependencies.items():
            if name.startswith("__"):
                continue  # a virtual package: a fact of the machine
            other = locked.get(name)
            if other is None:
                yield {"package": package.name, "needs": name, "locked": None}
            elif wanted not in ("", "*") and not _fits(wanted, other):
                yield {"package": package.name, "needs": f"{name} {wanted}", "locked": other.version}


def _fits(wanted: str, package: LockedPackage) -> bool:
    """Whether a package has the version, and the build where one is given: `0.1 conda_forge`."""
    from conda_lock._vendor.conda.models.version import VersionSpec

    version, _, build = wanted.partition(" ")
    try:
        fits = bool(VersionSpec(version).match(package.version))
    except ValueError:  # no version, or one with a number longer than Python reads
        return False
    return fits and (not build or fnmatchcase(package.build, build))


def _open_pip(pip: dict[str, LockedPackage], given: dict[str, str]) -> Iterator[Fact]:
    from packaging.specifiers import SpecifierSet

    for package in pip.values():
        for name, wanted in package.dependencies.items():
            key = normalised(name)
            version = pip[key].version if key in pip else given.get(key)
            if version is None:
                yield {"package": package.name, "needs": name, "locked": None}
                continue
            try:
                fits = wanted == "*" or SpecifierSet(wanted).contains(version, prereleases=True)
            except ValueError:
                continue  # `>=2,<3 || >=4` of another resolver
            if not fits:
                yield {"package": package.name, "needs": f"{name} {wanted}", "locked": version}


def _cuda(packages: Sequence[LockedPackage]) -> Iterator[Fact]:
    for package in packages:
        toolkit, built = toolkit_version(package), built_for(package)
        if toolkit is not None:
            yield {**_named(package), "cuda": toolkit, "by": "version"}
        elif built is not None and variant_of(package) != CPU:
            yield {**_named(package), "cuda": built, "by": "build"}


def _is_pinned(package: LockedPackage) -> bool:
    """Whether what will be installed is known to the byte: a hash, or a repository's commit."""
    commit = package.url.split("#")[0].rpartition("@")[2]
    return bool(package.md5 or package.sha256) or (
        package.url.startswith("git+") and re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", commit) is not None
    )


def _credentials(lock: Lock) -> Iterator[Fact]:
    """Where a literal credential stands, never what it is."""
    for index, channel in enumerate(lock.channels):
        kind = credential_in(channel.url)
        if kind:
            yield {"where": f"metadata.channels[{index}]", "kind": kind}
    tokens = tokens_of_indexes(os.environ)
    for package in lock.packages:
        kind = credential_in(package.url)
        if package.manager == "pip" and any(f"/{token}/" in package.url for token in tokens):
            kind = "the token of your package index"
        if kind:
            yield {"where": f"the URL of {package.name} ({package.platform})", "kind": kind}


def _named(package: LockedPackage) -> dict[str, Fact]:
    return {
        "name": package.name,
        "version": package.version,
        "build": package.build,
        "manager": package.manager,
    }


def _place(entry: Entry) -> dict[str, Fact]:
    return {"text": cleaned(entry.text), "path": entry.path, "line": entry.line, "column": entry.column}
