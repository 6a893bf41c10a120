"""`envaudit lock`: an environment.yml to a conda-lock.yml that was audited, without conda."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import NamedTuple

from envaudit._version import __version__
from envaudit.cli import configuration
from envaudit.cli.configurationkeys import PRIORITIES
from envaudit.cli.judging import Judged, judged
from envaudit.cli.lint import in_reading_order, spoken, usual_files
from envaudit.cli.output import add_output_options, check_output_options, emit
from envaudit.cli.selection import add_config_option
from envaudit.errors import NeededError, UsageError
from envaudit.lock.envsection import section_of
from envaudit.lock.inputs import Inputs, platforms_of
from envaudit.lock.lockfile import Lock, read_lock
from envaudit.lock.names import table_path
from envaudit.lock.sourcefile import SourceFile, read_source
from envaudit.lock.virtual import VirtualPackages, virtual_packages
from envaudit.model import Finding, Fingerprint, Section
from envaudit.model.finding import THRESHOLDS, Verdict
from envaudit.report import Report, SetAside, Stage
from envaudit.rules import Evidence
from envaudit.store import atomic_write

DEFAULT_OUTPUT = "conda-lock.yml"
# What clusters run; conda-lock's own four defaults rarely all have a CUDA build.
DEFAULT_PLATFORMS = ("linux-64",)


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `envaudit lock`."""
    parser.add_argument(
        "sources",
        nargs="*",
        metavar="FILE",
        help="environment files (default: [lock] sources, environment.yml)",
    )
    parser.add_argument(
        "-p", "--platform", action="append", default=[], metavar="P", help="such as linux-64; repeatable"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help=f"the lock (default: {DEFAULT_OUTPUT})")
    group = parser.add_argument_group("what is done")
    group.add_argument("--check", action="store_true", help="is the lock fresh? no solve, no network")
    group.add_argument(
        "--update",
        action="append",
        default=[],
        metavar="NAME",
        help="move this package and what it forces, nothing else; repeatable",
    )
    group.add_argument("--force", action="store_true", help="write the lock although the audit found errors")
    group.add_argument("--fail-on", choices=tuple(THRESHOLDS), help="default: error")
    group = parser.add_argument_group("what is assumed")
    group.add_argument("--cuda", metavar="VERSION", help="of the nodes' driver, such as 12.4, or none")
    group.add_argument("--virtual-packages", metavar="FILE", help="in conda-lock's format")
    group.add_argument("--channel-priority", choices=PRIORITIES, help="default: of the .condarc")
    group.add_argument(
        "--names", metavar="FILE", help="conda and index names, instead of the table that ships"
    )
    group.add_argument("--offline", action="store_true", help="channel indexes from the cache alone")
    group.add_argument("--allow-build", action="store_true", help="let the pip part run source builds")
    add_config_option(parser)
    add_output_options(parser)


def execute(options: argparse.Namespace) -> int:
    """Make a lock, or tell whether one is fresh."""
    began = time.monotonic()
    check_output_options(options)
    settings = configuration.of(options).lock
    run = _Run(options, settings)
    told = run.check() if options.check else run.make()
    report = Report(
        command="lock",
        tool=__version__,
        verdict=told.verdict,
        findings=tuple(sorted(told.findings, key=in_reading_order)),
        about=run.about,
        outcome=told.outcome,
        comparing=False,
        stages=told.stages,
        set_aside=told.set_aside,
        elapsed_s=time.monotonic() - began,
        verbose=options.verbose,
    )
    emit(report, options)
    return told.verdict.exit_code


def freshness_of(path: str, settings: configuration.Lock) -> Section:
    """What `envaudit lock --check` looks at, of a conda-lock.yml: has anything changed since it was made?

    Its sources are those of the configuration, else those that it names itself.

    Raises:
        InputError: the lock, or a source of it, cannot be read.
        UsageError: a source that has faults, or none at all.
    """
    asked = argparse.Namespace(
        sources=[],
        output=path,
        names=None,
        platform=[],
        channel_priority=None,
        cuda=None,
        virtual_packages=None,
    )
    return _Run(asked, settings).freshness()


class _Told(NamedTuple):
    """What a run has to say; `outcome` is what a pass says."""

    findings: tuple[Finding, ...]
    verdict: Verdict
    stages: tuple[Stage, ...]
    outcome: str
    set_aside: tuple[SetAside, ...]


class _Run:
    """The options and the configuration together, and the two things that can be done."""

    def __init__(self, options: argparse.Namespace, settings: configuration.Lock) -> None:
        self.options = options
        self.settings = settings
        self.output = spoken(options.output or settings.output or DEFAULT_OUTPUT)
        self.table = table_path(options.names)
        self.about = self.output

    def check(self) -> _Told:
        """Freshness alone."""
        if self.options.update or self.options.force:
            raise UsageError("--check writes nothing: it goes with neither --update nor --force")
        findings, verdict, rests_on, aside = self._judged(self.freshness())
        return _Told(findings, verdict, rests_on, f"{self.output} is fresh", aside)

    def freshness(self) -> Section:
        """What has changed since the lock was made."""
        from envaudit.lock.freshness import freshness_section

        lock = read_lock(self.output)
        sources = self._sources(lock)
        for source in sources:
            source.check()
        virtual = self._virtual(None) if self._chooses_virtual() else None
        return freshness_section(
            lock,
            sources,
            platforms=self._named_platforms(),
            virtual=virtual,
            priority=self._priority() or "",
            table=self.table,
        )

    def make(self) -> _Told:
        """Judge the sources, solve, audit, write."""
        existing = read_lock(self.output) if self.options.update else None
        sources = self._sources(existing)
        envfile = section_of(sources)
        findings, verdict, rests_on, aside = self._judged(envfile)
        if any(finding.severity == "error" for finding in findings) and not self.options.force:
            self.about = ", ".join(source.path for source in sources)
            stages = (*rests_on, Stage("lock", f"not solved, {self._left()}"))
            return _Told(findings, verdict, stages, "", aside)
        for source in sources:
            source.check()
        _demand_writable(self.output, sources)
        return self._solve(sources, envfile, existing)

    def _solve(self, sources: tuple[SourceFile, ...], envfile: Section, existing: Lock | None) -> _Told:
        from envaudit.cli.solveprogress import shown_solve
        from envaudit.lock.condarc import read_settings
        from envaudit.lock.locking import make_lock
        from envaudit.lock.request import LockRequest

        request = LockRequest(
            sources=sources,
            path=self.output,
            platforms=self._platforms(sources, existing),
            settings=read_settings(),
            virtual=self._virtual(existing),
            priority=self._priority(),
            table=self.table,
            offline=self.options.offline,
            allow_build=self.options.allow_build,
            existing=existing,
            update=frozenset(self.options.update),
        )
        began = time.monotonic()
        with shown_solve(request.platforms) as progress:
            made = make_lock(request, progress)
        findings, verdict, rests_on, aside = self._judged(envfile, *made.sections)
        solved = ", ".join(_counted(platform, *counts) for platform, counts in made.counts.items())
        stages = [*rests_on, Stage("solve", solved or "no solution", time.monotonic() - began)]
        failed = any(finding.severity == "error" for finding in findings)
        if made.data is None or (failed and not self.options.force):
            stages.append(Stage("lock", self._left()))
            return _Told(findings, verdict, tuple(stages), "", aside)
        unchanged = _holds(self.output, made.data)
        if not unchanged:
            atomic_write(self.output, made.data)
        written = "is as it was" if unchanged else "written"
        if verdict.failed:
            stages.append(Stage("lock", f"{self.output} {written}" + (" (--force)" if failed else "")))
        return _Told(findings, verdict, tuple(stages), f"{self.output} {written}: {solved}", aside)

    def _judged(self, *sections: Section) -> Judged:
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        fingerprint = Fingerprint("", "lock", now, __version__, {each.name: each for each in sections})
        return judged(Evidence((fingerprint,), comparing=False), self.options)

    def _left(self) -> str:
        return f"{self.output} left as it was" if os.path.exists(self.output) else f"no {self.output} written"

    def _sources(self, lock: Lock | None) -> tuple[SourceFile, ...]:
        """Named on the command line, else in the configuration, else by the lock, else the usual file."""
        paths: Sequence[str] = self.options.sources or self.settings.sources
        if not paths and lock is not None:
            paths = lock.source_paths()
        named = bool(self.options.sources)
        return tuple(read_source(spoken(path), named=named) for path in paths or usual_files())

    def _named_platforms(self) -> tuple[str, ...]:
        """Those of the command line, else of the configuration."""
        return tuple(dict.fromkeys(self.options.platform or self.settings.platforms))

    def _platforms(self, sources: Sequence[SourceFile], lock: Lock | None) -> tuple[str, ...]:
        """Those of the lock to update, else those that are named, else of the sources.

        Raises:
            UsageError: an update for other platforms than the lock's, or from other channels.
        """
        named = self._named_platforms()
        if lock is None:
            return named or platforms_of(sources) or DEFAULT_PLATFORMS
        channels = {each.text for source in sources for each in source.channels} - {"nodefaults"}
        others = sorted(channels ^ ({each.url for each in lock.channels} - {"nodefaults"}))
        if (named and set(named) != set(lock.platforms)) or (others and not _have_variables(lock)):
            what = f"channels: {', '.join(others)}" if others else f"platforms: {', '.join(lock.platforms)}"
            raise UsageError(
                "--update moves packages, not what the lock is for",
                where=self.output,
                why=what,
                next_step="Run 'envaudit lock' without --update.",
            )
        return lock.platforms

    def _priority(self) -> str | None:
        return self.options.channel_priority or self.settings.channel_priority

    def _chooses_virtual(self) -> bool:
        return bool(self.options.cuda or self.options.virtual_packages or self.settings.virtual_packages)

    def _virtual(self, lock: Lock | None) -> VirtualPackages:
        """What the options say, else the configuration, else what the lock to update was made with."""
        path = self.options.virtual_packages
        if path is None and self.options.cuda is None:
            path = self.settings.virtual_packages
        recorded = Inputs.from_custom(lock.custom) if lock is not None else None
        cuda = self.options.cuda
        if path is not None or cuda is not None or recorded is None:
            return virtual_packages(cuda=cuda, path=path)
        virtual = virtual_packages(cuda=recorded.cuda)
        for platform, packages in recorded.virtual.items():
            if packages != tuple(map(str, virtual.of(platform))):
                raise UsageError(
                    "the lock was made for virtual packages of a file",
                    where=self.output,
                    next_step="Give the file again with --virtual-packages, or name it under [lock].",
                )
        return virtual


def _have_variables(lock: Lock) -> bool:
    """Whether a channel is written with `${VARIABLE}`s, where source and lock spell it differently."""
    return any(channel.used_env_vars or "$" in channel.url for channel in lock.channels)


def _counted(platform: str, conda: int, pip: int) -> str:
    return f"{platform} {conda} conda" + (f" and {pip} pip packages" if pip else " packages")


def _holds(path: str, data: bytes) -> bool:
    if not os.path.isfile(path):  # a pipe or terminal, such as /dev/stdout, would be waited for
        return False
    try:
        with open(path, "rb") as file:
            return file.read(len(data) + 1) == data
    except OSError:
        return False


def _demand_writable(path: str, sources: Sequence[SourceFile]) -> None:
    """Before the solve, not after it.

    Raises:
        UsageError: a source would be written over.
        NeededError: the folder does not exist or cannot be written.
    """
    if any(os.path.realpath(path) == os.path.realpath(source.path) for source in sources):
        raise UsageError("the lock would be written over its source", where=path)
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise NeededError(
            "there is no such folder", where=folder, next_step="Create it, or choose another --output."
        )
    if os.path.isdir(path) or not os.access(folder, os.W_OK):
        raise NeededError("cannot be written", where=path, next_step="Choose another --output.")
