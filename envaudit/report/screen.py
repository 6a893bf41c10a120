"""Text that a node sent, made fit for a screen."""

from __future__ import annotations

from envaudit.model.printing import printable

__all__ = ["ELLIPSIS", "printable", "shortened"]

ELLIPSIS = "…"


def shortened(text: str, limit: int) -> str:
    """A text cut in the middle to at most `limit` characters; 0 leaves it whole."""
    if not limit or len(text) <= limit:
        return text
    tail = (limit - 1) // 2
    head = limit - 1 - tail
    return text[:head] + ELLIPSIS + (text[-tail:] if tail else "")
