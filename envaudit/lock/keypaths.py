"""Typed access to what was parsed of a YAML file: a fault names the file and the key path."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from envaudit.errors import InputError

Table = Mapping[str, Any]


class KeyedReader:
    """Values of the right type, or an `InputError`; `prefix` is the key path of the parent with its dot."""

    def __init__(self, path: str) -> None:
        """The reader of one file."""
        self.path = path

    def fault(self, key: str, expected: str, value: object) -> InputError:
        """What was expected at a key path, and what is there."""
        if value is None:
            got = "nothing"
        else:
            got = f"{value!r:.60}" if isinstance(value, str) else type(value).__name__
        return InputError(f"{key}: expected {expected}, got {got}", where=self.path)

    def mapping(self, parent: Table, key: str, prefix: str) -> Table:
        """Keys and values."""
        value = parent.get(key)
        if not isinstance(value, dict):
            raise self.fault(prefix + key, "a mapping", value)
        return value

    def sequence(self, parent: Table, key: str, prefix: str) -> list[Any]:
        """A list of anything."""
        value = parent.get(key)
        if not isinstance(value, list):
            raise self.fault(prefix + key, "a list", value)
        return value

    def text(self, parent: Table, key: str, prefix: str, form: re.Pattern[str] | None = None) -> str:
        """A text that is not empty, of that form where one is given."""
        value = parent.get(key)
        if not isinstance(value, str) or not value or (form is not None and not form.match(value)):
            raise self.fault(prefix + key, "a text" if form is None else f"a {key}", value)
        return value

    def texts(self, parent: Table, key: str, prefix: str) -> dict[str, str]:
        """Text to text."""
        value = self.mapping(parent, key, prefix)
        for name, item in value.items():
            if not isinstance(name, str) or not isinstance(item, str):
                raise self.fault(f"{prefix}{key}.{name}", "a text", item)
        return dict(value)

    def names(
        self,
        parent: Table,
        key: str,
        prefix: str,
        form: re.Pattern[str] | None = None,
        expected: str = "a text",
    ) -> tuple[str, ...]:
        """A list of texts, each of that form where one is given."""
        values = self.sequence(parent, key, prefix)
        for index, value in enumerate(values):
            if not isinstance(value, str) or (form is not None and not form.match(value)):
                raise self.fault(f"{prefix}{key}[{index}]", expected, value)
        return tuple(values)
