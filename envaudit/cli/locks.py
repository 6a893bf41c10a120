"""What the commands that work from a lock share: its options, and where its packages come from."""

from __future__ import annotations

import argparse
import os

from envaudit.errors import UsageError
from envaudit.lock.install import Supply
from envaudit.lock.lockfile import Lock
from envaudit.model.locked import PLATFORMS


def add_lock_options(parser: argparse._ActionsContainer) -> None:
    """`--platform`, `--category`."""
    parser.add_argument("--platform", metavar="P", help="such as linux-64; default: this machine's")
    parser.add_argument(
        "--category",
        action="append",
        default=[],
        metavar="NAME",
        help="of packages, beside main; repeatable",
    )


def add_supply_options(parser: argparse._ActionsContainer) -> None:
    """`--offline`, `--mirror`, `--cache`, `--variable`."""
    parser.add_argument("--offline", action="store_true", help="take nothing from the network")
    parser.add_argument(
        "--mirror", metavar="DIR", help="take packages from a folder made by 'envaudit mirror'"
    )
    parser.add_argument(
        "--cache", metavar="DIR", help="of package files (default: $XDG_CACHE_HOME/envaudit/packages)"
    )
    parser.add_argument(
        "--variable",
        action="append",
        default=[],
        metavar="NAME",
        help="may go to any host that the lock writes it for; repeatable (default: hosts of your .condarc)",
    )


def categories_of(options: argparse.Namespace) -> tuple[str, ...]:
    """`main` and what `--category` names."""
    return tuple(dict.fromkeys(("main", *options.category)))


def platform_here(options: argparse.Namespace) -> str:
    """`--platform`, else that of this machine.

    Raises:
        UsageError: this machine's is not known.
    """
    if options.platform:
        return str(options.platform)
    machine = os.uname()
    found = PLATFORMS.get(machine.machine) if machine.sysname == "Linux" else None
    if machine.sysname == "Darwin":
        found = "osx-arm64" if machine.machine == "arm64" else "osx-64"
    if found is None:
        raise UsageError(
            f"no conda platform is known for {machine.sysname} on {machine.machine}",
            next_step="Name one with --platform.",
        )
    return found


def supply_of(lock: Lock, options: argparse.Namespace) -> Supply:
    """Where this user's settings, and the options, take the files of a lock from.

    Raises:
        UsageError: a setting that cannot be used, or a `--mirror` that is none.
    """
    from envaudit.lock.addresses import addresses_of
    from envaudit.lock.condarc import read_settings
    from envaudit.lock.fetch import default_cache
    from envaudit.lock.netauth import login_of
    from envaudit.lock.opener import Opener

    settings = read_settings()
    opener = Opener(
        ssl_verify=settings.ssl_verify,
        proxies=settings.proxy_servers,
        attempts=settings.remote_max_retries + 1,
        logins=login_of,
    )
    addresses = addresses_of(lock, settings, mirror=options.mirror, variables=options.variable)
    return Supply(addresses, options.cache or default_cache(), opener, options.offline)
