"""Whom a request is about: this machine, an environment of it that is not started, or a fake node."""

from __future__ import annotations

import os
from functools import partial
from typing import Any, Dict, Mapping, Sequence

from envaudit.probe import Refused
from envaudit.probe.context import Context
from envaudit.probe.interpreter import own_executable

# The machine's own prefixes: their programs and its Python are what an audit runs on.
_SYSTEM = ("/", "/usr", "/usr/local")


def of_request(request: Mapping[str, Any], names: Sequence[str]) -> Context:
    """The context in which the sections `names` are read; `envaudit.probe.runner` says what a request is.

    Raises:
        Refused: the prefix is no folder, or a section cannot do without starting it.
    """
    root = request.get("root") or "/"
    if os.path.normpath(root) != "/":
        return Context.of_fixture(root)
    prefix = _prefix(request, names)
    return Context(
        environ=_environment(),
        workdir=_workdir(request.get("workdir") or "."),
        launch=request.get("launch") or "local",
        asked=prefix or request.get("python") or "",
        interpreter=partial(_words_of, prefix) if prefix else {},
        options=request.get("options"),
        static=prefix,
    )


def _prefix(request: Mapping[str, Any], names: Sequence[str]) -> str:
    """The environment that is read without being started, "" where none was named."""
    if not request.get("prefix"):
        return ""
    from envaudit.probe.prefix import check_prefix

    if "deep" in names:
        raise Refused("section deep imports torch, and of a prefix nothing is executed.")
    prefix = check_prefix(str(request["prefix"]))
    executable = own_executable()
    for own in (os.path.abspath(executable), os.path.realpath(executable)):
        if own.startswith((f"{prefix}/", f"{os.path.realpath(prefix)}/")) and prefix not in _SYSTEM:
            raise Refused(
                f"{own} belongs to {prefix}, of which nothing is to be executed. Name another Python "
                "with --python."
            )
    return prefix


def _words_of(prefix: str) -> Mapping[str, Any]:
    """In a section's child, under its deadline: what the files of a prefix say of its interpreter."""
    from envaudit.probe.prefix import interpreter_of

    return interpreter_of(prefix)


def _environment() -> Dict[str, str]:
    """This process' variables, and HOME even where a launch such as `srun --export=NONE` leaves it unset.

    Python and NCCL then take the home of the account, and so do the sections.
    """
    environ = dict(os.environ)
    environ.setdefault("HOME", os.path.expanduser("~"))
    return environ


def _workdir(asked: str) -> str:
    try:
        return os.path.abspath(os.path.expanduser(asked))
    except FileNotFoundError:  # the current folder has been removed
        return "/"
