"""`envaudit export`: a lock, or a snapshot of a past good run, as something that rebuilds it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from envaudit.cli import references
from envaudit.cli.loading import add_store_option, load
from envaudit.cli.locks import add_lock_options, categories_of, platform_here
from envaudit.cli.selection import add_transport_options
from envaudit.cli.stdout import write
from envaudit.errors import EnvauditError, NeededError, UsageError
from envaudit.lock.export import FORMATS, NEED_FILES, Environment, of_fingerprint, of_lock, with_files
from envaudit.lock.lockfile import LockedPackage, read_lock
from envaudit.lock.pip import PipConflictError, PipRequest, resolve_pip
from envaudit.store import atomic_write

_LOCKS = (".yml", ".yaml", ".lock")


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `envaudit export`."""
    parser.add_argument(
        "reference", metavar="LOCK|SNAPSHOT", help="a conda-lock.yml, NODE@TAG, or a snapshot file"
    )
    parser.add_argument("--as", dest="form", required=True, choices=tuple(FORMATS), help="what is written")
    parser.add_argument("--node", metavar="NAME", help="which node of a snapshot file")
    add_lock_options(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="write this file (default: standard output)")
    parser.add_argument("--stored", action="store_true", help="the newest stored snapshot of the node")
    add_store_option(parser)
    add_transport_options(parser)


def execute(options: argparse.Namespace) -> int:
    """Read, fill in what the format needs, write."""
    environment = _environment(options)
    if options.form in NEED_FILES:
        environment = with_files(environment, _resolved, options.form)
    text = FORMATS[options.form](environment)
    if options.output and options.output != "-":
        atomic_write(options.output, text.encode())
    else:
        write(text)
    return 0


def _environment(options: argparse.Namespace) -> Environment:
    if options.reference.endswith(_LOCKS):
        lock = read_lock(options.reference)
        platform = options.platform or _only(lock.platforms) or platform_here(options)
        return of_lock(lock, platform, categories_of(options))
    options.section = ["conda", "host", "packages", "python"]
    (loaded,) = load([references.parse(options.reference)], options)
    names = list(loaded.fingerprints)
    chosen = options.node or _only(names)
    if chosen is None or chosen not in loaded.fingerprints:
        raise UsageError(
            f"which node of {options.reference} is meant?" if chosen is None else f"no answer of '{chosen}'",
            next_step=f"Name one with --node: {', '.join(names) or 'none has answered'}.",
        )
    return of_fingerprint(loaded.fingerprints[chosen], options.platform)


def _only(names: Sequence[str]) -> str | None:
    return names[0] if len(names) == 1 else None


def _resolved(lines: Sequence[str], python: str, platform: str) -> Sequence[LockedPackage]:
    """The files of pinned distributions, as the index has them for that platform."""
    try:
        found = resolve_pip(PipRequest(platform=platform, python=python, requirements=tuple(lines)))
    except PipConflictError as error:
        raise _not_on_index(error, lines) from None
    pinned = {line.partition("==")[0].partition(" @ ")[0] for line in lines}
    return [
        LockedPackage(
            name=package.name,
            version=package.version,
            manager="pip",
            platform=platform,
            url=package.url,
            sha256=package.sha256,
            dependencies=dict.fromkeys(package.dependencies, "*"),
            source_url=package.url if package.is_direct else None,
        )
        for package in found
        if package.name in pinned
    ]


def _not_on_index(error: PipConflictError, lines: Sequence[str]) -> EnvauditError:
    advice = "Export with --as environment, and relax those pins."
    if any("+" in line.partition("==")[2] for line in lines):
        advice = (
            "A version with a + (torch 2.5.1+cu121) is mostly on an index of its own: name that one with "
            "the variable UV_INDEX, and export again."
        )
    return NeededError(
        "the index does not have the pip packages of this environment",
        why=error.explanation,
        next_step=error.hint or advice,
    )
