"""JSON, YAML and TOML to plain values, every fault an `InputError`; and values of the expected type."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from envaudit.errors import InputError

# A dotted key costs the reader the square of its length, and none is longer than five.
_QUOTED = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'")
_LONG_KEY = re.compile(r"(?<![\w-])(?:[\w-]+[ \t]*\.[ \t]*){64}")


def json_of(text: str, where: str) -> Any:
    """The value of a JSON text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(
            f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}", where=where
        ) from None
    except (ValueError, RecursionError) as error:
        raise InputError("not JSON", where=where, why=str(error)[:200]) from None


def yaml_of(text: str, where: str) -> Any:
    """The value of a YAML text, every scalar as its text: `1.10` is no number.

    A base loader makes texts, lists and maps only, and an alias is the same object again.
    """
    import yaml

    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        return yaml.load(text, Loader=loader)  # noqa: S506  (a base loader makes texts only)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{where}:{mark.line + 1}:{mark.column + 1}" if mark else where
        raise InputError("not YAML", where=place, why=str(error.problem)) from None
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise InputError("not YAML", where=where, why=str(error).split("\n")[0][:200]) from None


def toml_of(text: str, where: str) -> dict[str, Any]:
    """The table of a TOML text."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    if _LONG_KEY.search(_QUOTED.sub("q", text)):
        raise InputError("not TOML", where=where, why="a key of more than 64 parts")
    try:
        table = dict(tomllib.loads(text))
        # A hexadecimal number is read at any length, and beyond 4300 digits cannot be shown.
        str(table)
        return table
    except (ValueError, RecursionError) as error:
        raise InputError("not TOML", where=where, why=str(error)[:200]) from None


def text_at(table: object, *keys: str) -> str:
    """A text inside maps; empty where there is none."""
    value = table
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


def table_at(table: object, *keys: str) -> Mapping[str, Any]:
    """A map inside maps; empty where there is none."""
    value = table
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def rows_at(table: object, *keys: str) -> list[Any]:
    """A list inside maps; empty where there is none."""
    value = table
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, list) else []


def shown(value: object) -> str:
    """The beginning of a text; of anything else its type, for aliases make a few bytes of YAML endless."""
    return value[:80] if isinstance(value, str) else f"a {type(value).__name__}"


def tables_at(table: object, *keys: str) -> Iterator[Mapping[str, Any]]:
    """The maps of a list inside maps."""
    return (row for row in rows_at(table, *keys) if isinstance(row, dict))
