"""An answer as lines, and back: what a node sends is untrusted.

    @envaudit <nonce> <node> <i>/<n> <base64>

Banners and shells write before the answer, and srun mixes the lines of several tasks, so that an
answer is cut into lines short enough for a pipe to keep whole. Frame 0 carries the sha256 of the
rest; frames 1 to n are the deflated JSON. The nonce is known to one node alone.
"""

from __future__ import annotations

import binascii
import hashlib
import zlib
from typing import Dict, List, Optional

MARK = b"@envaudit "

MAX_INFLATED_BYTES = 16 * 1024 * 1024
MAX_LINE_BYTES = 64 * 1024
MAX_RAW_BYTES = 32 * 1024 * 1024

# A pipe takes up to 4096 bytes (PIPE_BUF on Linux) in one piece; nonce, name (at most 253) and
# numbers stay below the rest.
_FRAME_CHARACTERS = 3600
_MAX_FRAMES = MAX_RAW_BYTES // _FRAME_CHARACTERS
_MAX_NUMBER_DIGITS = 6


class FrameError(Exception):
    """Frames that contradict one another or their digest, or that inflate beyond the limit."""


def encode(json_text: str, *, nonce: str, node: str) -> List[bytes]:
    """The lines of an answer, each with its newline."""
    blob = zlib.compress(json_text.encode("ascii"), 6)
    text = binascii.b2a_base64(blob, newline=False)
    pieces = [binascii.b2a_base64(hashlib.sha256(blob).digest(), newline=False)]
    pieces += [text[at : at + _FRAME_CHARACTERS] for at in range(0, len(text), _FRAME_CHARACTERS)]
    total = len(pieces) - 1
    head = MARK + f"{nonce} {node} ".encode("ascii")
    return [head + b"%d/%d %s\n" % (index, total, piece) for index, piece in enumerate(pieces)]


class Reader:
    """The answer of one node, from its output in whatever pieces it arrives.

    Memory stays below the limits whatever the node sends. The name that a frame claims is not
    looked at: the caller knows from whom it reads.

    Attributes:
        raw_bytes: how much has been fed.
        seen: whether any frame of this nonce arrived.
        stop_line: the last line that begins with `watch_for`, b"" without one.
        last_line: the last line that is no frame, at most 512 bytes of it.
    """

    def __init__(self, nonce: str, watch_for: bytes = b"") -> None:
        self.raw_bytes = 0
        self.stop_line = b""
        self.last_line = b""
        self._head = MARK + nonce.encode("ascii") + b" "
        self._watch_for = watch_for
        self._pieces: Dict[int, bytes] = {}
        self._total: Optional[int] = None
        self._partial = b""
        self._skipping = False

    @property
    def seen(self) -> bool:
        """Whether any frame of this nonce arrived."""
        return self._total is not None

    @property
    def whole(self) -> bool:
        """Whether every frame arrived."""
        return self._total is not None and len(self._pieces) == self._total + 1

    @property
    def overflown(self) -> bool:
        """Whether the node has said more than an answer may take."""
        return self.raw_bytes > MAX_RAW_BYTES

    def feed(self, chunk: bytes) -> None:
        """Take some output.

        Raises:
            FrameError: a frame that contradicts an earlier one.
        """
        self.raw_bytes += len(chunk)
        if self.overflown or self.whole:
            return
        body, newline, tail = (self._partial + chunk).rpartition(b"\n")
        if newline:
            if self._skipping:
                body = body.partition(b"\n")[2]
                self._skipping = False
            self._lines(body)
        if self._skipping or len(tail) > MAX_LINE_BYTES:
            self._skipping = True
            tail = b""
        self._partial = tail

    def _lines(self, body: bytes) -> None:
        """Take whole lines. Noise is not looked at line by line: there may be millions of them."""
        at = body.find(self._head)
        while at >= 0 and not self.whole:
            # A prompt or a title sequence without newline may stand before the mark.
            end = body.find(b"\n", at)
            end = len(body) if end < 0 else end
            if end - at <= MAX_LINE_BYTES:
                self._frame_line(body[at + len(self._head) : end])
            at = body.find(self._head, end)
        if self._watch_for:
            at = (b"\n" + body).rfind(b"\n" + self._watch_for)
            if at >= 0:
                self.stop_line = body[at:].partition(b"\n")[0][:512]
        last = body.rstrip().rpartition(b"\n")[2]
        if last and self._head not in last:
            self.last_line = last[-512:]

    def _frame_line(self, rest: bytes) -> None:
        words = rest.split()
        if len(words) != 3:
            return
        index, slash, total = words[1].partition(b"/")
        if slash and _is_number(index) and _is_number(total):
            self._frame(int(index), int(total), words[2])

    def _frame(self, index: int, total: int, piece: bytes) -> None:
        if self._total is None:
            if not 1 <= total <= _MAX_FRAMES:
                raise FrameError(f"an answer of {total} frames")
            self._total = total
        if total != self._total or index > total:
            raise FrameError(f"frame {index}/{total} in an answer of {self._total} frames")
        if self._pieces.setdefault(index, piece) != piece:
            raise FrameError(f"frame {index}/{total} arrived twice with different content")

    def text(self) -> str:
        """The answer's JSON.

        Raises:
            FrameError: no base64, another digest, more than 16 MiB inflated, no ASCII.
        """
        assert self.whole
        assert self._total is not None
        try:
            digest = binascii.a2b_base64(self._pieces[0])
            blob = binascii.a2b_base64(b"".join(self._pieces[i] for i in range(1, self._total + 1)))
        except binascii.Error as error:
            raise FrameError(f"no base64: {error}") from None
        if hashlib.sha256(blob).digest() != digest:
            raise FrameError("the digest differs from the content")
        inflater = zlib.decompressobj()
        try:
            inflated = inflater.decompress(blob, MAX_INFLATED_BYTES + 1)
        except zlib.error as error:
            raise FrameError(f"does not inflate: {error}") from None
        if len(inflated) > MAX_INFLATED_BYTES:
            raise FrameError(f"inflates to more than {MAX_INFLATED_BYTES >> 20} MiB")
        if not inflater.eof:
            raise FrameError("does not inflate: incomplete")
        try:
            return inflated.decode("ascii")
        except UnicodeDecodeError:
            raise FrameError("holds characters beyond ASCII") from None


def _is_number(word: bytes) -> bool:
    return word.isdigit() and len(word) <= _MAX_NUMBER_DIGITS
