"""What is wrong with a file, collected while it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envaudit.lock import yamltext
from envaudit.lock.entries import Fault, Located

if TYPE_CHECKING:
    import yaml


_SHOWN_CHARACTERS = 120


def shown(text: str) -> str:
    """A text of the file for a message: its beginning, where it is long."""
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


class Complaints:
    """The faults of one file and of those it includes, in the order of their reading."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.faults: list[Fault] = []

    def at(self, kind: str, message: str, place: Located, next_step: str = "", *, fatal: bool = True) -> None:
        """Add a fault at a place; without a file of its own it is this one's."""
        path = place.path or self.path
        self.faults.append(Fault(kind, message, place.line, place.column, path, next_step, fatal))

    def of_node(self, kind: str, message: str, node: yaml.Node, next_step: str = "") -> None:
        """Add a fatal fault where a node begins."""
        self.at(kind, message, yamltext.located(node, self.path), next_step)
