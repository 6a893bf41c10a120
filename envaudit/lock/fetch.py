"""Package files by hash: taken from the cache or fetched, and never handed on unchecked.

The cache holds archives, not extracted packages: an archive is checked whole, by its hash, every
time it is used, so that a cache that somebody spoiled is found out.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import shutil
import threading
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import IO, Any, Protocol
from urllib.parse import unquote, urlsplit

from envaudit.errors import EnvauditError, InputError, NeededError
from envaudit.lock.lockfile import LockedPackage
from envaudit.lock.opener import Opener, printable_url
from envaudit.lock.parts import Parts, Stopped, cache_failure
from envaudit.model.printing import printable

_CHUNK_BYTES = 1 << 18
# More than any package has (the largest, of CUDA and ROCm, have 5 GB). A lock does not tell sizes, and
# before the hash of an answer without an end is known the disk would be full.
_MAX_BYTES = 16 << 30
# It becomes a path here.
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+!~-]{0,250}\Z")
_CONDA_ENDINGS = (".conda", ".tar.bz2")
_PIP_ENDINGS = (".whl", ".tar.gz", ".zip", ".tar.bz2", ".tar.xz", ".tgz")
_AT_ONCE = 8
# A file that a web server or a login portal answers with instead of a package.
_WEB_PAGE = re.compile(rb"\s*<(?:!doctype|html|\?xml)", re.IGNORECASE)


class Progress(Protocol):
    """Who is told how far a long work is."""

    def begin(self, phase: str, total: int) -> None:
        """A phase of so many steps starts."""

    def advance(self, what: str) -> None:
        """One step of it is done."""


@dataclass(frozen=True)
class Wanted:
    """One file that a lock names.

    Attributes:
        name: its file name.
        urls: where it may be fetched, in this order; may hold credentials and are never printed.
        sha256, md5: what it must hash to, in hex; one of them is needed.
    """

    name: str
    urls: tuple[str, ...] = field(repr=False)
    sha256: str | None
    md5: str | None

    @property
    def key(self) -> str:
        """Its folder in the cache."""
        return self.sha256 or f"md5-{self.md5}"


def wanted(package: LockedPackage, urls: Sequence[str]) -> Wanted:
    """The file of a package, to be fetched from `urls`.

    Raises:
        InputError: the lock has no hash for it, or its URL ends in no name of a package file.
    """
    endings = _CONDA_ENDINGS if package.manager == "conda" else _PIP_ENDINGS
    if not _FILE_NAME.match(package.file_name) or not package.file_name.endswith(endings):
        raise InputError(
            f"the URL of {package.name} ({package.manager}) ends in no name of a package file",
            where=printable_url(package.url),
            next_step="Make the lock again with 'envaudit lock'.",
        )
    if not package.sha256 and not package.md5:
        raise InputError(
            f"the lock has no hash for {package.name} ({package.manager}, {package.platform})",
            why="what cannot be checked is not installed",
            next_step="Make the lock again with 'envaudit lock'.",
        )
    return Wanted(package.file_name, tuple(urls), package.sha256, package.md5)


def fetch_all(
    files: Sequence[Wanted],
    cache: str,
    *,
    opener: Opener,
    offline: bool = False,
    progress: Progress | None = None,
) -> dict[Wanted, str]:
    """Paths of checked files, some in the cache, those of file:// URLs where they lie.

    Args:
        files: what is needed.
        cache: a folder, made where it is not there.
        opener: how to reach the network.
        offline: take nothing from the network; file:// and the cache are still there.
        progress: is told of each file.

    Raises:
        InputError: a file hashes to something else than the lock says.
        NeededError: a file cannot be had, or the cache cannot be written.
    """
    if progress is not None:
        progress.begin("fetch", len(files))
    waiting = deque(dict.fromkeys(files))
    stop = threading.Event()
    parts = Parts()
    done: dict[Wanted, str] = {}
    ended: SimpleQueue[BaseException | None] = SimpleQueue()

    def work() -> None:
        while not stop.is_set():
            try:
                file = waiting.popleft()
            except IndexError:
                return
            try:
                done[file] = _Fetch(file, cache, opener, offline, stop, parts).path()
                if progress is not None:
                    progress.advance(file.name)
                ended.put(None)
            except BaseException as error:  # raised where somebody waits for it
                ended.put(error)

    # Daemons, because one that a server keeps waiting must not keep Ctrl-C waiting.
    workers = [
        threading.Thread(target=work, name=f"fetch-{number}", daemon=True)
        for number in range(min(_AT_ONCE, len(waiting)))
    ]
    unfinished = len(waiting)
    try:
        for worker in workers:
            worker.start()
        errors: list[BaseException] = []
        while unfinished and not errors:
            errors = [error for error in (ended.get(),) if error is not None]
            unfinished -= 1
        stop.set()
        for worker in workers:
            worker.join()
    except BaseException:
        stop.set()
        parts.take_away()
        raise
    if errors:
        raise _worst([*errors, *_rest(ended)])
    return done


def _rest(ended: SimpleQueue[BaseException | None]) -> Iterator[BaseException]:
    """The other errors that there are by now."""
    with suppress(Empty):
        while True:
            error = ended.get_nowait()
            if error is not None and not isinstance(error, Stopped):
                yield error


def _worst(errors: Sequence[BaseException]) -> BaseException:
    """A wrong hash before a file that could not be had: the first is no matter of waiting."""
    return next((error for error in errors if isinstance(error, InputError)), errors[0])


def hashes_match(path: str, sha256: str | None, md5: str | None) -> tuple[bool, str]:
    """Whether a file is the one that a lock means, and what it hashes to.

    Raises:
        OSError: it cannot be read.
    """
    digest = _digest(sha256)
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest() == (sha256 or md5 or "").lower(), digest.hexdigest()


def _digest(sha256: str | None) -> Any:
    return hashlib.sha256() if sha256 else hashlib.md5(usedforsecurity=False)


class _Fetch:
    """One file on its way."""

    def __init__(
        self,
        file: Wanted,
        cache: str,
        opener: Opener,
        offline: bool,
        stop: threading.Event,
        parts: Parts,
    ) -> None:
        self.file, self.opener, self.offline, self.stop = file, opener, offline, stop
        self.parts = parts  # of all files that are under way
        self.folder = os.path.join(cache, file.key[:2], file.key)

    def path(self) -> str:
        """Where the checked file lies."""
        cached = os.path.join(self.folder, self.file.name)
        if os.path.isfile(cached):
            if hashes_match(cached, self.file.sha256, self.file.md5)[0]:
                return cached
            os.unlink(cached)
        failures: list[EnvauditError] = []
        for url in self.file.urls:
            try:
                if url.startswith("file:"):
                    return self._local(url)
                if not self.offline:
                    return self._fetched(url, cached)
            except EnvauditError as error:
                failures.append(error)
        if failures:
            raise next((each for each in failures if isinstance(each, InputError)), failures[0])
        raise NeededError(
            f"{self.file.name} is not here, and --offline forbids to fetch it",
            next_step="Make a mirror where there is a network: envaudit mirror LOCK --to DIR.",
        )

    def _local(self, url: str) -> str:
        path = unquote(urlsplit(url).path)
        try:
            good, found = hashes_match(path, self.file.sha256, self.file.md5)
        except (OSError, ValueError) as error:  # ValueError: %00 in the URL
            why = getattr(error, "strerror", None) or str(error)
            raise NeededError(f"{self.file.name} cannot be read", where=path, why=why) from None
        if not good:
            raise self._wrong_hash(path, found)
        return path

    def _fetched(self, url: str, cached: str) -> str:
        attempts = self.opener.attempts
        for attempt in range(1, attempts + 1):
            try:
                return self._download(url, cached)
            # ValueError: a host of no name, `https://a..b/`
            except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
                if isinstance(error, urllib.error.HTTPError):
                    error.close()  # it is an answer, with a connection
                if attempt == attempts or not _may_pass(error):
                    raise self._failure(url, error) from None
                if self.stop.wait(0.2 * 2**attempt):
                    raise Stopped from None
        raise AssertionError("a loop without an end")

    def _download(self, url: str, cached: str) -> str:
        try:
            os.makedirs(self.folder, exist_ok=True)
        except OSError as error:
            raise cache_failure(self.folder, error) from None
        part = os.path.join(self.folder, f".part-{os.getpid()}-{threading.get_ident()}")
        digest = _digest(self.file.sha256)
        try:
            with self.opener.open(url) as answer, self.parts.created(part) as out:
                head = self._copy(answer, out, digest)
            if digest.hexdigest() != (self.file.sha256 or self.file.md5 or "").lower():
                raise self._wrong_hash(printable_url(url), digest.hexdigest(), head)
            os.replace(part, cached)
        finally:
            if os.path.exists(part):
                os.unlink(part)
            self.parts.forget(part)
        return cached

    def _copy(self, answer: Any, out: IO[bytes], digest: Any) -> bytes:
        head = b""
        header = answer.headers.get("Content-Length") or ""
        announced_bytes = int(header) if header.isdecimal() else 0
        size_bytes = 0
        while chunk := answer.read(_CHUNK_BYTES):
            if self.stop.is_set():
                raise Stopped
            head = head or chunk[:200]
            digest.update(chunk)
            size_bytes += len(chunk)
            if max(size_bytes, announced_bytes) > _MAX_BYTES:
                raise self._too_large(answer.url)
            try:
                out.write(chunk)
            except OSError as error:
                raise cache_failure(self.folder, error) from None
        if size_bytes < announced_bytes:
            raise http.client.IncompleteRead(b"", announced_bytes - size_bytes)
        return head

    def _too_large(self, url: str) -> InputError:
        return InputError(
            f"{self.file.name} is not the file that the lock means",
            where=printable_url(url),
            why=f"what comes has more than {_MAX_BYTES >> 30} GiB",
            next_step="Ask who runs that channel.",
        )

    def _wrong_hash(self, where: str, found: str, head: bytes = b"") -> InputError:
        kind = "sha256" if self.file.sha256 else "md5"
        if _WEB_PAGE.match(head):
            return InputError(
                f"a web page came instead of {self.file.name}",
                where=where,
                next_step="A proxy or a login portal may stand between: open the address in a browser.",
            )
        return InputError(
            f"{self.file.name} is not the file that the lock means",
            where=where,
            why=f"{kind} is {found}, the lock has {self.file.sha256 or self.file.md5}",
            next_step="The file was replaced or damaged: ask who runs that channel, then lock again.",
        )

    def _failure(self, url: str, error: Exception) -> NeededError:
        return NeededError(
            f"{self.file.name} cannot be fetched",
            where=printable_url(url),
            why=_reason(error),
            next_step=_advice(error),
        )


def _may_pass(error: Exception) -> bool:
    """Whether the same question may have a better answer in a moment."""
    if isinstance(error, urllib.error.HTTPError):
        return error.code >= 500 or error.code == 429
    return not isinstance(error, ValueError)


def _reason(error: Exception) -> str:
    """In one line; some of it is the server's own words, terminal controls and all."""
    return printable(" ".join(_words_of(error).split()))


def _words_of(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code} {error.reason}"
    if isinstance(error, http.client.IncompleteRead):
        return "the answer ended before its announced length"
    if isinstance(error, urllib.error.URLError):
        reason = error.reason
        return str(getattr(reason, "strerror", None) or reason)
    return str(error) or type(error).__name__


def _advice(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError) and error.code in (401, 403):
        return "Give the credentials of that channel in .condarc or the keyring."
    if isinstance(error, urllib.error.HTTPError) and error.code == 404:
        return "The channel has removed it, or the mirror lacks it: lock again, or try another mirror."
    return "Check the network, the proxy and the mirrors of .condarc; then run it again."


def default_cache(environ: Mapping[str, str] | None = None) -> str:
    """The user's cache of package files, `$XDG_CACHE_HOME/envaudit/packages`."""
    environ = os.environ if environ is None else environ
    base = environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "envaudit", "packages")


def copy_file(source: str, target: str) -> None:
    """A file under another name, whole or not at all.

    Raises:
        OSError: it cannot be read or written.
    """
    part = f"{target}.part-{os.getpid()}"
    try:
        shutil.copyfile(source, part)
        os.replace(part, target)
    finally:
        if os.path.exists(part):
            os.unlink(part)
