"""The entry point: finds the command, imports only that one, turns errors into exit codes."""

from __future__ import annotations

import argparse
import errno
import gc
import importlib
import os
import signal
import sys
from typing import Any, Dict, Iterable, List, NoReturn, Optional, Sequence, Tuple

from envaudit._version import __version__
from envaudit.cli.stdout import write
from envaudit.errors import EnvauditError, Interrupted, NeededError, UsageError
from envaudit.transport.postponed import postpone

# Command to one line of help; the module `envaudit.cli.<command>` has `configure(parser)` and
# `execute(options) -> int`. Only the module of the command that runs is imported.
COMMANDS: Dict[str, str] = {
    "snapshot": "record this machine, or nodes over ssh, into the store",
    "diff": "what differs between nodes, snapshots and files",
    "show": "print the facts of a node or snapshot",
    "clock": "how far the clocks of nodes are apart, and what keeps them",
    "import": "a foreign report or lock as a snapshot: collect_env, pip, conda, uv, pixi",
    "check": "run operations whose right answer is known, on every GPU of this machine or of nodes",
    "run": "gate, run a command, and record the nodes as good or failed by how it ended",
    "gate": "one verdict before a launch: lock, nodes, rules, clocks, numbers",
    "log": "what changed on a node, and when",
    "store": "verify or prune the store",
    "lint": "judge an environment.yml, each finding with its line, without a solve",
    "lock": "a conda-lock.yml from an environment.yml, audited, without conda on the machine",
    "install": "an environment from a lock, whole or not at all",
    "verify": "is an environment what the lock says, here or on every node",
    "export": "a lock or a snapshot as a list that rebuilds it",
    "mirror": "every package of a lock in a local channel, for clusters without a network",
    "baseline": "make what nodes are now the baseline, after a look at what changes",
    "rules": "every rule, at the severity that the policy gives it",
    "explain": "what a rule means, why it matters, how to fix or change it",
    "waive": "accept a finding on some nodes until a day",
    "trust": "honour the executing keys of this folder's envaudit.toml",
    "bundle": "write the one-file form, which runs anywhere with Python 3.8 or newer",
}
# Commands that take several references or files: `diff node01 --section gpu node02`.
_MIXING = ("diff", "explain", "lint", "lock")


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run one command and give its exit code; errors are printed, never raised."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    # Where whoever started this ignores it, as some daemons do, the kernel forgets how children ended.
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if _is_prolog(arguments):
        return _prolog(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _dispatch(arguments)
    except EnvauditError as error:
        _complain(f"envaudit: {error}")
        return error.exit_code
    except KeyboardInterrupt as error:
        of_torchrun = bool(error.args) and "TORCHELASTIC_RUN_ID" in os.environ
        why = " torchrun ends all ranks where one has ended, and names that one." if of_torchrun else ""
        _complain(f"envaudit: interrupted.{why}")
        return Interrupted.exit_code
    except BrokenPipeError:
        # The reader of a pipe left (`| head`): nothing to say, and nobody to say it to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            _complain(f"envaudit: no file can be opened any more: {error}. Raise the limit: ulimit -n.")
            return NeededError.exit_code
        if os.environ.get("ENVAUDIT_DEBUG"):
            raise
        _complain(
            f"envaudit: internal error: {type(error).__name__}: {error}. "
            "Set ENVAUDIT_DEBUG=1 for the traceback, and please report it."
        )
        return EnvauditError.exit_code


def run() -> NoReturn:
    """The console script."""
    # A command is short-lived and makes few cycles: looking for them while modules are imported
    # costs a twentieth of `envaudit snapshot`.
    gc.set_threshold(100_000)
    # Before Python 3.13 dataclasses asks it only of classes without a docstring; it takes 6 ms to import.
    postpone("inspect")
    _open_closed_streams()
    code = main()
    try:
        sys.stdout.flush()
    except OSError:
        # Its reader left, or its disk is full, as `write` has told: what is still in the buffer goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    # Nor is there a point in the collections at an interpreter's end: two thirds of what that takes.
    gc.freeze()
    sys.exit(code)


def _open_closed_streams() -> None:
    """/dev/null for each standard stream that this process was started without (`2>&-`, some daemons).

    Otherwise the next file that is opened takes its number, and what is printed ends up in it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        null = os.open(os.devnull, os.O_RDWR)
        if null != number:
            os.dup2(null, number)
            os.close(null)
        os.set_inheritable(number, True)
        setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8", closefd=False))  # noqa: SIM115


def _dispatch(arguments: List[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        write(overview())
        return 0 if arguments else UsageError.exit_code
    if arguments[0] in ("-V", "--version"):
        write(f"envaudit {__version__}\n")
        return 0
    name, rest = arguments[0], arguments[1:]
    if name not in COMMANDS:
        raise UsageError(
            f"there is no command '{name}'", next_step=_suggestion(name, COMMANDS) + "See 'envaudit --help'."
        )
    options = parser_of(name).parse_args(rest)
    try:
        os.getcwd()
    except OSError:
        raise NeededError(
            "the working directory is gone", next_step="Change to one that exists: cd ~."
        ) from None
    return int(_command_module(name).execute(options))


def _is_prolog(arguments: List[str]) -> bool:
    """Whether a prolog is meant, also where that is mistyped: `gaet --prolog`, `gate --prologue`."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if {"-h", "--help"}.intersection(own) or (own and own[0] in COMMANDS and own[0] != "gate"):
        return False
    return any(word.startswith("--prol") for word in own)


def _prolog(arguments: List[str]) -> int:
    """A prolog that ends with anything but 0 drains a node: no fault of this program may do that."""
    try:
        if arguments[0] != "gate":
            raise UsageError("--prolog is an option of 'gate'")
        from envaudit.cli import prolog

        return prolog.main(arguments[1:])
    except BaseException as error:
        _complain(f"envaudit: not judged: {type(error).__name__}: {error}")
        return 0


def parser_of(name: str) -> argparse.ArgumentParser:
    """The parser of one command."""
    parser = _Parser(prog=f"envaudit {name}", description=COMMANDS[name] + ".")
    parser.mixing = name in _MIXING
    _command_module(name).configure(parser)
    return parser


def overview() -> str:
    """What `envaudit --help` prints: the commands that are here, which in the one-file form are a few."""
    from importlib.util import find_spec

    here = {name: text for name, text in COMMANDS.items() if find_spec(_module_of(name))}
    width = max(map(len, here))
    lines = [f"  {name:<{width}}  {text}" for name, text in here.items()]
    return (
        "usage: envaudit COMMAND [options]\n\n"
        "Does every node run the environment we locked, and compute the right numbers?\n\n"
        "commands:\n" + "\n".join(lines) + "\n\n"
        "'envaudit COMMAND --help' tells the options of one; exit codes stand in the README.\n"
    )


class _Parser(argparse.ArgumentParser):
    """Usage errors leave through the one road that all errors take.

    Attributes:
        mixing: its references or files may stand on both sides of an option.
    """

    mixing = False

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def parse_known_args(  # type: ignore[override]
        self, args: Optional[Sequence[str]] = None, namespace: Any = None
    ) -> Tuple[Any, List[str]]:
        """As argparse does it; an option without its value, `--lock "$UNSET"`, is never one left out."""
        options, left = super().parse_known_args(args, namespace)
        for action in self._actions:
            value = getattr(options, action.dest, None)
            if action.option_strings and (value == "" or (isinstance(value, list) and "" in value)):
                self.error(f"argument {'/'.join(action.option_strings)}: is empty; is a variable unset?")
        return options, left

    def parse_args(  # type: ignore[override]
        self, args: Optional[Sequence[str]] = None, namespace: Any = None
    ) -> Any:
        """As argparse does it; for an option that there is not the nearest name is suggested."""
        options, left = self.parse_known_args(args, namespace)
        if left and self.mixing:
            options, left = self.parse_known_intermixed_args(args, namespace)
        if left:
            option = next((each.partition("=")[0] for each in left if each.startswith("--")), "")
            suggestion = _suggestion(option, self._option_string_actions)
            if getattr(options, "argv", None):
                suggestion = "What is the command's own stands behind '--'. "
            self._refuse(f"unrecognized arguments: {' '.join(left)}", suggestion)
        return options

    def error(self, message: str) -> NoReturn:
        self._refuse(message)

    def _refuse(self, message: str, suggestion: str = "") -> NoReturn:
        raise UsageError(message, where=self.prog, next_step=f"{suggestion}See '{self.prog} --help'.")

    def print_help(self, file: Any = None) -> None:
        """To standard output as everything else: with an error where that is full or gone."""
        write(self.format_help())


def _module_of(name: str) -> str:
    # A module cannot be called like a word of the language.
    return f"envaudit.cli.{name}_" if name == "import" else f"envaudit.cli.{name}"


def _command_module(name: str):  # type: ignore[no-untyped-def]
    try:
        return importlib.import_module(_module_of(name))
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("envaudit."):
            raise
        raise UsageError(
            f"this one-file form does not carry '{name}'",
            next_step="Install the package: pip install envaudit.",
        ) from None


def _suggestion(name: str, known: Iterable[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, list(known), n=1)
    return f"Did you mean '{close[0]}'? " if close else ""


def _interrupt(_signal: int, _frame: object) -> NoReturn:
    # SIGTERM ends a run as Ctrl-C does: what was started on the nodes is ended there too.
    raise KeyboardInterrupt("SIGTERM")


def _complain(text: str) -> None:
    from envaudit.model.printing import printable_lines

    try:
        # Standard error escapes what its encoding lacks, whatever PYTHONIOENCODING says.
        sys.stderr.write(printable_lines(text) + "\n")
    except (OSError, ValueError):
        pass
