"""Which nodes, by which transport, with which interpreter: the options that all commands share."""

from __future__ import annotations

import argparse
import os
import re
import shutil
from typing import TYPE_CHECKING, Dict, Mapping, Optional, Sequence, Tuple

from envaudit.cli import references
from envaudit.cli.thisnode import this_node
from envaudit.errors import InputError, NeededError, UsageError

if TYPE_CHECKING:
    from envaudit.cli.configuration import Configuration
    from envaudit.transport import Target, Transport

DEFAULT_PYTHON = "python3"
# PBS names a node once for each of its slots: 5,000 nodes of 128 have this much.
_MAX_HOSTFILE_CHARACTERS = 16 << 20


def add_node_options(parser: argparse.ArgumentParser) -> None:
    """The options that choose nodes and how they are reached."""
    group = parser.add_argument_group("which nodes (default: this machine)")
    group.add_argument(
        "--nodes", action=_Union, metavar="NODESET", help="nodes such as 'node[01-16]' or '@gpu'"
    )
    group.add_argument("--hostfile", metavar="FILE", help="an MPI or DeepSpeed host file")
    group.add_argument(
        "--all", action="store_true", help="the configured hosts, or the nodes of the Slurm or PBS allocation"
    )
    add_transport_options(parser)


def add_transport_options(parser: argparse.ArgumentParser) -> None:
    """The options that say how nodes are reached."""
    group = parser.add_argument_group("how they are reached")
    group.add_argument("--transport", choices=("ssh", "exec", "local"), help="default: ssh")
    group.add_argument("--python", metavar="PATH", help="the interpreter whose environment is read")
    group.add_argument("--workdir", metavar="DIR", help="the working directory on the node")
    group.add_argument("--timeout", type=_seconds, metavar="S", help="seconds per node (default: 60)")
    group.add_argument("--fanout", type=_fanout, metavar="N", help="nodes at a time (default: 64)")
    group.add_argument(
        "--every-node",
        action="store_true",
        help="read an environment on a network file system on each node, not on one for all",
    )
    add_config_option(parser)


class _Union(argparse.Action):
    """An option given twice means both node sets, as with clush -w; the last alone would be a surprise."""

    def __call__(
        self,
        parser: object,
        namespace: argparse.Namespace,
        values: object,
        option_string: Optional[str] = None,
    ) -> None:
        before = getattr(namespace, self.dest)
        setattr(namespace, self.dest, values if before is None else f"{before},{values}")


def add_config_option(parser: argparse.ArgumentParser) -> None:
    """`--config FILE`."""
    parser.add_argument("--config", metavar="FILE", help="instead of the envaudit.toml found upward")


def selected_nodes(options: argparse.Namespace, configuration: Configuration) -> Tuple[str, ...]:
    """The node names that the options choose; empty means this machine.

    Raises:
        UsageError: more than one way of choosing, or one that names no node.
    """
    ways = [way for way in ("nodes", "hostfile", "all") if getattr(options, way)]
    if len(ways) > 1:
        raise UsageError(f"--{ways[0]} and --{ways[1]} exclude each other")
    if options.nodes is not None:
        return references.expand(options.nodes)
    if options.hostfile is not None:
        return read_hostfile(options.hostfile)
    if options.all:
        return _all_nodes(configuration)
    return ()


def read_hostfile(path: str) -> Tuple[str, ...]:
    """The hosts of an MPI (`node01:8`, `node01 slots=8`) or DeepSpeed host file.

    Raises:
        InputError: the file cannot be read, or is too large to be one.
        UsageError: it names no host, or something that is none.
    """
    try:
        with open(path, encoding="utf-8-sig", errors="replace") as file:
            text = file.read(_MAX_HOSTFILE_CHARACTERS + 1)
    except OSError as error:
        raise InputError("cannot be read", where=path, why=error.strerror or str(error)) from None
    if len(text) > _MAX_HOSTFILE_CHARACTERS:
        raise InputError(f"larger than {_MAX_HOSTFILE_CHARACTERS} characters", where=path)
    lines = (line.split("#", 1)[0].split() for line in text.splitlines())
    names = dict.fromkeys(_without_slots(words[0]) for words in lines if words)
    if not names:
        raise UsageError("names no host", where=path)
    return references.expand(",".join(names))


def _without_slots(word: str) -> str:
    """The host of `node01:8`; an IPv6 address is full of colons, and takes slots in brackets only."""
    bracketed = re.match(r"\[([0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)\](?::\d+)?\Z", word)
    if bracketed:
        return bracketed[1]
    return re.sub(r"\A([^:]*):\d+\Z", r"\1", word)


def _all_nodes(configuration: Configuration) -> Tuple[str, ...]:
    if configuration.nodes.hosts:
        return references.expand(configuration.nodes.hosts)
    allocation = os.environ.get("SLURM_JOB_NODELIST") or os.environ.get("SLURM_NODELIST")
    if allocation:
        return references.expand(allocation)
    if os.environ.get("PBS_NODEFILE"):
        return read_hostfile(os.environ["PBS_NODEFILE"])
    raise UsageError(
        "--all finds no nodes",
        next_step="Set hosts under [nodes] of envaudit.toml, or run inside a Slurm or PBS allocation.",
    )


def choose_transport(
    options: argparse.Namespace, configuration: Configuration, nodes: Sequence[str]
) -> Transport:
    """The transport for some nodes; none of them means this machine.

    This machine by its own name is read locally too, unless a transport was chosen: a single
    machine needs no ssh to itself.

    Raises:
        UsageError: `exec` without a command.
        NeededError: ssh is not installed.
    """
    settings = configuration.nodes
    name = options.transport or (settings.transport if nodes else "local")
    name = name or ("local" if tuple(nodes) == (this_node(),) else "ssh")
    if name == "local":
        strange = [node for node in nodes if node not in (this_node(), os.uname().nodename, "localhost")]
        if len(nodes) > 1 or strange:
            raise UsageError(
                f"the local transport reaches this machine only, {this_node()}",
                where="--transport",
                next_step="Leave the nodes out, or choose ssh: another name would stand for this machine.",
            )
        from envaudit.transport.local import Local

        return Local()
    if name == "exec":
        if not settings.command:
            raise UsageError(
                "the exec transport needs a command",
                next_step='Set command under [nodes], such as "kubectl exec -i {node} -- {python}".',
            )
        from envaudit.transport.exec import Exec

        return Exec(settings.command)
    if shutil.which("ssh") is None:
        raise NeededError("ssh is not installed", next_step="Install the OpenSSH client.")
    from envaudit.transport.ssh import Ssh

    return Ssh(ssh_config=settings.ssh_config)


def choose_targets(
    options: argparse.Namespace, configuration: Configuration, nodes: Sequence[str], transport_name: str
) -> Tuple[Target, ...]:
    """Each node with its interpreter: `--python`, the node's own, the common one, `python3`.

    Raises:
        UsageError: an exec command that would ask one machine twice under two names.
        NeededError: this machine has no such interpreter.
    """
    from envaudit.transport import Target

    own = _interpreters(configuration.nodes.interpreters)
    common = configuration.nodes.python or DEFAULT_PYTHON
    targets = []
    for node in nodes:
        python = options.python or own.get(node, common)
        if transport_name == "local":
            check_local_python(python)
        targets.append(Target(node=node, python=python))
    if transport_name in ("exec", "slurm") and "{node}" not in (configuration.nodes.command or ""):
        _demand_own_interpreters(targets)
    return tuple(targets)


def _demand_own_interpreters(targets: Sequence[Target]) -> None:
    """Without `{node}` in the command, only the interpreter tells one node from another.

    Two nodes with one interpreter would be one machine asked twice, and always alike.
    """
    first: Dict[str, str] = {}
    for target in targets:
        other = first.setdefault(target.python, target.node)
        if other != target.node:
            raise UsageError(
                f"{other} and {target.node} would be the same: the command has no {{node}}, "
                f"and both have {target.python}",
                where="command",
                next_step="Put {node} into command, or give each its own under [nodes.interpreters].",
            )


def check_local_python(python: str) -> None:
    """Refuse an interpreter that this machine does not have.

    A bare name is looked up on PATH as a launch would do it: an activated environment comes first.
    """
    if shutil.which(python) is None:
        raise NeededError(f"there is no interpreter '{python}'", next_step="Name one with --python.")


def _interpreters(table: Mapping[str, str]) -> Dict[str, str]:
    """Node to interpreter; a later entry of the table wins over an earlier one."""
    own = {}
    for nodes, python in table.items():
        for node in references.expand(nodes):
            own[node] = python
    return own


def _seconds(text: str) -> int:
    return _number(text, 1, 3600)


def _fanout(text: str) -> int:
    return _number(text, 1, 4096)


def _number(text: str, low: int, high: int) -> int:
    value: Optional[int] = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else None
    if value is None or not low <= value <= high:
        raise argparse.ArgumentTypeError(f"expected a whole number from {low} to {high}, got '{text}'")
    return value
