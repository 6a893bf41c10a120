"""`envaudit gate`: one command before every launch: from outside, in the launch itself, or in a prolog."""

from __future__ import annotations

import argparse
import importlib
import os
import re
from typing import Any, Optional

from envaudit.cli import asking, seat
from envaudit.cli.checkoptions import add_check_options
from envaudit.cli.loading import add_store_option
from envaudit.cli.output import add_output_options
from envaudit.cli.selection import add_node_options
from envaudit.errors import UsageError
from envaudit.model.finding import THRESHOLDS

_MAX_NODES = 100_000


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `envaudit gate`."""
    add_node_options(parser)
    group = parser.add_argument_group("what the nodes are held to")
    group.add_argument(
        "--stored", action="store_true", help="the nodes' newest stored snapshots, not the nodes"
    )
    group.add_argument("--lock", metavar="FILE", help="is it fresh, and is every node as it says?")
    group.add_argument("--platform", metavar="P", help="of the lock, such as linux-64; default: each node's")
    group.add_argument(
        "--category",
        action="append",
        default=[],
        metavar="NAME",
        help="of its packages, beside main; repeatable",
    )
    asking.add_integrity_options(group, ("none", "size", "hash"))
    group.add_argument(
        "--baseline", metavar="REF", help="a tag that every node has, or one node (node01@good, a.json)"
    )
    add_check_options(parser)
    group = parser.add_argument_group("what is judged")
    group.add_argument("--no-check", action="store_true", help="nothing is run: no kernels, no collectives")
    group.add_argument(
        "--policy", metavar="FILE", help="judge by this file alone, whatever envaudit.toml says"
    )
    group.add_argument("--fail-on", choices=tuple(THRESHOLDS), help="default: error")
    group.add_argument(
        "--require",
        action="append",
        default=[],
        metavar="SECTION",
        help="without it a node is incomplete; its subject has to be there",
    )
    group.add_argument(
        "--allow-missing",
        type=_nodes,
        default=0,
        metavar="N",
        help="go on without up to N nodes that do not answer; they are told, and are never good",
    )
    _add_next_options(parser)
    add_store_option(group)
    add_output_options(parser)


def _add_next_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what comes of it")
    group.add_argument(
        "--good-nodes",
        type=_file,
        metavar="FILE",
        help="write the nodes that answered and have no finding",
    )
    group.add_argument(
        "--bad-nodes", type=_file, metavar="FILE", help="write the others: srun -x $(cat FILE)"
    )
    group.add_argument(
        "--suggest", choices=("slurm", "kubectl"), help="print commands that take bad nodes out; none is run"
    )
    group.add_argument(
        "--verdict-file",
        type=_file,
        metavar="FILE",
        help="write the last line there, before any rank leaves",
    )
    group.add_argument(
        "--prolog",
        action="store_true",
        help="this node alone, without torch or network, in 8 s: for a Slurm prolog or an init container",
    )


def execute(options: argparse.Namespace) -> int:
    """Go to the form that this is: a prolog, a rank of a launch, or a look from outside.

    Raises:
        UsageError: options that exclude each other.
    """
    if options.no_check and options.only:
        raise UsageError("--no-check and --only exclude each other")
    # `main` has gone to `cli/prolog` already, where nothing but a fault may end with another code than 0.
    assert not options.prolog
    in_band = _in_band(options)
    if in_band is not None or asking.is_one_file():
        return int(_form("inbandgate").execute(options, in_band))
    return int(_form("controllergate").execute(options))


def _in_band(options: argparse.Namespace) -> Optional[seat.InBand]:
    """The place in a launch that the environment gives; None outside of one, or where nodes are named."""
    if options.nodes or options.hostfile or options.all or options.stored:
        return None
    return seat.seat_of_environment(os.environ, options)


def _form(name: str) -> Any:
    # By name: the one-file form does not carry what asks other nodes, and need not.
    return importlib.import_module(f"envaudit.cli.{name}")


def _file(text: str) -> str:
    # A variable that is not set: who waits for the file would find none, or an old one.
    if not text:
        raise argparse.ArgumentTypeError("expected a file, got ''")
    return text


def _nodes(text: str) -> int:
    value = int(text) if re.match(r"\d{1,6}\Z", text, re.ASCII) else -1
    if not 0 <= value <= _MAX_NODES:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 to {_MAX_NODES}, got '{text}'")
    return value
