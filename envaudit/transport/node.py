"""The node's half of a conversation: run the probe, write the answer in frames.

BOOT has verified the zip that this module comes from and watches over its process.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from typing import Any, Dict, Mapping

from envaudit.transport import frames

# Raised when the shape of an answer changes.
ANSWER_SCHEMA = 1

_MAX_REASON_CHARACTERS = 500


def answer(header: Mapping[str, Any]) -> int:
    """Write what the probe says of this machine, or why it says nothing, to standard output.

    Returns:
        The exit status: 0 when all of it is out.
    """
    # A collection in each of the probe's children would copy the pages they share; none lives long.
    gc.disable()
    said: Dict[str, Any] = {"schema": ANSWER_SCHEMA}
    try:
        from envaudit.probe import Refused

        try:
            from envaudit.probe.runner import probe

            said["answer"] = probe(header["request"])
        except Refused as error:
            said["refused"] = _reason(error)
        text = json.dumps(said, separators=(",", ":"), ensure_ascii=True)
    except Exception as error:  # whatever is wrong here is told rather than lost
        said = {"schema": ANSWER_SCHEMA, "crashed": f"{type(error).__name__}: {_reason(error)}"}
        text = json.dumps(said, ensure_ascii=True)
    lines = frames.encode(text, nonce=header["nonce"], node=header["node"])
    # One write a line, so that lines of several tasks on one pipe stay whole. The newline before
    # them ends whatever a login shell left on the line.
    lines[0] = b"\n" + lines[0]
    try:
        for line in lines:
            _write(line)
    except BrokenPipeError:
        sys.stderr.write("the controller went away before the answer was whole\n")
        return 1
    return 0


def _write(line: bytes) -> None:
    view = memoryview(line)
    while view:
        view = view[os.write(1, view) :]


def _reason(error: BaseException) -> str:
    return str(error)[:_MAX_REASON_CHARACTERS]
