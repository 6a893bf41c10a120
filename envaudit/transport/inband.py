"""This process' own machine, without a controller: the one-file form, srun, torchrun."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence

from envaudit._version import __version__
from envaudit.errors import UsageError
from envaudit.model.codec import fingerprint_of_answer
from envaudit.model.fingerprint import Fingerprint
from envaudit.probe import Refused
from envaudit.probe.runner import probe


def read_here(
    node: str,
    *,
    sections: Sequence[str] = (),
    also: Sequence[str] = (),
    options: Optional[Mapping[str, Any]] = None,
    workdir: Optional[str] = None,
    prefix: Optional[str] = None,
    timeout_s: float = 60.0,
    launch: str = "inband",
) -> Fingerprint:
    """The fingerprint of the machine and the interpreter that run this.

    Args:
        node: the name to give it.
        sections: the names of the sections to read; empty means all.
        also: sections that are read on request only, beside those.
        options: what such sections are told.
        workdir: the folder whose repository is meant; None is the current one.
        prefix: an environment that is read in place of this interpreter's, nothing of it executed.
        timeout_s: no section gets more.
        launch: `inband`, or `prolog` for a scheduler's prologue.

    Raises:
        UsageError: an unknown section, or an interpreter that root must not run.
        InputError: the probe broke its own rules.
    """
    request = {
        "launch": launch,
        "tool": __version__,
        "workdir": workdir,
        "prefix": prefix,
        "sections": list(sections) or None,
        "also": list(also),
        "options": dict(options or {}),
        "deadline_s": timeout_s,
    }
    try:
        answer = probe(request)
    except Refused as error:
        raise UsageError(str(error)) from None
    return fingerprint_of_answer(answer, node=node, source="inband", where="probe")
