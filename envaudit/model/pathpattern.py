"""Fact paths with wildcards, as users, policies and rules write them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Iterable, Pattern, Tuple

from envaudit.errors import UsageError

# One character of a segment; `~0` and `~1` are one character each.
_ONE = "(?:~[01]|[^/~])"
_ANY_SEGMENTS = "(?:[^/]*/)*"


@dataclass(frozen=True)
class PathPattern:
    """A path with wildcards, as the user wrote it.

    `*` and `?` stand for characters within one segment, `**` for any number of segments; `~0`
    and `~1` are `~` and `/` within a segment. What matches a path matches all below it too.

    Attributes:
        text: as written.
        head: what the first segment, a section's name, must look like.
        whole: what the path must look like.
    """

    text: str
    head: Pattern[str]
    whole: Pattern[str]

    @classmethod
    def parse(cls, text: str, where: str) -> PathPattern:
        """A pattern from its text; `where` names the option.

        Raises:
            UsageError: it is empty, or a `~` stands alone.
        """
        segments = text.strip("/").split("/")
        while len(segments) > 1 and segments[-1] == "**":
            segments.pop()
        if segments == [""]:
            raise UsageError("an empty pattern", where=where, next_step="Give a path: conda/packages/*.")
        if re.search("~(?![01])", text):
            raise UsageError(
                f"'{text}' has a lone '~'", where=where, next_step="Write ~0 for '~' and ~1 for '/'."
            )
        *parents, last = segments
        whole = "".join(_ANY_SEGMENTS if part == "**" else f"{_segment(part)}/" for part in parents)
        whole += ".*" if last == "**" else _segment(last)
        head = ".*" if segments[0] == "**" else _segment(segments[0])
        return cls(text, re.compile(f"{head}\\Z"), re.compile(f"{whole}(?:/.*)?\\Z", re.DOTALL))

    def matches(self, path: str) -> bool:
        """Whether it is `path`, or one above it."""
        return self.whole.match(path) is not None


def patterns_of(texts: Iterable[str], where: str) -> Tuple[PathPattern, ...]:
    """Patterns from their texts.

    Raises:
        UsageError: as `PathPattern.parse`.
    """
    return tuple(PathPattern.parse(text, where) for text in texts)


def _segment(glob: str) -> str:
    marks = {"*": f"{_ONE}*", "?": _ONE}
    return "".join(marks.get(character, re.escape(character)) for character in glob)
