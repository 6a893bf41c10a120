"""The keys of `envaudit.toml`, and what is wrong with a file: every fault with its key path."""

from __future__ import annotations

from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Tuple

from envaudit.model.codec import SECTION_SCHEMAS
from envaudit.model.finding import THRESHOLDS

TRANSPORTS = ("ssh", "exec", "local")
PRIORITIES = ("strict", "flexible", "disabled")

_MAX_FOLDERS = 64


class PolicyFile(NamedTuple):
    """A file that says how a run is judged.

    Attributes:
        path: where it was found.
        table: its tables, without faults.
        sha256: of its bytes as they were read, hexadecimal.
    """

    path: str
    table: Mapping[str, Any]
    sha256: str


# Key to (accepted type, what the message says, extra check giving a complaint or nothing).
_NODES_KEYS: Dict[str, Tuple[Any, str]] = {
    "hosts": (str, "a node set"),
    "transport": (str, "one of " + ", ".join(TRANSPORTS)),
    "workdir": (str, "a folder"),
    "folders": (list, f"a list of absolute paths, {_MAX_FOLDERS} at most"),
    "timeout": (int, "seconds, 1 to 3600"),
    "fanout": (int, "a number, 1 to 4096"),
    "python": (str, "an interpreter"),
    "command": (str, "a command template that ends in {python}"),
    "ssh-config": (str, "a file"),
    "interpreters": (dict, "a table of node set = interpreter"),
}
_RANGES = {"timeout": (1, 3600), "fanout": (1, 4096), "max-bad-fraction": (0, 1)}
_GATE_KEYS: Dict[str, Tuple[Any, str]] = {
    "fail-on": (str, "one of " + ", ".join(THRESHOLDS)),
    "require": (list, "a list of sections, of " + ", ".join(SECTION_SCHEMAS)),
    "profile": (str, "a profile"),
    "must-match": (list, "a list of package names"),
    "max-bad-fraction": ((int, float), "a part of the nodes, 0 to 1"),
    "prolog": (list, "a list of rules"),
}
_LOCK_KEYS: Dict[str, Tuple[Any, str]] = {
    "sources": (list, "a list of environment files"),
    "output": (str, "the file of the lock"),
    "platforms": (list, "a list of platforms"),
    "virtual-packages": (str, "a file"),
    "channel-priority": (str, "one of " + ", ".join(PRIORITIES)),
}
_TABLES = {"nodes": _NODES_KEYS, "gate": _GATE_KEYS, "lock": _LOCK_KEYS}
# Tables that `policyfile` reads.
_POLICY_TABLES = ("rules", "paths", "waivers", "roles")
_POLICY_KEYS = ("profile", "must-match", "prolog")


def has_policy(table: Mapping[str, Any]) -> bool:
    """Whether a file says how a run is judged in tables or keys that `policyfile` reads."""
    gate = table.get("gate")
    return any(name in table for name in _POLICY_TABLES) or (
        isinstance(gate, dict) and any(key in gate for key in _POLICY_KEYS)
    )


def nearest(name: str, known: Iterable[str]) -> str:
    """`, did you mean 'fanout'?`, or what there is."""
    import difflib

    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f", did you mean '{close[0]}'?" if close else f", known are {', '.join(names)}"


def faults_of(table: Mapping[str, Any]) -> Iterator[str]:
    """Every fault of a file's tables but those of its policy, `nodes.timeout: expected ..., got ...`."""
    for name, value in table.items():
        keys = _TABLES.get(name)
        if name in _POLICY_TABLES:
            continue
        if keys is None:
            yield f"{name}: unknown table{nearest(name, (*_TABLES, *_POLICY_TABLES))}"
        elif not isinstance(value, dict):
            yield f"{name}: expected a table, got {type(value).__name__}"
        else:
            for key, item in value.items():
                yield from (f"{name}.{key}: {complaint}" for complaint in _complaints(keys, key, item))


def _complaints(keys: Mapping[str, Tuple[Any, str]], key: str, value: Any) -> List[str]:
    if key not in keys:
        return [f"unknown key{nearest(key, keys)}"]
    if key in _POLICY_KEYS:
        return []
    kind, meaning = keys[key]
    wrong = not isinstance(value, kind) or isinstance(value, bool) or not _is_sensible(key, value)
    return [f"expected {meaning}, got {value!r}"] if wrong else []


def _is_sensible(key: str, value: Any) -> bool:
    """Whether a value of the right type is one that the key can have."""
    if key in _RANGES:
        return bool(_RANGES[key][0] <= value <= _RANGES[key][1])
    if key == "transport":
        return value in TRANSPORTS
    if key == "fail-on":
        return value in THRESHOLDS
    if key == "channel-priority":
        return value in PRIORITIES
    if key == "require":
        return all(isinstance(item, str) and item in SECTION_SCHEMAS for item in value)
    if key == "folders":
        paths = [item for item in value if isinstance(item, str) and item.startswith("/")]
        return paths == value and len(paths) <= _MAX_FOLDERS and not any("\0" in path for path in paths)
    if key in ("sources", "platforms"):
        return all(isinstance(item, str) and "\0" not in item for item in value)
    if key == "interpreters":
        return all(isinstance(item, str) and item for item in value.values())
    return bool(value) and "\0" not in value and "\n" not in value
