"""`envaudit install`: an environment from a lock, whole or not at all."""

from __future__ import annotations

import argparse

from envaudit.cli.locks import (
    add_lock_options,
    add_supply_options,
    categories_of,
    platform_here,
    supply_of,
)
from envaudit.cli.phases import shown_phases
from envaudit.cli.stdout import write
from envaudit.lock.install import Installed, install
from envaudit.lock.lockfile import read_lock


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `envaudit install`."""
    parser.add_argument("lock", metavar="LOCK", help="a conda-lock.yml")
    group = parser.add_argument_group("what is installed, and where")
    group.add_argument(
        "--prefix", metavar="DIR", required=True, help="the environment; one that is there is replaced"
    )
    add_lock_options(group)
    group.add_argument(
        "--allow-build",
        action="store_true",
        help="build pip packages that have no wheel, which runs their code",
    )
    add_supply_options(parser.add_argument_group("where the packages come from"))


def execute(options: argparse.Namespace) -> int:
    """Fetch, check, link, put in place."""
    lock = read_lock(options.lock)
    platform = platform_here(options)
    supply = supply_of(lock, options)
    with shown_phases() as progress:
        done = install(
            lock,
            options.prefix,
            platform,
            supply,
            categories=categories_of(options),
            allow_build=options.allow_build,
            progress=progress,
        )
    write(_said(done))
    return 0


def _said(done: Installed) -> str:
    pip = f" and {done.pip} pip" if done.pip else ""
    text = f"installed {done.conda} conda{pip} packages into {done.prefix}, every file checked by hash\n"
    if done.scripts_not_run:
        text += f"post-link scripts were not run: {', '.join(done.scripts_not_run)}\n"
    return text
