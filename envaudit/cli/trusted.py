"""Which configuration files the user has trusted: path and sha256, in the user's state folder."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Dict

from envaudit.errors import NeededError
from envaudit.store import atomic_write


def folder(variable: str, fallback: str) -> str:
    """The user's envaudit folder under an XDG base directory."""
    base = os.environ.get(variable) or os.path.join(os.path.expanduser("~"), fallback)
    return os.path.join(base, "envaudit")


def is_trusted(path: str, data: bytes) -> bool:
    """Whether this file, with the content that was just read, has been trusted."""
    return _records().get(os.path.realpath(path)) == hashlib.sha256(data).hexdigest()


def trust(path: str, data: bytes) -> str:
    """Record a file with this content; gives its sha256."""
    digest = hashlib.sha256(data).hexdigest()
    records = _records()
    records[os.path.realpath(path)] = digest
    _write(records)
    return digest


def distrust(path: str) -> bool:
    """Forget a file; whether it was recorded."""
    records = _records()
    known = records.pop(os.path.realpath(path), None) is not None
    if known:
        _write(records)
    return known


def _file() -> str:
    return os.path.join(folder("XDG_STATE_HOME", os.path.join(".local", "state")), "trusted.json")


def _records() -> Dict[str, str]:
    """Path to sha256. A damaged record trusts nothing: the user is asked again."""
    try:
        with open(_file(), encoding="utf-8") as file:
            records = json.load(file)
    except (OSError, ValueError):
        return {}
    if not isinstance(records, dict):
        return {}
    return {path: digest for path, digest in records.items() if isinstance(digest, str)}


def _write(records: Dict[str, str]) -> None:
    path = _file()
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    except OSError as error:
        raise NeededError("cannot be made", where=os.path.dirname(path), why=str(error)) from None
    atomic_write(path, (json.dumps(records, indent=1, sort_keys=True) + "\n").encode())
