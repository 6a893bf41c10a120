"""Many files looked at by several processes: whether each is as its package recorded it.

Threads would take turns at the interpreter's lock for every small file. Each process has one buffer,
takes the next part of the work from a pipe that all of them share, and says what it found on a pipe
of its own. A process that loses its parent ends by itself.

A part is one text. The objects that it was made from stay untouched once the processes have started:
counting a reference to one would copy the page of memory that it lies on, in each process.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import select
import signal
import stat
import sys
import time
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from envaudit.probe import child

CHANGED, MISSING = "changed", "missing"

_MAX_PROCESSES = 8
# Half of what the second cache of a core holds: what was read is hashed before it leaves.
_BUFFER_BYTES = 256 << 10
# A part of the work has no more bytes and no more files than this, unless there would be too many
# parts: their numbers wait in a pipe, of which 4096 bytes are certain (pipe(7)).
_PART_BYTES, _PART_FILES, _MOST_PARTS = 16 << 20, 128, 400
_NUMBER_BYTES = 4
# Where no size was recorded stands a script or a configuration; a sparse file may say exabytes.
_MAX_UNSIZED_BYTES = 16 << 30
# A file that was written within one tick of the file system's clock may be written again in it.
_SETTLED_NS = 2 * 10**9
_READ_BYTES = 1 << 16
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
# How many files and bytes are through, and of how many.
Tell = Callable[[int, int, int, int], None]


class File(NamedTuple):
    """A file that is looked at, as a package has recorded it.

    Attributes:
        path: where it lies on this machine.
        accepted: the digests that it may have; empty where only its presence is known.
        sizes: bytes that it may have; empty where they are not known.
        is_link: it was a symbolic link; that it still is one is enough. The digest is that of its target.
        package: who says so.
    """

    path: str
    accepted: Sequence[Digest] = ()
    sizes: Sequence[int] = ()
    is_link: bool = False
    package: str = ""


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


class _Part(NamedTuple):
    """What one process looks at in one go: numbers of files, their bytes, and their texts (`_text`)."""

    indices: List[int]
    weight: int
    text: str


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
        weights = [max(file.sizes) if file.sizes else 0 for file in files]
        self._parts = _parts(files, weights, contents)
        self._worker = _Worker(files, contents, believed or {}, remember)
        self._deadline_s = deadline_s
        self._workers: Dict[int, int] = {}
        self._left = set(range(len(self._parts)))
        self._found = Found([], [], {}, 0, {})
        self._read_bytes = 0
        self._done = (0, 0)
        self._all = (len(files), sum(weights))

    def __enter__(self) -> Looking:
        """Start the processes."""
        reading, writing = os.pipe()
        parent = os.getpid()

        def work(fd: int) -> None:
            os.close(writing)
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            self._worker.parent = parent
            while True:
                number = os.read(reading, _NUMBER_BYTES)
                if not number:
                    return
                child.write_all(fd, self._said_of(int.from_bytes(number, "big")))

        try:
            for number in range(len(self._parts)):
                os.write(writing, number.to_bytes(_NUMBER_BYTES, "big"))
            for _ in range(min(processes(), len(self._parts))):
                try:
                    pid, fd = child.fork(work, self._deadline_s)
                except OSError:
                    break  # those that there are take all the work
                self._workers[fd] = pid
        finally:
            os.close(reading)
            os.close(writing)
        return self

    def __exit__(self, *about: object) -> None:
        """End whatever is still running."""
        for fd, pid in self._workers.items():
            os.close(fd)
            child.end(pid)
        self._workers.clear()

    def result(self, tell: Optional[Tell] = None) -> Found:
        """Wait for all of it; `tell` hears now and then how far it is."""
        if not self._workers:
            for number in sorted(self._left):
                self._take(self._said_of(number), tell)
        self._listen(tell)
        for number in self._left:
            for index in self._parts[number].indices:
                self._found.errors[index] = "the process that looked at it was ended"
        return self._found._replace(read_bytes=self._read_bytes)

    def _listen(self, tell: Optional[Tell]) -> None:
        poller = select.poll()
        said = {fd: bytearray() for fd in self._workers}
        for fd in said:
            poller.register(fd, select.POLLIN)
        while said:
            for fd, _ in poller.poll():
                chunk = os.read(fd, _READ_BYTES)
                *lines, rest = bytes(said[fd] + chunk).split(b"\n")
                said[fd] = bytearray(rest)
                for line in lines:
                    self._take(line, tell)
                if not chunk:
                    poller.unregister(fd)
                    del said[fd]
                    os.close(fd)
                    child.reap(self._workers.pop(fd))

    def _said_of(self, number: int) -> bytes:
        return json.dumps([number, *self._worker.look(self._parts[number])]).encode("ascii") + b"\n"

    def _take(self, line: bytes, tell: Optional[Tell]) -> None:
        number, read_bytes, states, known = json.loads(line.decode("ascii"))
        self._left.discard(number)
        self._read_bytes += read_bytes
        part = self._parts[number]
        for position, state in states:
            index = part.indices[position]
            if state == CHANGED:
                self._found.changed.append(index)
            elif state == MISSING:
                self._found.missing.append(index)
            else:
                self._found.errors[index] = state
        for *identity, algorithm, digest in known:
            self._found.known[tuple(identity)] = (algorithm, digest)
        self._done = (self._done[0] + len(part.indices), self._done[1] + part.weight)
        if tell:
            tell(*self._done, *self._all)


def processes() -> int:
    """How many processes share the work: one for each processor that this one may use, up to 8."""
    return max(1, min(_MAX_PROCESSES, len(os.sched_getaffinity(0))))


def _parts(files: Sequence[File], weights: Sequence[int], contents: bool) -> List[_Part]:
    """The files in parts, the largest first: what is left at the end is small."""
    texts = list(map(_text, files))
    most_bytes = max(_PART_BYTES, sum(weights) // _MOST_PARTS) if contents else sum(weights)
    most_files = max(_PART_FILES, len(files) // _MOST_PARTS)
    order = sorted(range(len(files)), key=weights.__getitem__, reverse=True)
    parts: List[_Part] = []
    begin = weight = 0
    for end, index in enumerate(order):
        if end > begin and (weight + weights[index] > most_bytes or end - begin >= most_files):
            parts.append(_part(order[begin:end], weight, texts))
            begin, weight = end, 0
        weight += weights[index]
    if order:
        parts.append(_part(order[begin:], weight, texts))
    return parts


def _part(indices: List[int], weight: int, texts: Sequence[str]) -> _Part:
    return _Part(indices, weight, "\0".join([texts[index] for index in indices]))


def _text(file: File) -> str:
    """Path, sha256 and size; the last two empty where there are several, others, or none."""
    path, accepted, sizes, _, _ = file
    if len(accepted) == len(sizes) == 1:
        ((algorithm, digest),) = accepted
        if algorithm == "sha256" and digest.isalnum():
            return f"{path}\0{digest}\0{sizes[0]}"
    return path + "\0\0"


class _Worker:
    """What looks at files, one after the other, with one buffer."""

    def __init__(
        self, files: Sequence[File], contents: bool, believed: Mapping[Identity, Digest], remember: bool
    ) -> None:
        self.parent = os.getppid()
        self._files = files
        self._contents = contents
        self._believed = believed
        self._remember = remember
        self._buffer = memoryview(bytearray(_BUFFER_BYTES if contents else 1))
        self._into = [self._buffer]
        self._read_bytes = 0
        self._known: List[Tuple[Any, ...]] = []

    def look(self, part: _Part) -> Tuple[int, List[Tuple[int, str]], List[Tuple[Any, ...]]]:
        """Bytes read; place in the part and state of each file not as recorded; what is known of digests."""
        if os.getppid() != self.parent:
            os._exit(0)
        self._read_bytes = 0
        self._known = []
        states = []
        plainly = self._contents and not self._remember
        words = part.text.split("\0")
        for position, (path, digest, size) in enumerate(zip(words[::3], words[1::3], words[2::3])):
            if digest and plainly and self._is_as_recorded(path, digest, int(size)):
                continue
            try:
                state = self._state(self._files[part.indices[position]])
            except OSError as error:
                state = _MEANING.get(error.errno or 0) or _why(error)
            except ValueError as error:
                state = _why(error)  # an algorithm that this machine's policy forbids
            if state:
                states.append((position, state))
        return self._read_bytes, states, self._known

    def _is_as_recorded(self, path: str, digest: str, size_bytes: int) -> bool:
        """Whether a file has the sha256 and size that it should have; False says nothing yet.

        That spares looking at what nearly every file is: where anything is odd, `_state` looks first
        and opens then. A link is not followed here, since it may lead to a device that acts when it is
        opened; only root can put a device itself into a prefix.
        """
        try:
            fd = os.open(path, _OPENED | os.O_NOFOLLOW)
        except (OSError, ValueError):
            return False
        try:
            buffer, into = self._buffer, self._into
            count = read_bytes = os.readv(fd, into)
            found = hashlib.sha256(buffer[:count])
            # Behind a full buffer there may be more than there should be.
            while count == _BUFFER_BYTES and read_bytes <= size_bytes:
                if os.getppid() != self.parent:
                    os._exit(0)
                count = os.readv(fd, into)
                found.update(buffer[:count])
                read_bytes += count
        except OSError:
            return False
        finally:
            os.close(fd)
        if read_bytes != size_bytes or found.hexdigest() != digest:
            return False
        self._read_bytes += read_bytes
        return True

    def _state(self, file: File) -> str:
        path, accepted, sizes, is_link, _ = file
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
                if os.getppid() != self.parent:
                    os._exit(0)
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
