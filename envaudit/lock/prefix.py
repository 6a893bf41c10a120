"""A prefix that is replaced as a whole: built beside the old one, swapped in by one rename.

Until the swap the old prefix is as it was; after it the new one is whole. A killed install leaves
a folder beside the prefix, which the next one removes. One install at a time works on a prefix,
held by a lock that ends with its process.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from envaudit.errors import NeededError, UsageError

# In the folder beside the prefix: the new prefix, and the old one while two renames are under way.
FRESH = "prefix"
_OLD = "old"

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
# Lustre that is mounted without `flock`.
_NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
# Kernels before 3.15, file systems without it (NFS), and what stands in for Linux.
_NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)


@contextmanager
def replacement(prefix: str) -> Iterator[tuple[str, str]]:
    """An empty folder beside `prefix`, to be filled; it takes the prefix's place when the block ends well.

    Gives that folder and the prefix without symbolic links. After an error the folder is gone and
    the prefix as before.

    Raises:
        UsageError: something stands there that is no environment, or must not be replaced.
        NeededError: no permission, disk full, or another install is at work there.
    """
    target = os.path.realpath(prefix)
    _check_replaceable(target)
    parent, name = os.path.split(target)
    try:
        os.makedirs(parent, exist_ok=True)
        with held(os.path.join(parent, f".{name}.envaudit-lock"), "install"):
            _remove_leftovers(parent, name, target)
            work = tempfile.mkdtemp(prefix=f".{name}.envaudit-", dir=parent)
            try:
                fresh = os.path.join(work, FRESH)
                os.mkdir(fresh)
                yield fresh, target
                _put_in_place(fresh, target)
            finally:
                shutil.rmtree(work, ignore_errors=True)
    except OSError as error:
        raise NeededError(
            "cannot be installed into", where=prefix, why=error.strerror or str(error)
        ) from error


def _check_replaceable(target: str) -> None:
    if not os.path.lexists(target):
        return
    if not os.path.isdir(target):
        raise UsageError("is a file", where=target, next_step="Name a folder with --prefix.")
    if not os.listdir(target):
        return
    if not os.path.isdir(os.path.join(target, "conda-meta")):
        raise UsageError(
            "is no conda environment and is not empty, so it is not replaced",
            where=target,
            next_step="Name another folder with --prefix.",
        )
    if os.path.isdir(os.path.join(target, "condabin")):
        raise UsageError(
            "is the base environment of a conda installation, so it is not replaced",
            where=target,
            next_step="Name another folder with --prefix.",
        )
    own = os.path.realpath(sys.prefix)
    if own == target or own.startswith(target + os.sep):
        raise UsageError("envaudit itself runs from there", where=target)


@contextmanager
def held(path: str, work: str, *, needed: bool = True) -> Iterator[None]:
    """The right to do a work somewhere, as a file there; ends with the process, however that ends.

    Args:
        path: the file.
        work: what is done, in a word.
        needed: False for a work that goes on where the file system keeps no locks.

    Raises:
        NeededError: another process has it.
        OSError: the file cannot be made, or not locked.
    """
    while True:
        # The folder may be anybody's, such as /tmp: no file is made where a link of another user leads.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_ino == os.stat(path).st_ino:
                break
        except FileNotFoundError:
            pass  # whoever held it before has just removed it
        except BlockingIOError:
            os.close(descriptor)
            raise NeededError(
                f"another {work} is at work there",
                where=path,
                next_step="Wait until it has ended, then run this again.",
            ) from None
        except OSError as error:
            if not needed and error.errno in _NO_LOCKS:
                break
            os.close(descriptor)
            raise
        os.close(descriptor)
    try:
        yield
    finally:
        with suppress(FileNotFoundError):  # without locks, another one may have removed it
            os.unlink(path)
        os.close(descriptor)


def _remove_leftovers(parent: str, name: str, target: str) -> None:
    """Clear what killed installs left: nobody else holds the lock.

    One that died between two renames has the old prefix in its folder: it gets its name back.
    """
    for entry in sorted(os.listdir(parent)):
        if entry.startswith(f".{name}.envaudit-") and not entry.endswith("-lock"):
            left = os.path.join(parent, entry)
            old = os.path.join(left, _OLD)
            if os.path.isdir(old) and not os.path.lexists(target):
                os.rename(old, target)
            shutil.rmtree(left, ignore_errors=True)


def _put_in_place(fresh: str, target: str) -> None:
    if not os.path.lexists(target):
        os.rename(fresh, target)
        return
    if _exchanged(fresh, target):
        return  # the old one is in the work folder now, and goes with it
    aside = os.path.join(os.path.dirname(fresh), _OLD)
    os.rename(target, aside)
    try:
        os.rename(fresh, target)
    except BaseException:
        os.rename(aside, target)
        raise


def _exchanged(one: str, other: str) -> bool:
    """Whether two folders could change names in one step (renameat2, Linux 3.15)."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False  # a C library older than 2.28, or none of Linux
    if rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NO_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number), other)
