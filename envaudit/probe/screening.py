"""The files that are plainly as recorded, told from all others by several processes.

Nearly every file of an environment is what one record says of it: a regular file of one sha256 and
one size. Those are screened while the records are still read, and need no more than one look. What
does not pass is not judged here: `envaudit.probe.hashing` looks at it again, and closely.

What there is to screen lies in memory that all processes share, as texts; where the next one lies
goes through a pipe. Objects would not do: counting a reference to one copies the page of memory that
it lies on, in each process.
"""

from __future__ import annotations

import hashlib
import heapq
import mmap
import os
import stat
import struct
from typing import Callable, Dict, List, Optional, Tuple

from envaudit.probe.crew import Crew, processes

# Half of what the second cache of a core holds: what was read is hashed before it leaves.
_BUFFER_BYTES = 256 << 10
# A part of the work has no more files than this, and ends with the file that brings it above these bytes.
_PART_FILES, _PART_BYTES = 128, 4 << 20
# For the texts: memory that is taken only as it is written to. 1.3 million files need it all.
_TEXT_BYTES = 256 << 20
# So many parts wait for the processes while there are more records to come. Of those that nobody
# waits for yet, the largest goes first: what is left at the end is small.
_WAITING = 8
# Number of a part, and offset and length of its text.
_PIECE = struct.Struct("=IIQ")
_OPENED = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW

# How many files and bytes have passed so far.
Passed = Callable[[int, int], None]


class Screening:
    """Files being screened, from entering to leaving this context.

    Attributes:
        passed_bytes: bytes of the files that have passed.
    """

    def __init__(self, deadline_s: float) -> None:
        """Prepare for it; after `deadline_s` seconds the processes end by their own alarm."""
        self.passed_bytes = 0
        self._crew = Crew(self._screen, _PIECE.size, processes(), deadline_s)
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._texts: Optional[mmap.mmap] = None
        self._end = 0
        # Path, sha256 and size in turn: of what is no part yet, and of each part, with the sum of the sizes.
        self._rest: List[str] = []
        self._parts: Dict[int, Tuple[List[str], int]] = {}
        # Those that no process can have yet, the largest first: weight, number, offset and length.
        self._ready: List[Tuple[int, int, int, int]] = []

    def __enter__(self) -> Screening:
        """Nothing is started before there is work."""
        return self

    def __exit__(self, *about: object) -> None:
        """End whatever is still running."""
        self._crew.__exit__(*about)
        if self._texts is not None:
            self._texts.close()

    def offer(self, words: List[str]) -> None:
        """Have files screened: path, sha256 and size of each in turn."""
        words = self._rest + words
        begin = weight = 0
        for end, size in enumerate(words[2::3], 1):
            weight += int(size)
            if weight > _PART_BYTES or end - begin == _PART_FILES:
                self._add(words[3 * begin : 3 * end], weight)
                begin, weight = end, 0
        self._rest = words[3 * begin :]
        self._give(_WAITING)

    def all_offered(self) -> None:
        """Say that no more files come: the processes need not be watched until `result`."""
        self._add_rest()
        self._give()

    def result(self, tell: Optional[Passed] = None) -> List[str]:
        """Wait for all of it; the paths that did not pass. `tell` hears now and then how far it is."""
        self._add_rest()
        rest: List[str] = []
        files = 0
        for line in self._crew.answers(self._give):
            number, *positions = map(int, line.split())
            words, weight = self._parts.pop(number)
            for position in positions:
                rest.append(words[3 * position])
                weight -= int(words[3 * position + 2])
            files += len(words) // 3 - len(positions)
            self.passed_bytes += weight
            if tell:
                tell(files, self.passed_bytes)
        for words, _ in self._parts.values():  # the process that had it was ended
            rest += words[::3]
        return rest

    def _add_rest(self) -> None:
        words, self._rest = self._rest, []
        if words:
            self._add(words, sum(map(int, words[2::3])))

    def _add(self, words: List[str], weight: int) -> None:
        if not self._parts:
            self._start()
        number = len(self._parts)
        self._parts[number] = words, weight
        text = "\0".join(words)
        try:
            coded = os.fsencode(text)
        except UnicodeEncodeError:
            return  # no file can be called so
        begin, end = self._end, self._end + len(coded)
        if self._texts is not None and end <= _TEXT_BYTES and text.count("\0") == len(words) - 1:
            self._texts[begin:end] = coded
            self._end = end
            heapq.heappush(self._ready, (-weight, number, begin, len(coded)))

    def _start(self) -> None:
        try:
            self._texts = mmap.mmap(-1, _TEXT_BYTES)
        except (OSError, ValueError):
            return  # this process may not have so much memory: nothing passes
        self._crew.__enter__()

    def _give(self, most_waiting: Optional[int] = None) -> bool:
        """Let processes have what is ready; whether anything still is."""
        while self._ready and (most_waiting is None or self._crew.waiting() < most_waiting):
            _, number, begin, length = self._ready[0]
            if not self._crew.give(_PIECE.pack(number, length, begin)):
                break
            heapq.heappop(self._ready)
        return bool(self._ready)

    def _screen(self, piece: bytes) -> bytes:
        """Number of a part, and the places of its files that do not pass."""
        number, length, begin = _PIECE.unpack(piece)
        said = [number]
        assert self._texts is not None
        words = os.fsdecode(self._texts[begin : begin + length]).split("\0")
        for position, (path, sha256, size) in enumerate(zip(words[::3], words[1::3], words[2::3])):
            if not self._passes(path, sha256, int(size)):
                said.append(position)
        return " ".join(map(str, said)).encode("ascii")

    def _passes(self, path: str, sha256: str, size_bytes: int) -> bool:
        """Whether a file is a regular one of this content; False says nothing yet.

        A link is not followed here, since it may lead to a device that acts when it is opened; only
        root can put a device itself into a prefix.
        """
        try:
            fd = os.open(path, _OPENED)
        except (OSError, ValueError):
            return False
        try:
            buffer = self._buffer
            into = [buffer]
            count = read_bytes = os.readv(fd, into)
            found = hashlib.sha256(buffer[:count])
            # Behind a full buffer there may be more than there should be.
            while count == _BUFFER_BYTES and read_bytes <= size_bytes:
                self._crew.leave_if_orphaned()
                count = os.readv(fd, into)
                found.update(buffer[:count])
                read_bytes += count
            if not read_bytes and not stat.S_ISREG(os.fstat(fd).st_mode):
                return False  # a FIFO that nobody writes to
        except OSError:
            return False
        finally:
            os.close(fd)
        return read_bytes == size_bytes and found.hexdigest() == sha256
