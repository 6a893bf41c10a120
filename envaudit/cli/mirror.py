"""`envaudit mirror`: every package of a lock in a local channel, for clusters without a network."""

from __future__ import annotations

import argparse

from envaudit.cli.locks import add_supply_options, supply_of
from envaudit.cli.phases import shown_phases
from envaudit.cli.stdout import write
from envaudit.lock.lockfile import read_lock
from envaudit.lock.mirror import mirror


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `envaudit mirror`."""
    parser.add_argument("lock", metavar="LOCK", help="a conda-lock.yml")
    parser.add_argument("--to", metavar="DIR", required=True, help="an empty folder, or a mirror to add to")
    parser.add_argument(
        "-p",
        "--platform",
        action="append",
        default=[],
        metavar="P",
        help="of the lock; repeatable (default: all)",
    )
    add_supply_options(parser.add_argument_group("where the packages come from"))


def execute(options: argparse.Namespace) -> int:
    """Fetch what is not there yet, check all, index."""
    lock = read_lock(options.lock)
    supply = supply_of(lock, options)
    with shown_phases() as progress:
        done = mirror(lock, options.to, supply, platforms=options.platform, progress=progress)
    pip = f" and {done.pip} pip" if done.pip else ""
    write(
        f"{options.to} holds {done.conda} conda{pip} packages of {lock.path} "
        f"({done.size_bytes / 1e6:.1f} MB), {done.fetched} of them new\n"
        f"install from it without a network: "
        f"envaudit install {lock.path} --prefix DIR --offline --mirror {options.to}\n"
    )
    return 0
