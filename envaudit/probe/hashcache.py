"""Digests of files by their identity, kept from one run to the next where the user names a file.

A file that is written to gets another ctime, which no user can set back. So whoever has the same
device, inode, size, mtime and ctime as when it was hashed has the same content, unless somebody wrote
to the raw disk, set the clock back, or the disk itself decays: a `hash` run believes none of it.

The file belongs to its user alone, and to one node: device numbers mean nothing elsewhere. One that is
damaged, somebody else's or open to others is as good as none.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from typing import Any, Dict, Mapping, Optional

from envaudit.probe.hashing import Digest, Identity

_KIND = b"envaudit file digests "
_HEAD = _KIND + b"1 "
_MAX_BYTES = 256 << 20
_NO_FILE = "not a regular file"


class HashCache:
    """One such file.

    Attributes:
        said: what became of it, for the notes: `believed` and `kept` (numbers of files), and
            `not_read` or `not_written` with the reason.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.said: Dict[str, Any] = {"believed": 0, "kept": 0}

    @classmethod
    def of(cls, path: str) -> Optional[HashCache]:
        """The cache at a path, absolute or below home; None for an empty one."""
        return cls(os.path.abspath(os.path.expanduser(path))) if path else None

    def read(self) -> Dict[Identity, Digest]:
        """The digests by identity; empty where the file is not to be believed."""
        try:
            known = self._parsed(self._bytes())
        except FileNotFoundError:
            return {}
        except OSError as error:
            self.said["not_read"] = error.strerror or "unreadable"
            return {}
        except (ValueError, TypeError, RecursionError):
            self.said["not_read"] = "damaged"
            return {}
        self.said["believed"] = len(known)
        return known

    def write(self, known: Mapping[Identity, Digest]) -> None:
        """Put these in place of earlier ones; of two writers the later one wins, whole.

        What is no such file stays: whoever writes /dev/null for "none" must not be without it after.
        """
        rows = [[*identity, *digest] for identity, digest in known.items()]
        body = json.dumps(rows, separators=(",", ":")).encode("ascii")
        aside = f"{self.path}.{os.getpid()}.new"
        try:
            self._refuse_other()
            fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            self.said["not_written"] = error.strerror
            return
        try:
            with open(fd, "wb") as file:
                file.write(_HEAD + hashlib.sha256(body).hexdigest().encode("ascii") + b"\n" + body)
            os.replace(aside, self.path)
        except OSError as error:
            self.said["not_written"] = error.strerror
            os.unlink(aside)
            return
        self.said["kept"] = len(rows)

    def _refuse_other(self) -> None:
        try:
            seen = os.lstat(self.path)
        except FileNotFoundError:
            return
        if not stat.S_ISREG(seen.st_mode):
            raise OSError(0, _NO_FILE)
        with open(self.path, "rb") as file:
            if not _KIND.startswith(file.read(len(_KIND))):
                raise OSError(0, "something else stands there")

    def _bytes(self) -> bytes:
        fd = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            seen = os.fstat(fd)
            if not stat.S_ISREG(seen.st_mode):
                raise OSError(0, _NO_FILE)
            if seen.st_uid != os.geteuid() or seen.st_mode & 0o077:
                raise OSError(0, "others may write or read it")
            if seen.st_size > _MAX_BYTES:
                raise OSError(0, "too large")
            return file.read(_MAX_BYTES)

    @staticmethod
    def _parsed(text: bytes) -> Dict[Identity, Digest]:
        head, _, body = text.partition(b"\n")
        if head != _HEAD + hashlib.sha256(body).hexdigest().encode("ascii"):
            raise ValueError("damaged")
        return {
            (int(device), int(inode), int(size), int(mtime), int(ctime)): (str(algorithm), str(digest))
            for device, inode, size, mtime, ctime, algorithm, digest in json.loads(body.decode("ascii"))
        }
