"""What a list of names such as NCCL_SOCKET_IFNAME=^docker,lo or NCCL_IB_HCA==mlx5_0:1 takes.

The rules are those of NCCL's src/misc/utils.cc (parseStringList, matchIfList) and of its documented
environment variables: names are prefixes, `=` before the list makes them whole names, `^` excludes
what matches, `^=` excludes whole names, `:1` after a name is a port.
"""

from __future__ import annotations

import re
from typing import Iterable, List, NamedTuple, Sequence, Tuple

# MAX_IFS and MAX_IB_DEVS of NCCL; what comes after the 32nd is not looked at.
MAX_NAMES = 32
ANY_PORT = -1
# What C's isspace() takes; Python's has more.
_SPACES = r"[ \t-\r]*"
# What ncclFindInterfaces (src/misc/socket.cc) tries one after the other where nobody chose, each
# with the word for it. Between the first two it looks for the subnet of NCCL_COMM_ID.
OWN_CHOICE = (
    ("ib", "ib"),
    ("other", "^docker,lo,virbr"),
    ("docker", "docker"),
    ("lo", "lo"),
    ("virbr", "virbr"),
)


class Entry(NamedTuple):
    """One name of a list, with its port where it has one."""

    name: str
    port: int = ANY_PORT


class NameList(NamedTuple):
    """A list of names as NCCL reads it.

    Attributes:
        excludes: whether what matches is left out instead of taken.
        exact: whether names are whole names; else they are prefixes.
        entries: the names. Where there is none, everything matches.
    """

    excludes: bool
    exact: bool
    entries: Tuple[Entry, ...]

    @classmethod
    def parse(cls, text: str) -> NameList:
        """A list from the text of a variable; nothing is wrong with any text."""
        excludes = text.startswith("^")
        text = text[1:] if excludes else text
        exact = text.startswith("=")
        text = text[1:] if exact else text
        # parseStringList skips one such sign itself: `=^eth0` is `=eth0`.
        text = text[1:] if text[:1] in ("^", "=") else text
        entries = []
        for part in text.split(","):
            name, colon, port = part.partition(":")
            if name:
                entries.append(Entry(name, _leading_integer(port) if colon else ANY_PORT))
        return cls(excludes, exact, tuple(entries[:MAX_NAMES]))

    def takes(self, name: str, port: int = ANY_PORT) -> bool:
        """Whether an interface, or one port of an HCA, is taken."""
        matches = not self.entries or any(self._matches(entry, name, port) for entry in self.entries)
        return matches != self.excludes

    def names(self, name: str) -> bool:
        """Whether the list says this whole name, rather than that it takes it by a prefix."""
        return not self.excludes and any(entry.name == name for entry in self.entries)

    def idle(self, present: Sequence[Tuple[str, int]]) -> List[str]:
        """The entries of a list that takes, which match none of the names and ports that are there."""
        if self.excludes:
            return []
        return [
            entry.name if entry.port == ANY_PORT else f"{entry.name}:{entry.port}"
            for entry in self.entries
            if not any(self._matches(entry, name, port) for name, port in present)
        ]

    def _matches(self, entry: Entry, name: str, port: int) -> bool:
        same = name == entry.name if self.exact else name.startswith(entry.name)
        return same and (ANY_PORT in (port, entry.port) or port == entry.port)


def chosen(names: Iterable[str], in_subnet: Iterable[str] = ()) -> Tuple[str, List[str]]:
    """What NCCL takes where NCCL_SOCKET_IFNAME is not set: the word for the step, and the names.

    Args:
        names: the running interfaces that have an address, in the kernel's order.
        in_subnet: those of them that are in the subnet of NCCL_COMM_ID.
    """
    there, near = list(names), list(in_subnet)
    for step, text in OWN_CHOICE:
        if step == "other" and near:
            return "subnet", near[:1]
        wanted = NameList.parse(text)
        taken = [name for name in there if wanted.takes(name)]
        if taken:
            return step, taken[:MAX_NAMES]
    return "none", []


def integer(text: str, default: int) -> int:
    """A number as NCCL_PARAM reads it (src/misc/param.cc): strtoll with base 0, no number is 0."""
    if not text:
        return default
    match = re.match(_SPACES + r"([+-]?)(0[xX][0-9a-fA-F]{1,15}|0[0-7]{0,20}|[1-9][0-9]{0,17})", text)
    if match is None:
        return 0
    digits = match.group(2)
    base = 16 if digits[1:2] in ("x", "X") else 8 if digits[0] == "0" else 10
    return int(match.group(1) + digits, base)


def _leading_integer(text: str) -> int:
    """C's atoi."""
    match = re.match(_SPACES + r"([+-]?[0-9]{1,9})", text)
    return int(match.group(1)) if match else 0
