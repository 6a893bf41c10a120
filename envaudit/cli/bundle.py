"""`envaudit bundle -o envaudit.pyz`: the one-file form."""

from __future__ import annotations

import argparse
import os
import sys

from envaudit.store import atomic_write
from envaudit.transport.bundle import build_bundle


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `envaudit bundle`."""
    parser.add_argument(
        "-o", "--output", default="envaudit.pyz", metavar="FILE", help="default: envaudit.pyz"
    )


def execute(options: argparse.Namespace) -> int:
    """Write the zip, executable."""
    data = build_bundle()
    atomic_write(options.output, data)
    os.chmod(options.output, 0o755)  # noqa: S103  a program, for everyone to run
    sys.stdout.write(f"{options.output}: {len(data)} bytes; python {options.output} snapshot\n")
    return 0
