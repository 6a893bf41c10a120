"""One snapshot run as one file: a gzip'd document, its name, and how it is read with bounds."""

from __future__ import annotations

import hashlib
import os
import re
import zlib
from typing import Any, BinaryIO, Dict, Match, Optional

from envaudit.errors import InputError
from envaudit.model.codec import UTC_TIME, decode_head, decode_snapshot, encode_snapshot
from envaudit.model.fingerprint import Snapshot
from envaudit.store.files import atomic_write, open_regular

EXTENSION = ".json.gz"
DIGEST_DIGITS = 8

# 10,000 nodes of which each has 5 kB of notes are 60 MB of text and a head of 2.5 MB.
MAX_TEXT_BYTES = 1 << 30
MAX_HEAD_BYTES = 16 << 20

# 20,000 equal nodes deflate to 1/120; deflate itself reaches 1/1032, which only a bomb needs.
MAX_RATIO = 600
_RATIO_FREE_BYTES = 64 << 20

_NAME = re.compile(
    r"(?P<stamp>\d{8}T\d{6}Z)-(?P<host>[A-Za-z0-9_][A-Za-z0-9._-]{0,63})-(?P<digest>[0-9a-f]{8})"
    r"(-\d{1,4})?\.json\.gz\Z",
    re.ASCII,
)
_GZIP_MAGIC = b"\x1f\x8b"
# zlib's window bits: 15 for the largest window, 16 more for a gzip header and CRC.
_GZIP_WBITS = 31
_CHUNK_BYTES = 256 * 1024
# The head of a few nodes lies within the first of these.
_HEAD_CHUNK_BYTES = 4096
_WRITE_ONE = "Give a file written by 'envaudit snapshot'."


def parse_name(name: str) -> Optional[Match[str]]:
    """The parts `stamp`, `host` and `digest` of a snapshot file's name; None when it is none."""
    return _NAME.match(name)


def stem_of(captured_at: str, host: str, document: bytes) -> str:
    """The file name before the extension: `<UTC>-<host>-<digest8>`, sorted by time."""
    clean = re.sub(r"[^A-Za-z0-9._-]", "_", host).lstrip("-.")[:64] or "_"
    return f"{stamp_of(captured_at)}-{clean}-{digest8(document)}"


def stamp_of(captured_at: str) -> str:
    """`2026-11-30T10:00:00Z` as `20261130T100000Z`.

    Raises:
        ValueError: not such a time.
    """
    # By hand: strptime imports the locale and the calendar, 4 ms of a snapshot.
    if not UTC_TIME.match(captured_at):
        raise ValueError(f"not a UTC time: {captured_at!r}")
    return captured_at[:19].replace("-", "").replace(":", "") + "Z"


def digest8(document: bytes) -> str:
    """The first digits of the document's sha256, as they stand in the file name."""
    return hashlib.sha256(document).hexdigest()[:DIGEST_DIGITS]


def pack(document: bytes) -> bytes:
    """The document as gzip, without time or name: equal documents are equal files."""
    deflater = zlib.compressobj(6, zlib.DEFLATED, _GZIP_WBITS)
    return deflater.compress(document) + deflater.flush()


def read_head(path: str) -> Dict[str, Any]:
    """The head of a stored file without reading the rest; its digests are claims.

    Raises:
        InputError: unreadable, corrupt, no snapshot, or of an unknown schema.
        FileNotFoundError: it is gone, for instance pruned since it was listed.
    """
    try:
        with open(open_regular(path), "rb") as stream:
            line = _first_line(stream, path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise unreadable(path, error) from error
    return decode_head(_as_text(line, path), path)


def read_document(path: str, *, follow: bool = False) -> bytes:
    """The whole document of a file, inflated where it is gzip; at most `MAX_TEXT_BYTES`.

    Raises:
        InputError: unreadable, empty, corrupt, or too large.
    """
    try:
        with open(open_regular(path, follow), "rb") as stream:
            start = stream.read(_CHUNK_BYTES)
            if not start:
                raise InputError("the file is empty", where=path, next_step=_WRITE_ONE)
            if start.startswith(_GZIP_MAGIC):
                return _inflate(start, stream, path)
            return _read_plain(start, stream, path)
    except OSError as error:
        raise unreadable(path, error) from error


def decode_document(document: bytes, path: str) -> Snapshot:
    """A document as a snapshot, all digests recomputed.

    Raises:
        InputError: naming `path` and the key path of the first fault.
    """
    return decode_snapshot(_as_text(document, path), path)


def read_snapshot_file(path: str) -> Snapshot:
    """A snapshot from a file that the user names, plain JSON or gzip, told by its content.

    Raises:
        InputError: unreadable, empty, corrupt, too large, or of an unknown schema.
    """
    return decode_document(read_document(path, follow=True), path)


def write_snapshot_file(path: str, snapshot: Snapshot, *, captured_at: str, tool: str) -> None:
    """A snapshot as a file that the user names: gzip when it ends in .gz, otherwise plain JSON.

    Raises:
        NeededError: it cannot be written; what was there before is untouched.
    """
    document = encode_snapshot(snapshot, captured_at=captured_at, tool=tool).encode("ascii")
    atomic_write(path, pack(document) if path.endswith(".gz") else document)


def advised(error: InputError) -> InputError:
    """The error of a file of a store: no user has given it, so that none can be given instead."""
    if error.next_step in ("", _WRITE_ONE):
        error.next_step = "See 'envaudit store verify'; restore the file, or move it away."
    return error


def unreadable(path: str, error: OSError) -> InputError:
    """What the user reads when `path` cannot be read."""
    return InputError("cannot be read", where=path, why=error.strerror or str(error))


def _first_line(stream: BinaryIO, path: str) -> bytes:
    inflater = zlib.decompressobj(_GZIP_WBITS)
    line, end = bytearray(), -1
    while end < 0:
        chunk = inflater.unconsumed_tail or stream.read(_HEAD_CHUNK_BYTES)
        if not chunk or inflater.eof:
            raise InputError("the file is empty or cut short", where=path, next_step=_WRITE_ONE)
        part = _step(inflater, chunk, path, _HEAD_CHUNK_BYTES)
        end = part.find(b"\n")
        line += part if end < 0 else part[: end + 1]
        if len(line) > MAX_HEAD_BYTES:
            raise InputError(f"its head is longer than {MAX_HEAD_BYTES} bytes", where=path)
    return bytes(line)


def _read_plain(start: bytes, stream: BinaryIO, path: str) -> bytes:
    parts, text_bytes = [start], len(start)
    while parts[-1]:
        parts.append(stream.read(_CHUNK_BYTES))
        text_bytes += len(parts[-1])
        if text_bytes > MAX_TEXT_BYTES:
            raise InputError(f"larger than {MAX_TEXT_BYTES} bytes", where=path)
    return b"".join(parts)


def _inflate(start: bytes, stream: BinaryIO, path: str) -> bytes:
    inflater = zlib.decompressobj(_GZIP_WBITS)
    parts, read_bytes, text_bytes = [], len(start), 0
    chunk = start
    while not inflater.eof:
        if not chunk:
            raise InputError("the file is cut short", where=path, next_step=_WRITE_ONE)
        parts.append(_step(inflater, chunk, path, _CHUNK_BYTES))
        text_bytes += len(parts[-1])
        if text_bytes > MAX_TEXT_BYTES:
            raise InputError(f"inflates to more than {MAX_TEXT_BYTES} bytes", where=path)
        if text_bytes > max(_RATIO_FREE_BYTES, MAX_RATIO * read_bytes):
            raise InputError(f"inflates to more than {MAX_RATIO} times its size", where=path)
        chunk = inflater.unconsumed_tail
        if not chunk and not inflater.eof:
            chunk = stream.read(_CHUNK_BYTES)
            read_bytes += len(chunk)
    if inflater.unused_data or stream.read(1):
        raise InputError("bytes follow the end of the gzip data", where=path, why="corrupt")
    return b"".join(parts)


def _step(inflater: Any, chunk: bytes, path: str, most_bytes: int) -> bytes:
    try:
        return inflater.decompress(chunk, most_bytes)  # type: ignore[no-any-return]
    except zlib.error as error:
        raise InputError("not a whole gzip file", where=path, why=str(error), next_step=_WRITE_ONE) from None


def _as_text(data: bytes, path: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError("not text", where=path, why=f"byte {error.start} is not UTF-8") from None


def in_folder(folder: str, name: str) -> str:
    """The path of a snapshot file by its name.

    Raises:
        InputError: the name is none of a snapshot file, `../../etc/x` for instance.
    """
    if parse_name(name) is None:
        raise InputError("not the name of a stored snapshot", where=ascii(name))
    return os.path.join(folder, name)
