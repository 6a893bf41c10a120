"""`envaudit run -- CMD`: gate, run, and record what the nodes were when it went well, or did not."""

from __future__ import annotations

import argparse
import contextlib
import copy
import os
import sys
import time
from typing import Any

from envaudit._version import __version__
from envaudit.cli import asking, command, configuration, gate, launched
from envaudit.cli.commandline import clean_command
from envaudit.cli.loading import open_store
from envaudit.cli.selection import selected_nodes
from envaudit.cli.thisnode import this_node
from envaudit.errors import EXIT_PASS, EnvauditError, Interrupted, UsageError
from envaudit.model import Snapshot
from envaudit.model.nodeset import fold
from envaudit.model.printing import printable, printable_lines
from envaudit.store.files import sha256_of
from envaudit.store.tags import check_tag
from envaudit.transport.inband import read_here

GOOD, FAILED = "good", "failed"
DEFAULT_GATE_EXIT = 125

_TIME = "%Y-%m-%dT%H:%M:%SZ"
_DIGEST_CHARACTERS = 12


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `envaudit run`: those of the gate, and what is kept."""
    gate.configure(parser)
    group = parser.add_argument_group("what is run, and what is kept")
    group.add_argument(
        "--tag", default=GOOD, help=f"for the nodes of a run that ended with 0; default: {GOOD}"
    )
    group.add_argument(
        "--gate-exit",
        type=_code,
        default=DEFAULT_GATE_EXIT,
        metavar="CODE",
        help=f"the exit code where the gate refuses (default: {DEFAULT_GATE_EXIT})",
    )
    parser.add_argument("argv", nargs="+", metavar="-- CMD", help="the command and its arguments")


def execute(options: argparse.Namespace) -> int:
    """The command's own exit code; `--gate-exit` where it was not started.

    Raises:
        UsageError: an option that is none of `run`.
    """
    check_tag(options.tag)
    if options.tag == FAILED:
        raise UsageError(f"'{FAILED}' is the tag of runs that did not end with 0", where="--tag")
    if options.prolog or options.stored:
        word = "--prolog" if options.prolog else "--stored"
        raise UsageError(f"{word} looks at no node that a command could run on")
    unable = command.cannot_start(options.argv, os.environ)
    if unable is not None:
        _say(f"{unable.why}; nothing was started, and the gate was left out")
        return unable.code
    # What a gate sets among its options for itself is nothing that the snapshot is to ask for.
    asked = copy.copy(options)
    if not _passes(options):
        return int(options.gate_exit)
    asked.configuration = configuration.of(options)
    watched = _Watched(options)
    record = _record(options)
    ended = command.run(options.argv)
    if not ended.started:
        _say(f"{ended.why}; the command was not started")
        return ended.code
    # Whatever becomes of the record, the code is the command's.
    try:
        record.update(
            ended_at=time.strftime(_TIME, time.gmtime()), exit_code=ended.code, signal=ended.signal or None
        )
        watched.tell()
        _keep(asked, record, options.tag if ended.code == 0 else FAILED)
    except KeyboardInterrupt:
        _say("interrupted; the run is not recorded")
    except EnvauditError as error:
        _say(f"the run is not recorded: {error}")
    except Exception as error:
        _say(f"the run is not recorded: {type(error).__name__}: {error}")
    return ended.code


def _passes(options: argparse.Namespace) -> bool:
    """The gate, its report on standard error: standard output is the command's.

    Raises:
        KeyboardInterrupt: Ctrl-C.
    """
    from envaudit.cli import controllergate

    try:
        with contextlib.redirect_stdout(sys.stderr):
            code = controllergate.execute(options)
    except Interrupted:
        raise KeyboardInterrupt from None
    except EnvauditError as error:
        _say(str(error))
        code = error.exit_code
    if code == EXIT_PASS:
        return True
    _say(f"the gate ended with {code}: the command was not started; exit {options.gate_exit}")
    return False


class _Watched:
    """The files that the gate judged by, as they were then: they may change while the command runs."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._files = {file.path: file.sha256 for file in configuration.of(options).policy}
        if options.lock:
            self._files[options.lock] = sha256_of(options.lock)
        self.tell()

    def tell(self) -> None:
        """A line for each that is not what it was when it was last looked at."""
        for path, was in self._files.items():
            now = sha256_of(path)
            if now != was:
                words = f"sha256:{now[:_DIGEST_CHARACTERS]}" if now else "gone"
                _say(
                    f"{printable(path)} has changed since the gate (sha256:{was[:_DIGEST_CHARACTERS]}, "
                    f"now {words}); the verdict rests on what it was"
                )
                self._files[path] = now


def _record(options: argparse.Namespace) -> dict[str, Any]:
    """What is known of a launch before it begins; the code that it runs is that of now."""
    settings = configuration.of(options)
    git = read_here(this_node(), sections=("git",), launch="local").sections["git"].facts
    files = git.get("files")
    digests = dict(files) if isinstance(files, dict) else {}
    for path in (options.lock, *settings.lock.sources):
        if path:
            digests.setdefault(os.path.relpath(path), sha256_of(path))
    return {
        "command": clean_command(options.argv),
        "started_at": time.strftime(_TIME, time.gmtime()),
        "job": launched.job_of(os.environ),
        "world_size": launched.world_of(options.argv, os.environ),
        "commit": git.get("commit"),
        "dirty": git.get("dirty"),
        "files": digests,
        "policy": {file.path: file.sha256 for file in settings.policy},
        "host": this_node(),
    }


def _keep(options: argparse.Namespace, record: dict[str, Any], tag: str) -> None:
    """Read the nodes again, as they are after the run, and store them with the record."""
    options.section = []
    settings = configuration.of(options)
    read = asking.ask(selected_nodes(options, settings), options)
    snapshot = Snapshot(tuple(launched.with_launch(each, record) for each in read.fingerprints), read.missing)
    store = open_store(options)
    name = store.write(
        snapshot,
        captured_at=time.strftime(_TIME, time.gmtime()),
        tool=__version__,
        host=os.uname().nodename,
        tags=[tag] if snapshot.fingerprints else [],
    )
    gone = f"; no answer from {fold(read.missing)}" if read.missing else ""
    if not snapshot.fingerprints:
        _say(f"the run is recorded without a tag, for no node answered{gone}")
        return
    nodes = fold(each.node for each in snapshot.fingerprints)
    where = printable(os.path.relpath(os.path.join(store.path, "snapshots", name)))
    _say(f"exit {record['exit_code']}: {printable(nodes)}@{tag} is {where}{gone}")
    if tag == FAILED:
        known = store.tags().get(options.tag, {})
        if any(each.node in known for each in snapshot.fingerprints):
            nodes = printable(nodes)
            _say(f"what changed: envaudit diff '{nodes}@{options.tag}' '{nodes}@{FAILED}'")


def _say(text: str) -> None:
    try:
        sys.stderr.write(f"envaudit: {printable_lines(text)}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass  # whoever listened has gone; the command's code counts


def _code(text: str) -> int:
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 4 else -1
    if not 1 <= value <= 255:
        raise argparse.ArgumentTypeError(f"expected an exit code from 1 to 255, got '{text}'")
    return value
