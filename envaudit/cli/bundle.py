"""`envaudit bundle -o envaudit.pyz`: the one-file form, with what it is to expect compiled in."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from envaudit.cli import compiled
from envaudit.cli.loading import add_store_option
from envaudit.cli.stdout import write
from envaudit.report.screen import printable
from envaudit.store import atomic_write
from envaudit.transport.bundle import build_bundle


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `envaudit bundle`."""
    parser.add_argument(
        "-o", "--output", default="envaudit.pyz", metavar="FILE", help="default: envaudit.pyz"
    )
    group = parser.add_argument_group("what `gate` in it holds nodes to, for it reads no TOML and no YAML")
    group.add_argument("--lock", metavar="FILE", help="what every node must have")
    group.add_argument(
        "--category",
        action="append",
        default=[],
        metavar="NAME",
        help="of its packages, beside main; repeatable",
    )
    group.add_argument(
        "--baseline", metavar="REF", help="a tag with all nodes that have it, node[01-16]@good, a.json"
    )
    group.add_argument("--policy", metavar="FILE", help="judge by this file alone")
    add_store_option(group)


def execute(options: argparse.Namespace) -> int:
    """Write the zip, executable, and say what is in it.

    Raises:
        InputError: a lock, a baseline or a policy that cannot be read; nothing is written.
        UsageError: one that cannot be used.
    """
    parts = _parts(options)
    data = build_bundle(parts)
    atomic_write(options.output, data, mode=0o755)  # a program, for everyone to run
    told = ", ".join(printable(words) for words in _words(options)) or "no lock, no baseline, no policy"
    command = "gate" if parts else "snapshot"
    path = printable(options.output)
    write(f"{path}: {len(data)} bytes, {told}; python {path} {command}\n")
    return 0


def _parts(options: argparse.Namespace) -> Mapping[str, bytes]:
    """Path in the package to content."""
    if not (options.lock or options.baseline or options.policy):
        return {}
    from envaudit.cli import compiling

    parts = {}
    if options.lock:
        categories = tuple(dict.fromkeys(("main", *options.category)))
        parts[compiled.EXPECTED] = compiling.compile_lock(options.lock, categories)
    if options.baseline:
        parts[compiled.BASELINE] = compiling.compile_baseline(options.baseline, options)
    if options.policy:
        parts[compiled.POLICY] = compiling.compile_policy(options.policy)
    return parts


def _words(options: argparse.Namespace) -> list[str]:
    named = {"lock": options.lock, "baseline": options.baseline, "policy": options.policy}
    return [f"{name} {value}" for name, value in named.items() if value]
