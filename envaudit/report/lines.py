"""Lines of a report: spans of text, each with the name of a style that a format may colour."""

from __future__ import annotations

from typing import NamedTuple, Tuple, Union

STYLES = ("", "error", "incomplete", "warning", "info", "good", "head", "dim")


class Span(NamedTuple):
    """Printable text in one style of `STYLES`."""

    text: str
    style: str = ""


Line = Tuple[Span, ...]


def line(*parts: Union[str, Span]) -> Line:
    """A line from spans and unstyled texts."""
    return tuple(part if isinstance(part, Span) else Span(part) for part in parts)


def plain_text(of: Line) -> str:
    """A line without styles and without blanks at its end."""
    return "".join(span.text for span in of).rstrip()
