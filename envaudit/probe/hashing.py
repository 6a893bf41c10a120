"""Many files looked at by several processes: whether each is as its package recorded it.

In mode `hash` these are the files that did not pass `envaudit.probe.screening`, otherwise all.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import sys
import time
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from envaudit.probe.crew import Crew

CHANGED, MISSING = "changed", "missing"

# Half of what the second cache of a core holds: what was read is hashed before it leaves.
_BUFFER_BYTES = 256 << 10
# A part of the work has no more bytes and no more files than this.
_PART_BYTES, _PART_FILES = 16 << 20, 128
_NUMBER_BYTES = 4
# Where no size was recorded stands a script or a configuration; a sparse file may say exabytes.
_MAX_UNSIZED_BYTES = 16 << 30
# A file that was written within one tick of the file system's clock may be written again in it.
_SETTLED_NS = 2 * 10**9
_OPENED = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
# What it means that a file cannot be opened. In its place stands a socket, a device without a
# driver, or a loop of links.
_MEANING = {
    errno.ENOENT: MISSING,
    errno.ENOTDIR: MISSING,
    errno.ENXIO: CHANGED,
    errno.ENODEV: CHANGED,
    errno.ELOOP: CHANGED,
}

# Device, inode, size, mtime_ns and ctime_ns; algorithm and digest in hex.
Identity = Tuple[int, int, int, int, int]
Digest = Tuple[str, str]
# How many files and bytes are through.
Tell = Callable[[int, int], None]


class File(NamedTuple):
    """A file that is looked at, as a package has recorded it.

    Attributes:
        path: where it lies on this machine.
        accepted: the digests that it may have; empty where only its presence is known.
        sizes: bytes that it may have; empty where they are not known.
        is_link: it was a symbolic link; that it still is one is enough. The digest is that of its target.
    """

    path: str
    accepted: Sequence[Digest] = ()
    sizes: Sequence[int] = ()
    is_link: bool = False


class Found(NamedTuple):
    """All that was found.

    Attributes:
        changed: the numbers of the files that are not as recorded.
        missing: of those that are not there.
        errors: number of a file to why it could not be looked at.
        read_bytes: how much was hashed.
        known: digests by identity, of the files whose identity was settled.
    """

    changed: List[int]
    missing: List[int]
    errors: Dict[int, str]
    read_bytes: int
    known: Dict[Identity, Digest]


class Looking:
    """Files being looked at, from entering to leaving this context; the processes end with it."""

    def __init__(
        self,
        files: Sequence[File],
        *,
        contents: bool,
        deadline_s: float,
        believed: Optional[Mapping[Identity, Digest]] = None,
        remember: bool = False,
    ) -> None:
        """Prepare the work.

        Args:
            files: each is looked at once.
            contents: hash them; otherwise their kind and size alone are looked at.
            deadline_s: after so many seconds the processes end by their own alarm.
            believed: digests of earlier runs, believed where the identity is the same.
            remember: answer with the digests by identity.
        """
        self._weights = [max(file.sizes) if file.sizes else 0 for file in files]
        self._parts = _parts(self._weights, contents)
        self._given = 0
        self._crew = Crew(self._said_of, _NUMBER_BYTES, len(self._parts), deadline_s)
        self._worker = _Worker(files, contents, believed or {}, remember, self._crew.leave_if_orphaned)
        self._left = set(range(len(self._parts)))
        self._found = Found([], [], {}, 0, {})
        self._read_bytes = 0
        self._done = (0, 0)

    def __enter__(self) -> Looking:
        """Start the processes."""
        self._crew.__enter__()
        self._give()
        return self

    def __exit__(self, *about: object) -> None:
        """End whatever is still running."""
        self._crew.__exit__(*about)

    def result(self, tell: Optional[Tell] = None) -> Found:
        """Wait for all of it; `tell` hears now and then how far it is."""
        if not len(self._crew):
            for number in sorted(self._left):
                self._take(self._said_of(_numbered(number)), tell)
        for line in self._crew.answers(self._give):
            self._take(line, tell)
        for number in self._left:
            for index in self._parts[number]:
                self._found.errors[index] = "the process that looked at it was ended"
        return self._found._replace(read_bytes=self._read_bytes)

    def _give(self) -> bool:
        """Let the processes have what can wait for them; whether there is more."""
        while self._given < len(self._parts) and self._crew.give(_numbered(self._given)):
            self._given += 1
        return self._given < len(self._parts)

    def _said_of(self, piece: bytes) -> bytes:
        number = int.from_bytes(piece, "big")
        return json.dumps([number, *self._worker.look(self._parts[number])]).encode("ascii")

    def _take(self, line: bytes, tell: Optional[Tell]) -> None:
        number, read_bytes, states, known = json.loads(line.decode("ascii"))
        self._left.discard(number)
        self._read_bytes += read_bytes
        for index, state in states:
            if state == CHANGED:
                self._found.changed.append(index)
            elif state == MISSING:
                self._found.missing.append(index)
            else:
                self._found.errors[index] = state
        for *identity, algorithm, digest in known:
            self._found.known[tuple(identity)] = (algorithm, digest)
        files, weight = self._done
        part = self._parts[number]
        self._done = (files + len(part), weight + sum(map(self._weights.__getitem__, part)))
        if tell:
            tell(*self._done)


def _numbered(number: int) -> bytes:
    return number.to_bytes(_NUMBER_BYTES, "big")


def _parts(weights: Sequence[int], contents: bool) -> List[List[int]]:
    """The numbers of the files in parts, the largest first: what is left at the end is small."""
    most_bytes = _PART_BYTES if contents else sum(weights)
    parts: List[List[int]] = []
    weight = 0
    for index in sorted(range(len(weights)), key=weights.__getitem__, reverse=True):
        if not parts or len(parts[-1]) >= _PART_FILES or weight + weights[index] > most_bytes:
            parts.append([])
            weight = 0
        parts[-1].append(index)
        weight += weights[index]
    return parts


class _Worker:
    """What looks at files, one after the other, with one buffer."""

    def __init__(
        self,
        files: Sequence[File],
        contents: bool,
        believed: Mapping[Identity, Digest],
        remember: bool,
        between: Callable[[], None],
    ) -> None:
        self._files = files
        self._contents = contents
        self._believed = believed
        self._remember = remember
        self._between = between
        self._buffer = memoryview(bytearray(_BUFFER_BYTES if contents else 1))
        self._into = [self._buffer]
        self._read_bytes = 0
        self._known: List[Tuple[Any, ...]] = []

    def look(self, part: Sequence[int]) -> Tuple[int, List[Tuple[int, str]], List[Tuple[Any, ...]]]:
        """Bytes read; number and state of each file not as recorded; what is known of digests."""
        self._read_bytes = 0
        self._known = []
        states = []
        for index in part:
            try:
                state = self._state(self._files[index])
            except OSError as error:
                state = _MEANING.get(error.errno or 0) or _why(error)
            except ValueError as error:
                state = _why(error)  # an algorithm that this machine's policy forbids
            if state:
                states.append((index, state))
        return self._read_bytes, states, self._known

    def _state(self, file: File) -> str:
        path, accepted, sizes, is_link = file
        if is_link or not (accepted or sizes):
            seen = os.lstat(path)
            if stat.S_ISLNK(seen.st_mode) or not accepted:
                return ""
        seen = os.stat(path)
        if not stat.S_ISREG(seen.st_mode) or (sizes and seen.st_size not in sizes):
            return CHANGED
        if not self._contents or not accepted:
            return ""
        if not sizes and seen.st_size > _MAX_UNSIZED_BYTES:
            return f"{seen.st_size} bytes: too many for a file whose size was not recorded"
        if self._remember:
            return self._remembered(file, seen)
        for digest in self._digests(path, seen.st_size, accepted):
            if digest in accepted:
                return ""
        return CHANGED

    def _remembered(self, file: File, seen: os.stat_result) -> str:
        """Likewise, by what is believed of a file of this identity, and keeping what is found."""
        identity = _identity(seen)
        believed = self._believed.get(identity)
        if believed and believed[0] in {algorithm for algorithm, _ in file.accepted}:
            self._known.append((*identity, *believed))
            return "" if believed in file.accepted else CHANGED
        asked_ns = time.time_ns()
        digests = self._digests(file.path, seen.st_size, file.accepted)
        settled = max(seen.st_mtime_ns, seen.st_ctime_ns) + _SETTLED_NS < asked_ns
        if settled and _identity(os.stat(file.path)) == identity:
            self._known.append((*identity, *min(digests)))
        return "" if set(digests).intersection(file.accepted) else CHANGED

    def _digests(self, path: str, size_bytes: int, accepted: Sequence[Digest]) -> List[Digest]:
        """Those of a file that was seen to be a regular one, read no further than its size was."""
        # It may have become a FIFO meanwhile, which blocks without O_NONBLOCK.
        fd = os.open(path, _OPENED)
        try:
            buffer, into = self._buffer, self._into
            count = os.readv(fd, into)
            self._read_bytes += count
            sums = [_new(name, buffer[:count]) for name in {name for name, _ in accepted}]
            while count and size_bytes > count:
                self._between()
                size_bytes -= count
                count = os.readv(fd, into)
                self._read_bytes += count
                for each in sums:
                    each.update(buffer[:count])
        finally:
            os.close(fd)
        return [(each.name, each.hexdigest()) for each in sums]


def _identity(seen: os.stat_result) -> Identity:
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns


def _new(algorithm: str, data: memoryview) -> Any:
    if algorithm == "sha256":
        return hashlib.sha256(data)
    if algorithm in ("md5", "sha1") and sys.version_info >= (3, 9):
        return hashlib.new(algorithm, data, usedforsecurity=False)
    return getattr(hashlib, algorithm)(data)


def _why(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)[:200] or type(error).__name__
