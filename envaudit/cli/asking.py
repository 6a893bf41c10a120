"""Asking live nodes: configuration, transport, progress; or this machine alone in the one-file form."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, Optional, Sequence, Tuple

from envaudit.cli.progress import followed, shown_files, shown_operations, shown_progress
from envaudit.cli.selection import choose_targets, choose_transport, selected_nodes
from envaudit.cli.thisnode import this_node
from envaudit.errors import UsageError
from envaudit.model import Snapshot

if TYPE_CHECKING:
    from envaudit.transport import Request

DEFAULT_TIMEOUT_S = 60


def _load_rules() -> None:
    from envaudit.rules import all_rules

    all_rules()


# What a command needs once the nodes have answered is imported while they are at work.
_LATER: Tuple[Callable[[], object], ...] = (
    partial(import_module, "envaudit.report.plain"),
    partial(import_module, "envaudit.rules"),
    partial(import_module, "envaudit.cli.judging"),
    _load_rules,
)

try:
    from envaudit.cli import configuration
except ImportError:  # the one-file form reads no TOML
    configuration = None  # type: ignore[assignment]


def add_integrity_options(group: Any, modes: Sequence[str], default: Optional[str] = None) -> None:
    """`--integrity` and its cache, for the commands that read installed files where asked to."""
    group.add_argument(
        "--integrity",
        choices=modes,
        default=default,
        help="compare every installed file with what its package recorded"
        + (f"; default: {default}" if default else ""),
    )
    group.add_argument(
        "--integrity-cache",
        metavar="FILE",
        help="on each node, keep digests here; 'size' then hashes what was touched since, 'hash' all",
    )


def is_one_file() -> bool:
    """Whether this is the one-file form, which reads the machine it runs on and no other."""
    return configuration is None


def ask_selected(options: argparse.Namespace) -> Snapshot:
    """Ask the nodes that `--nodes`, `--hostfile` or `--all` choose; without them this machine."""
    if is_one_file():
        return _ask_here(options)
    settings = configuration.of(options)
    return ask(selected_nodes(options, settings), options)


def ask(nodes: Sequence[str], options: argparse.Namespace) -> Snapshot:
    """Ask some nodes; none of them means this machine.

    Raises:
        UsageError: a configuration, node set or template that cannot be used.
        Interrupted: Ctrl-C; whatever ran on the nodes has been ended.
    """
    if is_one_file():
        if tuple(nodes) not in ((), (this_node(),)):
            raise UsageError(
                "this one-file form reads the machine it runs on, no other node",
                next_step="Install the package to ask nodes: pip install envaudit.",
            )
        return _ask_here(options)
    from envaudit.transport import Request

    settings = configuration.of(options)
    transport = choose_transport(options, settings, nodes)
    local = transport.launch == "local"
    targets = choose_targets(options, settings, nodes or (this_node(),), transport.launch)
    request = Request(
        sections=_sections(options),
        also=on_request(options),
        options=told(options),
        workdir=options.workdir or settings.nodes.workdir or (os.getcwd() if local else None),
        timeout_s=options.timeout or settings.nodes.timeout_s,
        fanout=options.fanout or settings.nodes.fanout,
        every_node=getattr(options, "every_node", False),
        prefix=prefix_of(options, local=local),
        own=getattr(options, "own_options", {}),
        given_up=getattr(options, "given_up", None),
    )
    if request.prefix and local and not options.python:
        # `python3` of an activated environment is the one that must not run.
        targets = tuple(target._replace(python=sys.executable) for target in targets)
    pings = getattr(options, "pings", None)
    if pings is not None:
        request = request._replace(pings=pings)
    try:
        # A caller of the Python API is no terminal, whatever its standard error is.
        seen = not getattr(options, "silent", False)
        shown = shown_progress(len(targets) if seen else 0)
        with shown as progress, _shown_files(request, local=local and seen) as asked:
            transport.begin(targets, asked)
            from envaudit.transport import gather

            return gather(transport, targets, asked, progress, meanwhile=_LATER)
    except BaseException:
        # Ctrl-C may come when an interpreter has been started and `gather` does not know of it yet.
        from envaudit.transport.program import end_all

        end_all()
        raise


@contextmanager
def _shown_files(request: Request, *, local: bool) -> Iterator[Request]:
    """The request, and a progress bar over the files or operations that this machine itself looks at."""
    asked = {*request.also, *request.sections}
    bars = {"integrity": ("integrity_progress", shown_files), "checks": ("check_progress", shown_operations)}
    option, bar = next((bars[name] for name in bars if local and name in asked), ("", None))
    if bar is None:
        yield request
        return
    with bar() as tell, followed(tell) as path:
        more = {option: path} if path else {}
        yield request._replace(options={**request.options, **more})


def _ask_here(options: argparse.Namespace) -> Snapshot:
    for name in ("nodes", "hostfile", "all", "transport", "python", "config"):
        if getattr(options, name, None):
            raise UsageError(
                f"--{name} is not for this one-file form, which reads the machine it runs on",
                next_step="Install the package: pip install envaudit.",
            )
    from envaudit.transport.inband import read_here

    fingerprint = read_here(
        this_node(),
        sections=_sections(options),
        also=on_request(options),
        options=told(options),
        workdir=options.workdir or os.getcwd(),
        prefix=prefix_of(options, local=True),
        timeout_s=options.timeout or DEFAULT_TIMEOUT_S,
    )
    return Snapshot((fingerprint,))


def _sections(options: argparse.Namespace) -> Tuple[str, ...]:
    """The sections to ask for; `host` and `python` come along, for they say how the probe was started.

    Without them nobody could tell whether facts of a launch may be compared; a command that compares
    none says so by `nothing_else`. A name that is none is
    refused here, before any node is asked: the nodes are not at fault.
    """
    wanted = set(getattr(options, "section", None) or ())
    if wanted:
        from difflib import get_close_matches

        from envaudit.probe import registry

        known = sorted({*registry.section_names(), *registry.ON_REQUEST})
        for name in sorted(wanted.difference(known)):
            near = get_close_matches(name, known, n=1)
            raise UsageError(
                f"no section is called '{name}'",
                where="--section",
                next_step=f"Did you mean '{near[0]}'?" if near else f"Sections: {', '.join(known)}.",
            )
    if not wanted or getattr(options, "nothing_else", False):
        return tuple(sorted(wanted))
    return tuple(sorted(wanted | {"host", "python"}))


def prefix_of(options: argparse.Namespace, *, local: bool) -> Optional[str]:
    """The environment that `--prefix` names, where the command has that option.

    Raises:
        UsageError: a relative path, which a node would read from another folder, or `--deep` beside it.
    """
    prefix: Optional[str] = getattr(options, "prefix", None)
    if prefix is None:
        return None
    if getattr(options, "deep", False):
        raise UsageError(
            "--deep imports torch, and of a --prefix nothing is executed",
            next_step="Leave one of them out; --python PREFIX/bin/python executes the environment.",
        )
    if local:
        return os.path.abspath(os.path.expanduser(prefix))
    if not prefix.startswith(("/", "~/")):
        raise UsageError(
            f"'{prefix}' is no absolute path", where="--prefix", next_step="Nodes have other folders."
        )
    return prefix


def on_request(options: argparse.Namespace) -> Tuple[str, ...]:
    """The sections that are read on request only, beside those that `--section` chooses."""
    wanted = {"deep": getattr(options, "deep", False), "integrity": getattr(options, "integrity", None)}
    return tuple(name for name, asked in sorted(wanted.items()) if asked and asked != "none")


def told(options: argparse.Namespace) -> Dict[str, Any]:
    """What sections are told: what they look at on request, and the folders of the configuration.

    The one-file form, and what has not asked for the configuration yet, has none of it.

    Raises:
        UsageError: a cache for what is not read.
    """
    integrity, cache = getattr(options, "integrity", None), getattr(options, "integrity_cache", None)
    if cache and integrity in (None, "none"):
        raise UsageError(
            "--integrity-cache is of no use where no file is looked at", next_step="Add --integrity size."
        )
    settings = getattr(options, "configuration", None)
    said = {
        "folders": list(settings.nodes.folders) if settings is not None else [],
        "clock": getattr(options, "time_services", None),
        "integrity": integrity,
        "integrity_cache": cache,
    }
    own = getattr(options, "section_options", None) or {}
    return {**own, **{name: value for name, value in said.items() if value}}
