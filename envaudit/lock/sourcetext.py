"""Bytes of a file that a person wrote, to text: whatever their editor or shell saved it as."""

from __future__ import annotations

import codecs
import os
import stat
from typing import NamedTuple

from envaudit.errors import InputError

# The largest public environment file is below 100 kB; a megabyte is no list of packages.
MAX_BYTES = 1 << 20

# The longer mark first: UTF-32's little-endian mark begins with UTF-16's.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class Decoded(NamedTuple):
    """A file's text.

    Attributes:
        text: with LF as the only line end, without a byte order mark.
        encoding: `utf-8`, `utf-16-le`, ...
        has_mark: whether a byte order mark stood before it.
    """

    text: str
    encoding: str
    has_mark: bool


def read_text(path: str, *, named: bool = True) -> Decoded:
    """A file's text, decoded.

    Args:
        path: of the file.
        named: by the user, who may give a pipe. What a lock or another file names must be a file: one
            that waits for a terminal would never end.

    Raises:
        InputError: it cannot be read, is larger than `MAX_BYTES`, or is no text.
    """
    try:
        mode = os.stat(path).st_mode
        if not named and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise InputError("is a device or a pipe, expected a file", where=path)
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        raise InputError("cannot be read", where=path, why=why) from None
    if len(data) > MAX_BYTES:
        raise InputError(
            f"is larger than {MAX_BYTES // 1024} KiB",
            where=path,
            next_step="A list of packages is not; is it the right file?",
        )
    return decode(data, path)


def decode(data: bytes, path: str) -> Decoded:
    """Bytes to text, by their byte order mark or by where their zeros stand.

    Raises:
        InputError: they are no text in any of the encodings.
    """
    encoding, mark = _encoding_of(data)
    try:
        text = data[len(mark) :].decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start + len(mark)) + 1
        raise InputError(
            f"is not {encoding.upper()}",
            where=f"{path}:{line}",
            why=f"byte 0x{error.object[error.start]:02x} at offset {error.start + len(mark)}",
            next_step="Save it as UTF-8.",
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InputError("is not text", where=f"{path}:{line}", why="it holds NUL characters")
    return Decoded(text.replace("\r\n", "\n").replace("\r", "\n"), encoding, bool(mark))


def _encoding_of(data: bytes) -> tuple[str, bytes]:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return encoding, mark
    # Text that begins with two ASCII characters, saved as UTF-16 without its mark.
    if len(data) >= 4 and data[1] == 0 and data[3] == 0 and data[0] and data[2]:
        return "utf-16-le", b""
    if len(data) >= 4 and data[0] == 0 and data[2] == 0 and data[1] and data[3]:
        return "utf-16-be", b""
    return "utf-8", b""
