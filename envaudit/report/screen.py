"""Text that a node sent, made fit for a screen."""

from __future__ import annotations

ELLIPSIS = "…"


def printable(text: str) -> str:
    r"""The text with everything that does not print written as an escape.

    Controls, terminal escapes, bidi and zero-width characters, line separators, surrogates,
    unassigned characters and spaces other than U+0020 become visible: `\x1b`, `\u202e`.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def shortened(text: str, limit: int) -> str:
    """A text cut in the middle to at most `limit` characters; 0 leaves it whole."""
    if not limit or len(text) <= limit:
        return text
    tail = (limit - 1) // 2
    head = limit - 1 - tail
    return text[:head] + ELLIPSIS + (text[-tail:] if tail else "")
