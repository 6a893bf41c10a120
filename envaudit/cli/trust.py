"""`envaudit trust`: honour the executing keys of this folder's configuration until it changes."""

from __future__ import annotations

import argparse
import os

from envaudit.cli import configuration, trusted
from envaudit.cli.stdout import write
from envaudit.errors import UsageError
from envaudit.report.screen import printable


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `envaudit trust`."""
    parser.add_argument(
        "file", nargs="?", metavar="FILE", help="default: the envaudit.toml found upward from here"
    )
    parser.add_argument("--remove", action="store_true", help="trust the file no longer")


def execute(options: argparse.Namespace) -> int:
    """Record the file's path and sha256, and print what it may now run."""
    path = options.file or configuration.discover(os.getcwd())
    if path is None:
        raise UsageError(
            "there is no envaudit.toml here or above",
            next_step="Name the file: envaudit trust FILE.",
        )
    if options.remove:
        known = trusted.distrust(path)
        write(f"{printable(path)}: {'no longer trusted' if known else 'was not trusted'}\n")
        return 0
    data = configuration.read_bytes(path)
    keys = configuration.executing_keys(configuration.parse_table(path, data))
    digest = trusted.trust(path, data)
    write(f"{printable(path)}: trusted as sha256 {digest}, until it changes\n")
    for key in keys:
        write(f"  {printable(key)}\n")
    if not keys:
        write("  it has no key that executes something\n")
    return 0
