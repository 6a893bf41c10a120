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

_NUMBER = re.compile(r"[0-9]+")
_RANGE = re.compile(r"(?P<first>[0-9]+)(-(?P<last>[0-9]+))?\Z")
_MAX_NODES = 1_000_000
# Python refuses to read longer digit strings as an integer; nobody numbers nodes so high.
_MAX_DIGITS = 18


def fold(nodes: Iterable[str], *, for_slurm: bool = False) -> str:
    """Node names as one folded, sorted text.

    The last number in which names differ is folded, whatever follows it: `ib0`, `ec2.internal`. Slurm
    takes no range in brackets unless it ends the name (slurm.conf(5), NodeName).

    >>> fold(["node03", "node01", "node02", "login"])
    'login,node[01-03]'
    """
    numbers = {name: [match.span() for match in _NUMBER.finditer(name)] for name in nodes}
    parts = []
    place = 1
    while any(len(spans) >= place for spans in numbers.values()):
        alike: Dict[Tuple[str, str], List[str]] = {}
        for name, spans in numbers.items():
            if len(spans) >= place:
                start, end = spans[-place]
                if for_slurm and end < len(name):
                    continue
                alike.setdefault((name[:start], name[end:]), []).append(name[start:end])
        for (head, tail), written in alike.items():
            written = [digits for digits in written if len(digits) <= _MAX_DIGITS]
            if len(written) > 1:
                parts += _folded(head, tail, written)
                for digits in written:
                    del numbers[f"{head}{digits}{tail}"]
        place += 1
    return ",".join(sorted([*parts, *numbers], key=natural_key))


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


def _folded(head: str, tail: str, written: Iterable[str]) -> List[str]:
    """The names with these numbers, one text for each width that they are padded to."""
    families: Dict[int, List[int]] = {}
    for digits in written:
        # Zero-padded numbers keep their width; others stand together whatever their length.
        width = len(digits) if digits.startswith("0") and len(digits) > 1 else 0
        families.setdefault(width, []).append(int(digits))
    _join_padded(families)
    parts = []
    for width, numbers in families.items():
        numbers.sort()
        ranges = _ranges(numbers, width)
        parts.append(f"{head}[{ranges}]{tail}" if len(numbers) > 1 else f"{head}{ranges}{tail}")
    return parts


def _join_padded(families: Dict[int, List[int]]) -> None:
    """Let node10 stand with node09: numbers that fill the width of a padded family join it."""
    for width in sorted(families, reverse=True):
        natural = families.get(0)
        if not width or not natural:
            continue
        families[width] += [number for number in natural if len(str(number)) == width]
        families[0] = [number for number in natural if len(str(number)) != width]
    if not families.get(0, True):
        del families[0]


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
