"""What others say, taken only in the shape in which it is true: the hub reckons with it afterwards.

A member has proved the token and may still be broken, or another version, or lie. Each function returns
what it takes, with texts cut, and raises ValueError (TypeError, KeyError) for what no supervisor and no
worker says: the member is then lost, by name, and the hub goes on. Standard library only.
"""

from __future__ import annotations

import ipaddress
from typing import AbstractSet, Any, Dict, List, Mapping, Optional

TEXT_MAX = 300
_STATUSES = ("ok", "wrong", "error", "not_run")
_MOST = 2**63
_MOST_CARDS = 1024
# Of a device a few dozen things are told.
_MOST_TRAITS = 64


def outcome(row: Mapping[str, Any], items: AbstractSet[str], world: int) -> Dict[str, Any]:
    """One of `rank.outcome_of`, of a collective that was asked for."""
    name = row["item"]
    if name not in items or row["status"] not in _STATUSES:
        raise ValueError("a collective that was not asked for, or a status that is none")
    times = [_count(row[key]) if row[key] is not None else None for key in ("shortest_ns", "median_ns")]
    if (times[0] is None) != (times[1] is None):
        raise ValueError("half of a time")
    return {
        "item": name,
        "status": row["status"],
        "reason": str(row["reason"])[:TEXT_MAX],
        "digest": str(row["digest"])[:16],
        "shortest_ns": times[0],
        "median_ns": times[1],
        "size_bytes": _count(row["size_bytes"]),
        "wrong": _evidence(row["wrong"], world) if row["status"] == "wrong" else None,
    }


def matrix(row: Mapping[str, Any], world: int) -> Dict[str, Any]:
    """One of `rank.Runner.matrix`."""
    return {"wrong": _sources(row["wrong"], world), "compared": _count(row["compared"])}


def device(row: Mapping[str, Any]) -> Dict[str, Any]:
    """What torch says of a device: words and numbers, and one level of them by name (flags)."""
    traits: Dict[str, Any] = {}
    for name, value in list(row.items())[:_MOST_TRAITS]:
        if isinstance(value, dict):
            flags = list(value.items())[:_MOST_TRAITS]
            traits[str(name)[:TEXT_MAX]] = {str(key)[:TEXT_MAX]: str(text)[:TEXT_MAX] for key, text in flags}
        elif value is None or isinstance(value, int):
            traits[str(name)[:TEXT_MAX]] = value
        else:
            traits[str(name)[:TEXT_MAX]] = str(value)[:TEXT_MAX]
    return traits


def facts(row: Any) -> Dict[str, Any]:
    """The facts of `hello.py`: texts, cards, an interface; what has no name there is left out."""
    if not isinstance(row, dict):
        raise ValueError("facts that are no map")
    cards, interface = row.get("gpus"), row.get("interface")
    if not isinstance(cards, (list, type(None))) or not isinstance(interface, (dict, type(None))):
        raise ValueError("cards that are no list, or an interface that is no map")
    taken: Dict[str, Any] = {
        name: _text(row.get(name))
        for name in (
            *("tool", "python", "torch", "torch_git", "cuda", "hip"),
            *("nccl", "cudnn", "driver", "busy"),
        )
    }
    taken["gpus"] = [
        {"uuid": _text(card.get("uuid")), "model": _text(card.get("model"))}
        for card in (cards or [])[:_MOST_CARDS]
    ]
    if interface is not None:
        own = interface.get("address")
        taken["interface"] = {
            "name": _text(interface.get("name")),
            "address": address(own) if own else None,
        }
    return taken


def devices(names: Any) -> List[str]:
    """`cpu`, or `cuda:` and a number."""
    taken = [str(name) for name in names]
    for name in taken:
        kind, _, ordinal = name.partition(":")
        if name != "cpu" and not (kind == "cuda" and ordinal.isdecimal() and len(ordinal) < 5):
            raise ValueError("a device that is none")
    return taken


def address(text: Any) -> str:
    """A numeric address, with a scope where it has one: nothing that a resolver would be asked for."""
    ipaddress.ip_address(str(text).partition("%")[0])
    return str(text)[:TEXT_MAX]


def port(number: Any) -> int:
    """A port that can be connected to."""
    if type(number) is not int or not 0 < number < 1 << 16:
        raise ValueError("a port that is none")
    return number


def _evidence(row: Mapping[str, Any], world: int) -> Dict[str, Any]:
    """One of `evidence.Evidence.to_json`, as far as `naming.py` reads it."""
    residual = row["residual"]
    ranks = [_count(rank) for rank in residual["ranks"]]
    if any(rank >= world for rank in ranks):
        raise ValueError("a rank beyond the world")
    return {
        "wrong": _count(row["wrong"]),
        "sources": _sources(row["sources"], world),
        "residual": {"kind": str(residual["kind"])[:TEXT_MAX], "ranks": ranks},
        "guards": _count(row["guards"]),
    }


def _sources(table: Mapping[str, Any], world: int) -> Dict[str, int]:
    taken = {str(int(source)): _count(count) for source, count in table.items()}
    if not all(0 <= int(source) < world for source in taken):
        raise ValueError("a rank beyond the world")
    return taken


def _count(number: Any) -> int:
    if type(number) is not int or not 0 <= number < _MOST:
        raise ValueError("a number that is none")
    return number


def _text(value: Any) -> Optional[str]:
    if value is not None and not isinstance(value, str):
        raise ValueError("a text that is none")
    return value[:TEXT_MAX] if isinstance(value, str) else None
