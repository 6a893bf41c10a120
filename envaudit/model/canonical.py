"""Canonical JSON and the digests over it.

A fact is a string, an integer, a boolean, null, or a list or map of facts. Floats are refused:
their text depends on who prints it, and a digest must not. The unit stands in the key instead
(`power_limit_mw`).
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Dict, List, Union

from envaudit.errors import InputError

# mypy has no recursive alias that Python 3.8 evaluates; the laws are enforced by `check_fact`.
Fact = Union[str, int, bool, None, List[Any], Dict[str, Any]]

# Made once: a fleet's snapshot has ten thousands of small values to hash.
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)

MAX_DEPTH = 32
MAX_INTEGER = 2**64
MAX_TEXT = 64 * 1024


def canonical_json(value: object) -> str:
    """The one text of a value: keys sorted, no spaces, ASCII only.

    ASCII escapes keep file names that are not UTF-8 (lone surrogates) representable.
    """
    return _ENCODER.encode(value)


def digest_of(value: object) -> str:
    """sha256 in hex over the canonical JSON of `value`."""
    return hashlib.sha256(canonical_json(value).encode("ascii")).hexdigest()


def check_fact(value: object, where: str, depth: int = 0) -> None:
    """Refuse what is no fact, naming its key path.

    Raises:
        InputError: a float, another type, a key that is no string, nesting deeper than
            `MAX_DEPTH`, an integer beyond `MAX_INTEGER`, or a text longer than `MAX_TEXT`.
    """
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, str):
        if len(value) > MAX_TEXT:
            raise InputError(f"text of {len(value)} characters, at most {MAX_TEXT} are taken", where=where)
    elif isinstance(value, int):
        if abs(value) > MAX_INTEGER:
            raise InputError("integer out of range", where=where)
    elif depth >= MAX_DEPTH:
        raise InputError(f"nested deeper than {MAX_DEPTH}", where=where)
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise InputError(f"expected a str key, got {type(key).__name__}", where=where)
            check_fact(item, f"{where}.{key}", depth + 1)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            check_fact(item, f"{where}[{index}]", depth + 1)
    else:
        raise InputError(
            f"expected str, int, bool, null, list or map, got {type(value).__name__}", where=where
        )
