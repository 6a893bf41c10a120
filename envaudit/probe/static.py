"""An environment read by another Python: nothing of it is executed."""

from __future__ import annotations

import os
import re
import time
from typing import Any, Dict, List, Mapping, Optional, Sequence

from envaudit.probe import Refused, registry
from envaudit.probe.answer import error_row, row_of
from envaudit.probe.context import Context

SECTIONS = ("conda", "packages", "integrity")

_LIBRARY = re.compile(r"(?:python|pypy)3(?:\.\d+t?)?\Z")


def read_prefix(
    prefix: str,
    *,
    tool: str,
    sections: Sequence[str] = SECTIONS,
    options: Optional[Mapping[str, Any]] = None,
) -> Dict[str, Any]:
    """What stands in a prefix, in the form of a probe's answer.

    Args:
        prefix: a conda environment or a virtual environment.
        tool: the version to state.
        sections: of `SECTIONS`.
        options: what sections are told that are read on request.

    Raises:
        Refused: the prefix is no folder.
    """
    prefix = os.path.abspath(prefix)
    if not os.path.isdir(prefix):
        raise Refused(f"{prefix} is no folder.")
    context = Context(
        environ={},
        workdir=prefix,
        launch="local",
        asked=prefix,
        interpreter=interpreter_of(prefix),
        options=options,
    )
    return {
        "tool": tool,
        "captured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "sections": [_row(name, context) for name in sections],
    }


def interpreter_of(prefix: str) -> Dict[str, Any]:
    """What the interpreter of a prefix would say of its folders, without starting it."""
    library = os.path.join(prefix, "lib")
    try:
        names = sorted(name for name in os.listdir(library) if _LIBRARY.match(name))
    except OSError:
        names = []
    site: List[str] = [
        os.path.join(library, name, "site-packages")
        for name in names
        if os.path.isdir(os.path.join(library, name, "site-packages"))
    ]
    return {
        "executable": os.path.join(prefix, "bin", "python"),
        "prefix": prefix,
        "base_prefix": prefix,
        "exec_prefix": prefix,
        "path": site,
        "site_packages": site,
        "user_site": "",
        "user_site_enabled": False,
        "flags": {},
    }


def _row(name: str, context: Context) -> Dict[str, Any]:
    module = registry.load_section(name)
    try:
        return row_of(name, module.SCHEMA, module.read(context))
    except Exception as error:
        return error_row(name, module.SCHEMA, f"{type(error).__name__}: {error}")
