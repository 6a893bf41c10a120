"""From the bytes of a file to the text that its author saw."""

from __future__ import annotations

import codecs
import re

from envaudit.errors import InputError

# A whole conda-lock.yml for three platforms has 0.5 MB, the longest uv.lock seen 3 MB.
MAX_BYTES = 16 << 20

# PowerShell's `>` writes UTF-16 with a byte order mark. The longer mark begins like the shorter one.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Colours of a terminal that was recorded, and any other control but the line end and the tab.
_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?]{0,32}[ -/]{0,4}[@-~]|\][^\x07\x1b\n]{0,512}(?:\x07|\x1b\\))")
_CONTROL = re.compile(r"[\x01-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def decoded(data: bytes, where: str) -> str:
    """The text of a file, its lines ended by a newline, without terminal controls.

    Bytes that are no UTF-8 become U+FFFD.

    Raises:
        InputError: longer than `MAX_BYTES`, or with NUL characters, as no text has them.
    """
    if len(data) > MAX_BYTES:
        raise InputError(f"larger than {MAX_BYTES} bytes", where=where)
    mark, encoding = next((pair for pair in _MARKS if data.startswith(pair[0])), (b"", "utf-8"))
    text = data[len(mark) :].decode(encoding, "replace")
    if "\0" in text:
        raise InputError("not a text", where=where, why="it holds NUL characters")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub("", _SEQUENCE.sub("", text))
