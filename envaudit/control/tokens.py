"""The token by which members and hub know one another: never on a command line, never in an error."""

from __future__ import annotations

import os
import shlex
import stat
from typing import Mapping

from envaudit.errors import UsageError

VARIABLE = "ENVAUDIT_TOKEN"

# A listener in the middle can try tokens at leisure: 16 characters of any good source are out of reach.
LEAST_BYTES = 16
MOST_BYTES = 4096
_FRESH_BYTES = 32


def token_of(environ: Mapping[str, str], path: str = "") -> bytes:
    """The user's token: the file's where one is named, else the variable's, else b"".

    Raises:
        UsageError: it is too short or too long, or others may read or write the file.
    """
    if path:
        return _sound(_read(path), path)
    told = environ.get(VARIABLE, "")
    return _sound(os.fsencode(told), VARIABLE) if told else b""


def fresh_token() -> bytes:
    """For a run whose supervisors are all started by one process, which hands it to them."""
    return os.urandom(_FRESH_BYTES).hex().encode("ascii")


def _read(path: str) -> bytes:
    try:
        # No waiting for a writer where it is a pipe.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError("cannot be read", where=path, why=error.strerror or "") from None
    try:
        told = os.fstat(descriptor)
        if not stat.S_ISREG(told.st_mode):
            raise UsageError("not a file", where=path)
        if told.st_uid not in (os.geteuid(), 0):
            raise UsageError("a token file of another user", where=path)
        if told.st_mode & 0o077:
            raise UsageError(
                f"others may use this token file (mode {told.st_mode & 0o777:o})",
                where=path,
                next_step=f"Run chmod 600 {shlex.quote(path)}",
            )
        return os.read(descriptor, MOST_BYTES + 1)
    finally:
        os.close(descriptor)


def _sound(token: bytes, where: str) -> bytes:
    token = token.strip()
    if not LEAST_BYTES <= len(token) <= MOST_BYTES:
        raise UsageError(
            f"a token of {len(token)} bytes, {LEAST_BYTES} to {MOST_BYTES} are taken",
            where=where,
            next_step="Make one with: head -c 32 /dev/urandom | base64",
        )
    return token
