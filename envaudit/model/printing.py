"""Text that a node sent, made fit for a screen or a page."""

from __future__ import annotations


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


def printable_lines(text: str) -> str:
    """Likewise, but for the ends of its lines."""
    return "\n".join(map(printable, text.split("\n")))


def escaped(text: str) -> str:
    """The text as HTML that says just that, in an element or in a quoted attribute."""
    import html  # its table of entities is of no use to the commands that print text

    return html.escape(printable(text))
