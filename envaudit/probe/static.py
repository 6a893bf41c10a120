"""An environment read by another Python: nothing of it is executed."""

from __future__ import annotations

import time
from typing import Any, Dict, Mapping, Optional, Sequence

from envaudit.probe import registry
from envaudit.probe.answer import error_row, row_of
from envaudit.probe.context import Context
from envaudit.probe.prefix import check_prefix, interpreter_of

SECTIONS = ("conda", "packages", "integrity")


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
    prefix = check_prefix(prefix)
    context = Context(
        environ={},
        workdir=prefix,
        launch="local",
        asked=prefix,
        interpreter=interpreter_of(prefix),
        options=options,
        static=prefix,
    )
    return {
        "tool": tool,
        "captured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "sections": [_row(name, context) for name in sections],
    }


def _row(name: str, context: Context) -> Dict[str, Any]:
    module = registry.load_section(name)
    try:
        return row_of(name, module.SCHEMA, module.read(context))
    except Exception as error:
        return error_row(name, module.SCHEMA, f"{type(error).__name__}: {error}")
