"""`-r requirements.txt` in a pip section: the lines of the file behind the option.

Paths count from the file that has the line, as in pip. A file outside of the source's folder is
refused: a file under test must not read others on the machine that looks at it.
"""

from __future__ import annotations

import os
from dataclasses import replace

from envaudit.errors import InputError
from envaudit.lock.complaints import Complaints, shown
from envaudit.lock.entries import Entry, Located
from envaudit.lock.requirement import BadRequirement, parse_line
from envaudit.lock.sourcetext import read_text

_MAX_DEPTH = 16
_MAX_FILES = 100
_MAX_LINES = 5000


class Includes:
    """The requirements files that one source includes."""

    def __init__(self, source_path: str, complaints: Complaints) -> None:
        self._complaints = complaints
        self._folder = os.path.realpath(os.path.dirname(os.path.abspath(source_path)))
        self._files = 0
        self._lines_read = 0

    def lines_of(self, entry: Entry) -> list[Entry]:
        """The entries that an include stands for; none for any other entry.

        A file of constraints is looked for as well, but what it says is no entry.
        """
        if entry.kind == "pip_constraint":
            self._expand(entry, ())
        return self._expand(entry, ()) if entry.kind == "pip_include" else []

    def _expand(self, entry: Entry, open_files: tuple[str, ...]) -> list[Entry]:
        value = shown(entry.value)
        if "://" in value:
            self._fault(entry, f"'{value}' is on the network, and may say something else tomorrow",
                        "Keep the file beside this one.")  # fmt: skip
            return []
        path = os.path.join(os.path.dirname(entry.path), entry.value)
        real = os.path.realpath(path)
        if real != self._folder and not real.startswith(self._folder + os.sep):
            self._fault(entry, f"'{value}' is outside of this folder", "Move it beside this file.")
            return []
        if real in open_files:
            self._fault(entry, f"'{value}' includes itself", "Take one of the -r lines out.")
            return []
        self._files += 1
        if len(open_files) >= _MAX_DEPTH or self._files > _MAX_FILES:
            self._fault(entry, f"'{value}': includes go too deep, or are too many")
            return []
        try:
            text = read_text(path, named=False).text
        except InputError as error:
            why = f" ({error.why})" if error.why else ""
            self._fault(entry, f"'{value}' {error.what}{why}", "Paths count from the file that names them.")
            return []
        return self._lines(text, path, entry, (*open_files, real))

    def _lines(self, text: str, path: str, entry: Entry, open_files: tuple[str, ...]) -> list[Entry]:
        entries = []
        for written in joined_lines(text, path):
            self._lines_read += 1
            if self._lines_read > _MAX_LINES:
                self._fault(entry, f"includes of more than {_MAX_LINES} lines")
                break
            try:
                parsed = parse_line(written, entry.block)
            except BadRequirement as error:
                self._complaints.at("requirement", str(error), written, error.next_step)
                continue
            for one in parsed:
                one = replace(one, selector=entry.selector, platforms=entry.platforms)
                entries.append(one)
                if one.kind == "pip_include":
                    entries += self._expand(one, open_files)
        return entries

    def _fault(self, entry: Entry, message: str, next_step: str = "") -> None:
        place = Located("", entry.line, entry.column, entry.path)
        self._complaints.at("include", message, place, next_step)


def joined_lines(text: str, path: str) -> list[Located]:
    """The logical lines of a requirements file: a backslash at the end goes on in the next line."""
    lines: list[Located] = []
    parts: list[str] = []
    start = (1, 1)
    for number, line in enumerate(text.split("\n"), start=1):
        if not parts:
            start = number, len(line) - len(line.lstrip()) + 1
        stripped = line.strip()
        goes_on = stripped.endswith("\\") and not stripped.startswith("#")
        parts.append(stripped[:-1].rstrip() if goes_on else stripped)
        if not goes_on:
            lines.append(Located(" ".join(parts), *start, path))
            parts = []
    if parts:
        lines.append(Located(" ".join(parts), *start, path))
    return lines
