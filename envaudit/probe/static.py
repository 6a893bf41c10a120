"""An environment read by another Python: nothing of it is executed."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, Mapping, Optional, Sequence

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
    tell: Optional[Callable[[int, int, int, int], None]] = None,
) -> Dict[str, Any]:
    """What stands in a prefix, in the form of a probe's answer.

    Args:
        prefix: a conda environment or a virtual environment.
        tool: the version to state.
        sections: of `SECTIONS`.
        options: what sections are told that are read on request.
        tell: told how far the section `integrity` is, as `envaudit.probe.integrity` has it.

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
        "sections": [_row(name, context, tell) for name in sections],
    }


def _row(name: str, context: Context, tell: Optional[Callable[[int, int, int, int], None]]) -> Dict[str, Any]:
    module = registry.load_section(name)
    try:
        answer = module.read(context, tell) if name == "integrity" else module.read(context)
        return row_of(name, module.SCHEMA, answer)
    except Exception as error:
        return error_row(name, module.SCHEMA, f"{type(error).__name__}: {error}")
