"""Messages between a hub and its members as bytes, and back: what arrives is untrusted.

    4 bytes     length of the JSON, big-endian
    JSON        [sequence, kind, body]
    32 bytes    HMAC-SHA256 over direction, sequence (8 bytes) and the JSON

The key comes from the token that both sides know and from a fresh nonce of each (`key_of`), so that
nothing recorded in another connection, in the other direction or earlier in this one is taken again.
Without a token the nonces alone make the key: damage is seen, a stranger is not.

Before the first frame each side says who it is in 42 bytes: magic, version, flags, nonce.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import re
import struct
from typing import Any, List, NamedTuple, Optional, Tuple

VERSION = 1
NONCE_BYTES = 32
GREETING_BYTES = 42

# Directions: part of what each HMAC covers.
TO_HUB = b"envaudit to hub\0"
TO_MEMBER = b"envaudit to member\0"

# What a connection may send before it has proved the token, with its first facts, and as a member;
# and what a member takes from its hub: a verdict over thousands of ranks.
MAX_JOIN_BYTES = 256
MAX_HELLO_BYTES = 64 * 1024
MAX_TO_HUB_BYTES = 1024 * 1024
MAX_TO_MEMBER_BYTES = 16 * 1024 * 1024
MAX_DEPTH = 32

_MAGIC = b"envaudit"
_IS_HUB = 1
_HAS_TOKEN = 2
_MAC_BYTES = 32
_LENGTH = struct.Struct(">I")
_SEQUENCE = struct.Struct(">Q")
# A kind of the caller's begins with a letter, one of this room's with an underscore.
_KIND = re.compile(r"_?[a-z][a-z0-9_.-]{0,47}\Z")
# 64 bits with a sign: no counter needs more, and long numbers cost quadratic time on old Pythons.
_MAX_DIGITS = 20
_LONG_NUMBER = re.compile(rb"[0-9]{%d}" % _MAX_DIGITS)
_SURROGATES = re.compile(
    r"\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}|(?P<alone>\\ud[89a-f][0-9a-f]{2})|\\.",
)


class Message(NamedTuple):
    """One message.

    Attributes:
        kind: what it is; one that begins with an underscore belongs to this room.
        body: JSON: null, booleans, integers, finite numbers, text, lists, objects.
        size_bytes: what its JSON took.
    """

    kind: str
    body: Any
    size_bytes: int


class Greeting(NamedTuple):
    """What each side says first.

    Attributes:
        version: of these messages; the two sides must have the same.
        is_hub: whether a hub speaks.
        has_token: whether it was given a token; told for a better error only, the key decides.
        nonce: 32 random bytes, of this connection alone.
    """

    version: int
    is_hub: bool
    has_token: bool
    nonce: bytes

    def to_bytes(self) -> bytes:
        """As it is sent."""
        flags = (_IS_HUB if self.is_hub else 0) | (_HAS_TOKEN if self.has_token else 0)
        return _MAGIC + bytes([self.version, flags]) + self.nonce


def greeting_of(data: bytes) -> Optional[Greeting]:
    """What 42 bytes say, None where they are no greeting."""
    if len(data) != GREETING_BYTES or not data.startswith(_MAGIC):
        return None
    version, flags = data[len(_MAGIC) : len(_MAGIC) + 2]
    return Greeting(version, bool(flags & _IS_HUB), bool(flags & _HAS_TOKEN), data[-NONCE_BYTES:])


def may_be_greeting(data: bytes) -> bool:
    """Whether these bytes may be the beginning of one."""
    return data[: len(_MAGIC)] == _MAGIC[: len(data)]


def key_of(token: bytes, member_nonce: bytes, hub_nonce: bytes) -> bytes:
    """The key of one connection."""
    context = b"envaudit control %d\0" % VERSION + member_nonce + hub_nonce
    return hmac.new(token, context, hashlib.sha256).digest()


def encode_body(body: Any, limit_bytes: int) -> bytes:
    """A body as JSON, once for all members that it goes to.

    Half surrogate pairs, which undecodable bytes become in Python, are replaced: no reader could
    write them down.

    Raises:
        ValueError: it is too long, not JSON, or holds NaN or an infinity.
    """
    try:
        text = json.dumps(body, separators=(",", ":"), allow_nan=False)
    except (TypeError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if "\\ud" in text:
        text = _SURROGATES.sub(lambda found: "\\ufffd" if found["alone"] else found[0], text)
    if len(text) > limit_bytes:
        raise ValueError(f"a body of {len(text)} bytes, {limit_bytes} are allowed")
    return text.encode("ascii")


class Sealer:
    """One direction of one connection, as its sender."""

    def __init__(self, key: bytes, direction: bytes) -> None:
        self._mac = hmac.new(key, direction, hashlib.sha256)
        self._sequence = 0

    def seal(self, kind: str, body: bytes) -> Tuple[bytes, bytes, bytes]:
        """The next frame in pieces: the body, which may be large, is not copied.

        Args:
            kind: lower-case letters, digits, `_`, `.` and `-`, at most 48.
            body: JSON, from `encode_body`.
        """
        if not _KIND.match(kind):
            raise ValueError(f"{kind!r} is no kind of message")
        head = b'[%d,"%s",' % (self._sequence, kind.encode("ascii"))
        mac = self._mac.copy()
        mac.update(_SEQUENCE.pack(self._sequence))
        for piece in (head, body, b"]"):
            mac.update(piece)
        self._sequence += 1
        return _LENGTH.pack(len(head) + len(body) + 1) + head, body, b"]" + mac.digest()


class Opener:
    """One direction of one connection, as its receiver. Memory: one message and what is fed at once.

    Attributes:
        limit_bytes: the longest message that is taken now.
        error: why nothing more is taken, "" while all is sound. Never any of the sender's words.
    """

    def __init__(self, key: bytes, direction: bytes, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.error = ""
        self._mac = hmac.new(key, direction, hashlib.sha256)
        self._sequence = 0
        self._buffer = bytearray()

    @property
    def partial_bytes(self) -> int:
        """How much has arrived of what is not a whole message yet."""
        return len(self._buffer)

    def feed(self, data: bytes) -> None:
        """Take what has arrived."""
        if not self.error:
            self._buffer += data

    def next(self) -> Optional[Message]:
        """The next whole message, None where there is none (yet, or any more: see `error`)."""
        if self.error or len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if not 2 <= length <= self.limit_bytes:
            return self._refuse(f"a message of {length} bytes, at most {self.limit_bytes} are allowed")
        end = _LENGTH.size + length
        if len(self._buffer) < end + _MAC_BYTES:
            return None
        payload, told = bytes(self._buffer[_LENGTH.size : end]), self._buffer[end : end + _MAC_BYTES]
        mac = self._mac.copy()
        mac.update(_SEQUENCE.pack(self._sequence))
        mac.update(payload)
        if not hmac.compare_digest(mac.digest(), bytes(told)):
            return self._refuse("a message that is altered, repeated, out of order or of another token")
        try:
            message = _read(payload, self._sequence)
        except ValueError as error:
            return self._refuse(str(error))
        del self._buffer[: end + _MAC_BYTES]
        self._sequence += 1
        return message

    def _refuse(self, why: str) -> Optional[Message]:
        self.error = why
        self._buffer = bytearray()
        return None


def _read(payload: bytes, sequence: int) -> Message:
    """A message that its sender has sealed, which does not make it sound."""
    try:
        told = json.loads(
            payload.decode("ascii"),
            # Asked for each number, it would double the time of a long message.
            parse_int=_integer if _LONG_NUMBER.search(payload) else None,
            parse_float=_number,
            parse_constant=_no_number,
        )
    except (ValueError, RecursionError):
        raise ValueError("a message that is not JSON") from None
    if not isinstance(told, list) or len(told) != 3:
        raise ValueError("a message that is not [sequence, kind, body]")
    number, kind, body = told
    if type(number) is not int or number != sequence:
        raise ValueError("a message out of order")
    if not isinstance(kind, str) or not _KIND.match(kind):
        raise ValueError("a message of no kind")
    if payload.count(b"[") + payload.count(b"{") > MAX_DEPTH:
        _check_depth(body)
    if b"\\ud" in payload or b"\\uD" in payload:
        _check_text(body)
    return Message(kind, body, len(payload))


def _check_depth(body: Any) -> None:
    level: List[Any] = [body] if isinstance(body, (dict, list)) else []
    for _ in range(MAX_DEPTH + 1):
        level = [
            child
            for value in level
            for child in (value.values() if isinstance(value, dict) else value)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return
    raise ValueError(f"a message nested deeper than {MAX_DEPTH}")


def _check_text(body: Any) -> None:
    """Half surrogate pairs cannot be written down again."""
    try:
        json.dumps(body, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("a message with half characters") from None


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError("a number too long")
    return int(digits)


def _number(digits: str) -> float:
    value = float(digits)
    if len(digits) > 64 or not math.isfinite(value):
        raise ValueError("a number too long or too large")
    return value


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number")
