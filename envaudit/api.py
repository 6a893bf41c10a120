"""`import envaudit`: the commands as calls that return what they found.

    import envaudit

    now = envaudit.snapshot("node[01-16]")
    result = envaudit.gate("node[01-16]", lock="train.conda-lock.yml", baseline="good")
    if result.exit_code:
        print(result.findings[0].message)

Each call takes what the command of its name takes, reads the same configuration, and is judged by the
same rules. It prints nothing and ends no process: what cannot be done at all is raised as one of
`envaudit.errors`, findings are in the result. Snapshots and reports show themselves in a notebook.

This is the controller's side, Python 3.10 and newer: the one-file form on a node has commands alone.
"""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections.abc import Iterable, Sequence
from typing import Any

from envaudit.cli.loading import Loaded
from envaudit.cli.main import parser_of
from envaudit.cli.references import Reference, parse
from envaudit.errors import Interrupted, UsageError
from envaudit.model import Fingerprint, Snapshot
from envaudit.report import Report

__all__ = ["diff", "gate", "snapshot"]

# How snapshots in memory are told apart where they hold the same nodes: as `diff(a, b)` calls them.
_SIDES = "abcdefghijklmnopqrstuvwxyz"


def snapshot(
    nodes: str | Iterable[str] | None = None,
    *,
    tags: str | Iterable[str] = (),
    keep: bool = False,
    **options: Any,
) -> Snapshot:
    """What nodes are now.

    Args:
        nodes: a node set such as `node[01-16]`, or names; None for this machine.
        tags: tags for these nodes in the store; with any of them the snapshot is kept.
        keep: write it into the store.
        options: those of `envaudit snapshot`, `-` written `_`: `deep=True`, `section=["gpu"]`,
            `python="/opt/envs/train/bin/python"`, `timeout=30`, `config="envaudit.toml"`.

    Returns:
        The fingerprints of the nodes that answered, and why others did not.

    Raises:
        UsageError: an option, node set or configuration that cannot be used.
        NeededError: ssh is not installed, or the store cannot be written.
        Interrupted: Ctrl-C; what ran on the nodes has been ended.
    """
    from envaudit.cli import asking
    from envaudit.cli.snapshot import keep as write
    from envaudit.store.tags import check_tag

    listed = _names(tags)
    for tag in listed:
        check_tag(tag)
    asked = _options("snapshot", nodes=_node_set(nodes), tag=listed, **options)
    try:
        found = asking.ask_selected(asked)
    except KeyboardInterrupt:
        raise Interrupted("interrupted") from None
    if listed or keep or asked.output:
        write(found, asked)
    return found


def diff(*sides: str | os.PathLike[str] | Snapshot | Fingerprint, **options: Any) -> Report:
    """What differs: two sides with equal nodes node by node, otherwise all nodes with each other.

    Args:
        sides: references as `envaudit diff` takes them (`node[01-16]`, `node01@good`, `a.json`), paths of
            files, snapshots or fingerprints.
        options: those of `envaudit diff`, `-` written `_`: `only=["gpu/*"]`, `ignore=["env/*"]`,
            `baseline="good"`, `fail_on="warning"`.

    Returns:
        Verdict, findings and drifts; the nodes of the first snapshot in memory are `node01@a` where the
        second has them too.

    Raises:
        UsageError: nothing to compare, an unknown tag, an option that there is not.
        InputError: a file that cannot be read.
        Interrupted: Ctrl-C.
    """
    from envaudit.cli.baselines import check_baseline
    from envaudit.cli.diff import compared
    from envaudit.cli.loading import load

    began = time.monotonic()
    # What the parser demands; what is compared stands in `sides`.
    asked = _options("diff", "-", **options)
    check_baseline(asked)
    given = [_reference(each) if isinstance(each, (str, os.PathLike)) else each for each in sides]
    try:
        loaded = iter(load([each for each in given if isinstance(each, Reference)], asked))
        named = [
            next(loaded) if isinstance(each, Reference) else _in_memory(each, number)
            for number, each in enumerate(given)
        ]
        return compared(named, asked, began)
    except KeyboardInterrupt:
        raise Interrupted("interrupted") from None


def gate(nodes: str | Iterable[str] | None = None, **options: Any) -> Report:
    """Whether a job may start on nodes: lock, baseline, rules, clock and checks in one verdict.

    Args:
        nodes: a node set such as `node[01-16]`, or names; None for this machine.
        options: those of `envaudit gate`, `-` written `_`: `lock="conda-lock.yml"`, `baseline="good"`,
            `no_check=True`, `allow_missing=1`, `policy="policy.toml"`.

    Returns:
        The report; `exit_code` is 0 for pass, 1 for fail, 3 for incomplete.

    Raises:
        UsageError: an option, node set, policy or configuration that cannot be used; or `prolog`, which
            is a command for a machine's own start scripts.
        InputError: a lock or snapshot that cannot be read.
        NeededError: ssh is not installed.
        Interrupted: Ctrl-C; what ran on the nodes has been ended.
    """
    from envaudit.cli.controllergate import run_gate

    asked = _options("gate", nodes=_node_set(nodes), **options)
    for name in ("prolog", "good_nodes", "bad_nodes", "verdict_file"):
        if getattr(asked, name, None):
            raise UsageError(
                f"gate() takes no '{name}', which is for the command line",
                next_step="The result has findings, nodes and exit_code.",
            )
    try:
        return run_gate(asked).report
    except KeyboardInterrupt:
        raise Interrupted("interrupted") from None


def _options(command: str, /, *positional: str, **chosen: Any) -> Namespace:
    """The command's options as its own parser reads them, so that both mean the same by the same word."""
    arguments = []
    parser = parser_of(command)
    for name, value in chosen.items():
        option = f"--{name.replace('_', '-')}"
        if name in ("format", "report", "verbose", "help"):
            raise UsageError(
                f"'{name}' is for the command line", next_step="envaudit.report has a module for each format."
            )
        if value is True:
            arguments.append(option)
        elif value is not None and value is not False:
            texts = _values(name, value)
            # What is not repeated on a command line lists its words there: --only kernels,memory.
            if texts and not isinstance(parser.get_default(name), list):
                texts = [",".join(texts)]
            arguments += [f"{option}={each}" for each in texts]
    options = parser.parse_args([*arguments, *positional])
    options.silent = True
    return options


def _values(name: str, value: object) -> Sequence[str]:
    """An option's value, or each of several, as it stands on a command line."""
    if isinstance(value, os.PathLike):
        return [os.fspath(value)]
    if isinstance(value, (str, int, float)):
        return [str(value)]
    if isinstance(value, Iterable):
        return [each for one in value for each in _values(name, one)]
    raise UsageError(f"'{name}' takes a text, a number, a path or several of them, not {value!r:.80}")


def _node_set(nodes: str | Iterable[str] | None) -> str | None:
    if nodes is None or isinstance(nodes, str):
        return nodes
    return ",".join(nodes)


def _names(texts: str | Iterable[str]) -> Sequence[str]:
    return [texts] if isinstance(texts, str) else list(texts)


def _reference(side: str | os.PathLike[str]) -> Reference:
    """A text is what it is on the command line; a path is a file, whatever its name."""
    if isinstance(side, str):
        return parse(side)
    path = os.fspath(side)
    return Reference(path, path=path)


def _in_memory(side: Snapshot | Fingerprint, number: int) -> Loaded:
    """A snapshot as if it had been read from a file called `a`, `b`, ..."""
    if isinstance(side, Fingerprint):
        side = Snapshot((side,))
    if not isinstance(side, Snapshot):
        raise UsageError(
            f"diff() compares references, snapshots and fingerprints, not {type(side).__name__}",
            next_step="envaudit.snapshot() makes one.",
        )
    name = _SIDES[number] if number < len(_SIDES) else f"side{number}"
    return Loaded(Reference(name, path=name), side.by_node, side.missing)
