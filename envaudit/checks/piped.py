"""A worker process on three pipes: lines of JSON from it, the last of what it complained of, its sure end.

Standard library only. The process prints a greeting and then one JSON object a line on standard output; what
a start-up file of its environment prints before that counts as complaint, like standard error.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import time
from typing import Any, Dict, Iterator, Mapping, Optional, Tuple

# A worker's first line, on a line of its own whatever was printed before: start-up files may print JSON, too.
GREETING = b'{"from": "envaudit worker"}'

_READ_BYTES = 1 << 16
LINE_LIMIT_BYTES = 1 << 20
STDERR_TAIL_BYTES = 8192
TEXT_MAX = 300


class NotItsLines(ValueError):
    """A process said something else than lines of JSON objects of bounded length."""


class Piped:
    """One process, what it has said and not yet ended with a newline, and its complaints.

    Attributes:
        process: started with unbuffered pipes for all three streams.
        heard_at: by the monotonic clock, when it said anything last.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.heard_at = time.monotonic()
        self._said = bytearray()
        self._complained = bytearray()
        self._spoke = False
        for stream in self.streams:
            os.set_blocking(stream.fileno(), False)

    @property
    def streams(self) -> Tuple[Any, Any]:
        """Standard output and standard error."""
        return self.process.stdout, self.process.stderr

    def register(self, selector: selectors.BaseSelector) -> None:
        """Have a selector report both streams, with this object as their data."""
        for stream in self.streams:
            selector.register(stream, selectors.EVENT_READ, self)

    def unregister(self, selector: selectors.BaseSelector) -> None:
        """The inverse; streams that are closed or unknown to the selector are passed over."""
        known = [key.fileobj for key in selector.get_map().values()]
        for stream in self.streams:
            if stream in known:
                selector.unregister(stream)

    def complaint(self) -> str:
        """The last line on its standard error."""
        lines = self.complaints().strip().splitlines()
        return lines[-1].strip()[:TEXT_MAX] if lines else ""

    def complaints(self) -> str:
        """The last 8 KiB of its standard error."""
        return self._complained.decode("utf-8", "replace")

    def complain(self, chunk: bytes) -> None:
        """Takes what came from its standard error."""
        self._complained = bytearray((self._complained + chunk)[-STDERR_TAIL_BYTES:])

    def take(self, key: selectors.SelectorKey, selector: selectors.BaseSelector) -> Optional[bytes]:
        """Reads the stream that a selector has reported: what came on standard output, b"" at its end.

        None where nothing came, or where it was a complaint, which is kept.
        """
        try:
            chunk = os.read(key.fd, _READ_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            chunk = b""
        if key.fileobj is not self.process.stderr:
            return chunk
        self.complain(chunk)
        if not chunk:
            selector.unregister(key.fileobj)
        return None

    def drain_complaints(self) -> None:
        """Takes what is left on its standard error, without waiting."""
        stream = self.process.stderr
        if stream is None or stream.closed:
            return
        try:
            self.complain(os.read(stream.fileno(), STDERR_TAIL_BYTES))
        except OSError:
            pass

    def hear(self, chunk: bytes) -> Iterator[Dict[str, Any]]:
        """The objects whose lines are whole with this chunk of standard output.

        Raises:
            NotItsLines: a line is none, or too long.
        """
        self.heard_at = time.monotonic()
        self._said += chunk
        while b"\n" in self._said:
            line, _, rest = bytes(self._said).partition(b"\n")
            self._said = bytearray(rest)
            if not self._spoke:
                self._spoke = line == GREETING
                if line and not self._spoke:
                    self.complain(line + b"\n")
                continue
            try:
                said = json.loads(line.decode("ascii"))
            except ValueError:
                raise NotItsLines("its worker said something else than its results") from None
            if not isinstance(said, dict):
                raise NotItsLines("its worker said something else than its results")
            yield said
        if len(self._said) > LINE_LIMIT_BYTES:
            raise NotItsLines(f"its worker said more than {LINE_LIMIT_BYTES >> 20} MiB in one line")

    def send(self, what: Mapping[str, Any]) -> None:
        """Writes one line to its standard input; one that has ended says so by its other pipes."""
        try:
            assert self.process.stdin is not None
            self.process.stdin.write(json.dumps(what, ensure_ascii=True).encode("ascii") + b"\n")
        except OSError:
            pass

    def end(self) -> int:
        """End it for certain and take its exit status."""
        if self.process.poll() is None:
            self.process.kill()
        for stream in (self.process.stdin, *self.streams):
            if stream is not None:
                stream.close()
        try:
            return self.process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            return -signal.SIGKILL  # inside a driver call that does not end even so


def how_it_ended(status: int) -> str:
    """An exit status in words: `its process was ended by SIGSEGV`."""
    if status >= 0:
        return f"its process ended with exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    hunger = " (the kernel sends it when memory runs out)" if status == -signal.SIGKILL else ""
    return f"its process was ended by {name}{hunger}"
