"""Folding of node names for reports: `node01 node02 node04` is `node[01-02,04]`.

Node sets that a user types (groups, set operators) are read by ClusterShell on the controller;
this is the plain form that reports print, and that the one-file form, which has no ClusterShell,
can read back.
"""

from __future__ import annotations

import re
from itertools import groupby
from typing import Dict, Iterable, List, Tuple

from envaudit.errors import UsageError

_LAST_NUMBER = re.compile(r"(?P<head>.*?)(?P<number>[0-9]+)(?P<tail>[^0-9]*)\Z", re.S)
_RANGE = re.compile(r"(?P<first>[0-9]+)(-(?P<last>[0-9]+))?\Z")
_MAX_NODES = 1_000_000
# Python refuses to read longer digit strings as an integer; nobody numbers nodes so high.
_MAX_DIGITS = 18


def fold(nodes: Iterable[str]) -> str:
    """Node names as one folded, sorted text; the last number of each name is folded.

    >>> fold(["node03", "node01", "node02", "login"])
    'login,node[01-03]'
    """
    families: Dict[Tuple[str, str, int], List[int]] = {}
    plain = []
    for name in set(nodes):
        match = _LAST_NUMBER.match(name)
        if match is None or len(match["number"]) > _MAX_DIGITS:
            plain.append(name)
            continue
        digits = match["number"]
        # Zero-padded numbers keep their width; others stand together whatever their length.
        width = len(digits) if digits.startswith("0") and len(digits) > 1 else 0
        families.setdefault((match["head"], match["tail"], width), []).append(int(digits))
    _join_padded(families)
    parts = list(plain)
    for (head, tail, width), numbers in families.items():
        numbers.sort()
        if len(numbers) == 1:
            parts.append(f"{head}{numbers[0]:0{width}d}{tail}")
        else:
            parts.append(f"{head}[{_ranges(numbers, width)}]{tail}")
    return ",".join(sorted(parts, key=natural_key))


def expand(text: str) -> Tuple[str, ...]:
    """The names of a folded text, sorted; the inverse of `fold`.

    Raises:
        UsageError: brackets that do not match, a range that is none, or too many nodes.
    """
    names: List[str] = []
    for part in _split_commas(text):
        match = re.match(r"(?P<head>[^\[\]]*)\[(?P<ranges>[^\[\]]*)\](?P<tail>[^\[\]]*)\Z", part)
        if match is None:
            if "[" in part or "]" in part:
                raise UsageError(f"'{part}' is not a node set")
            names.append(part)
            continue
        for item in match["ranges"].split(","):
            names += [f"{match['head']}{number}{match['tail']}" for number in _numbers(item, part)]
        if len(names) > _MAX_NODES:
            raise UsageError(f"'{part}' names more than {_MAX_NODES} nodes")
    return tuple(sorted(set(names), key=natural_key))


def natural_key(name: str) -> Tuple[Tuple[int, int, str], ...]:
    """Sort key that puts node2 before node10."""
    parts = re.findall(r"[0-9]{1,18}|[^0-9]+", name)
    return tuple((0, int(part), part) if part[0] in "0123456789" else (1, 0, part) for part in parts)


def _join_padded(families: Dict[Tuple[str, str, int], List[int]]) -> None:
    """Let node10 stand with node09: numbers that fill the width of a padded family join it."""
    for head, tail, width in sorted(families, key=lambda key: -key[2]):
        natural = families.get((head, tail, 0))
        if not width or not natural:
            continue
        fits = [number for number in natural if len(str(number)) == width]
        families[(head, tail, width)] += fits
        rest = [number for number in natural if len(str(number)) != width]
        if rest:
            families[(head, tail, 0)] = rest
        else:
            del families[(head, tail, 0)]


def _ranges(numbers: List[int], width: int) -> str:
    parts = []
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        first, last = f"{members[0]:0{width}d}", f"{members[-1]:0{width}d}"
        parts.append(first if first == last else f"{first}-{last}")
    return ",".join(parts)


def _numbers(item: str, part: str) -> List[str]:
    match = _RANGE.match(item)
    if match is None or len(item) > 2 * _MAX_DIGITS + 1:
        raise UsageError(f"'{part}' is not a node set", why=f"'{item}' is no number and no range")
    first, last = match["first"], match["last"] or match["first"]
    if int(last) < int(first) or int(last) - int(first) >= _MAX_NODES:
        raise UsageError(f"'{part}' is not a node set", why=f"'{item}' is an empty or huge range")
    width = len(first) if first.startswith("0") else 0
    return [f"{number:0{width}d}" for number in range(int(first), int(last) + 1)]


def _split_commas(text: str) -> List[str]:
    parts, depth, current = [], 0, ""
    for character in text:
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += character
    return [part.strip() for part in [*parts, current] if part.strip()]
